"""Configurations that do not fit their weights, and weights that are no numbers: a sentence."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from cfaug.core.errors import UserError
from cfaug.core.safety.safe_loading import check_numbers
from cfaug.editing.language_models import MaskedLM
from cfaug.models.specs import HFClip, OpenClip
from tests.editing import tiny as language
from tests.models import tiny

SECONDS = 300
"""Of a busy machine; unchecked, these end in no hour, or in no memory."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    shelf = tmp_path_factory.mktemp("saved")
    return {
        "clip": tiny.save_clip(shelf / "clip"),
        "dual": tiny.save_dual_encoder(shelf / "dual"),
        "open_clip": tiny.save_open_clip(shelf / "open_clip"),
        "text": language.save_roberta(shelf / "text"),
    }


def changed(saved, tmp_path, kind, path, value):
    folder = shutil.copytree(saved[kind], tmp_path / kind)
    file = folder / ("open_clip_config.json" if kind == "open_clip" else "config.json")
    content = json.loads(file.read_text())
    *outer, last = path.split(".")
    node = content["model_cfg"] if kind == "open_clip" else content
    for name in outer:
        node = node[name]
    node[last] = value
    file.write_text(json.dumps(content))
    return folder


def load(kind, folder):
    if kind == "open_clip":
        return OpenClip(f"local-dir:{folder}").load()
    return MaskedLM(str(folder)).model if kind == "text" else HFClip(str(folder)).load()


WORDS = r"absurd|asks for a model of|context_length="
ABSURD = [
    ("clip", "text_config.hidden_size", 10**9),
    ("clip", "text_config.hidden_size", 4096),
    ("clip", "text_config.num_hidden_layers", 10**9),
    ("clip", "text_config.vocab_size", 10**12),
    ("clip", "text_config.vocab_size", 9 * 10**6),
    ("clip", "vision_config.image_size", 10**6),
    ("clip", "projection_dim", 10**9),
    ("clip", "num_labels", 10**9),
    ("dual", "vision_config.depths", [10**9, 1]),
    ("dual", "vision_config.depths", [60, 60]),
    ("dual", "text_config.max_position_embeddings", 10**10),
    ("text", "hidden_size", 10**9),
    ("text", "num_hidden_layers", 10**9),
    ("open_clip", "embed_dim", 10**9),
    ("open_clip", "vision_cfg.layers", 10**9),
    ("open_clip", "vision_cfg.image_size", 10**6),
    ("open_clip", "text_cfg.vocab_size", 10**12),
    ("open_clip", "text_cfg.width", 65536),
    ("open_clip", "text_cfg.context_length", 10**9),
]


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(("kind", "path", "value"), ABSURD)
def test_absurd_dimensions_end_in_a_sentence(saved, tmp_path, kind, path, value):
    folder = changed(saved, tmp_path, kind, path, value)
    with pytest.raises(UserError, match=WORDS):
        load(kind, folder)


def test_pickled_weights_are_counted_too(saved, tmp_path):
    folder = changed(saved, tmp_path, "clip", "text_config.hidden_size", 10**9)
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="absurd"):
        load("clip", folder)


def test_numbers_within_reason_pass(tmp_path):
    config = {"rope_theta": 1e30, "num_hidden_layers": 24, "tied_layers": True, "x": {"y": [7e9]}}
    check_numbers(config, tmp_path, (1, 1))
    for bad in ({"layers": 65}, {"x": [{"vocab_size": -(10**8)}]}, {"depths": [40, 40]}):
        with pytest.raises(UserError, match="absurd"):
            check_numbers(bad, tmp_path, (1, 1))
    check_numbers({"layers": 65, "vocab_size": 10**8}, tmp_path, (65, 10**9))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_damaged_weights_of_a_language_model_are_named(saved, tmp_path, value):
    folder = shutil.copytree(saved["text"], tmp_path / "text")
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith("dense.weight"))
    weights[name][0, 0] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"dense\.weight holds"):
        load("text", folder)


def test_an_image_size_that_is_absurd_is_refused(saved, tmp_path):
    folder = shutil.copytree(saved["clip"], tmp_path / "clip")
    for file in ("preprocessor_config.json", "processor_config.json"):
        if (folder / file).exists():
            content = json.loads((folder / file).read_text())
            node = content.get("image_processor", content)
            node["size"] = {"shortest_edge": 10**6}
            node["crop_size"] = {"height": 10**6, "width": 10**6}
            (folder / file).write_text(json.dumps(content))
    with pytest.raises(UserError, match="1000000"):
        load("clip", folder)
