"""Checkpoints of wrapped models: every name has one prefix, which is left out and said."""

from __future__ import annotations

import json
import shutil

import open_clip
import pytest
import torch
import torchvision
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from cfaug.core.errors import UserError, say_once
from cfaug.core.protocols import DualEncoder
from cfaug.models.checkpoints import load_model
from cfaug.models.classifier_specs import TorchvisionClassification
from cfaug.models.specs import HFClip, OpenClip
from cfaug.models.weight_names import find_prefix
from tests.models import tiny

PREFIXES = ["module.", "_orig_mod.", "model.", "module._orig_mod.", "model.module."]


def rename(file, prefix, target=None):
    weights = {f"{prefix}{name}": tensor for name, tensor in load_file(file).items()}
    save_file(weights, target or file, metadata={"format": "pt"})


@given(
    st.lists(st.sampled_from(["module", "_orig_mod", "model", "net", "clip"]), max_size=3),
    st.sets(st.sampled_from(["a.w", "a.b", "c.a.w", "d", "model.x"]), min_size=2),
)
def test_the_prefix_is_what_all_names_have_before_known_ones(parts, known):
    prefix = "".join(f"{part}." for part in parts)
    assert find_prefix([prefix + name for name in known], known) == prefix


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return tiny.save_clip(tmp_path_factory.mktemp("models") / "clip")


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_folder_of_transformers_is_read_without_the_prefix(clip, tmp_path, prefix, capsys):
    say_once.cache_clear()
    folder = shutil.copytree(clip, tmp_path / "wrapped")
    rename(folder / "model.safetensors", prefix)
    plain, wrapped = (HFClip(str(path)).load(DualEncoder) for path in (clip, folder))
    assert f"begin with {prefix!r}" in capsys.readouterr().err
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, wrapped.state_dict()[name])


def test_weights_of_another_model_stay_refused(clip, tmp_path):
    folder = shutil.copytree(clip, tmp_path / "other")
    save_file({"module.a": torch.ones(2)}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="is the model of another kind"):
        HFClip(str(folder)).load(DualEncoder)


def test_weights_without_a_place_are_said(clip, tmp_path, capsys):
    say_once.cache_clear()
    folder = shutil.copytree(clip, tmp_path / "more")
    weights = {**load_file(folder / "model.safetensors"), "extra.head": torch.ones(2)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    HFClip(str(folder)).load(DualEncoder)
    assert "1 of its weights have no place in a CLIPModel" in capsys.readouterr().err


@pytest.mark.parametrize("prefix", ["_orig_mod.", "model.", "module._orig_mod."])
def test_weights_of_open_clip_are_read_without_the_prefix(tmp_path, prefix, capsys, monkeypatch):
    say_once.cache_clear()
    folder = tiny.save_open_clip(tmp_path / "open")
    config = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "tiny", config)
    plain = OpenClip(str(folder)).load(DualEncoder).state_dict()
    file = folder / "open_clip_model.safetensors"
    rename(file, prefix, tmp_path / "wrapped.safetensors")
    rename(file, prefix)
    for spec in (
        OpenClip("some_tag", "tiny").at(str(tmp_path / "wrapped.safetensors")),
        OpenClip(str(folder)),
    ):
        wrapped = spec.load(DualEncoder).state_dict()
        assert f"begin with {prefix!r}" in capsys.readouterr().err
        assert all(torch.equal(tensor, wrapped[name]) for name, tensor in plain.items())


@pytest.mark.parametrize("prefix", ["model.", "module.model."])
def test_a_file_of_torchvision_is_read_without_the_prefix(tmp_path, prefix):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torchvision.models.get_model("shufflenet_v2_x0_5")
    save_file(
        {f"{prefix}{name}": tensor for name, tensor in model.state_dict().items()},
        tmp_path / "model.safetensors",
    )
    spec = TorchvisionClassification(str(tmp_path / "model.safetensors"), "shufflenet_v2_x0_5")
    loaded = spec.load().model.state_dict()
    assert torch.equal(loaded["fc.weight"], model.state_dict()["fc.weight"])


def test_what_transformers_warns_of_is_said_but_for_its_report(clip, monkeypatch, capfd):
    from transformers import CLIPModel
    from transformers.utils import logging

    say_once.cache_clear()
    plain = CLIPModel.from_pretrained.__func__

    def warn(cls, *args, **options):
        logger = logging.get_logger("transformers.modeling_utils")
        logger.warning("the tokens were added:\ntrain them")
        logger.warning("CLIPModel LOAD REPORT from: x\n| Key | Status |")
        return plain(cls, *args, **options)

    monkeypatch.setattr(CLIPModel, "from_pretrained", classmethod(warn))
    load_model("CLIPModel", clip)
    said = capfd.readouterr().err
    assert f"{clip}: transformers warns: the tokens were added: train them" in said
    assert "LOAD REPORT" not in said
    assert logging.get_verbosity() == logging.WARNING
