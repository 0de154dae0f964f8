"""The two commands of docs/lance.md, on hand-laid photos and tiny checkpoints in Hub form."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfaug.data.shards.shards import read_sets
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from tests.imaging.tiny import save_pipeline
from tests.models import tiny

ZOO = """
name: mine
captioner: {{_target_: cfaug.models.task_specs.ImageCaptioning, name_or_path: {root}/blip,
            prefix: "A photo of a", max_new_tokens: 6}}
perturber: {{_target_: cfaug.editing.rule_edits.RuleEdits,
             tagger: {{_target_: cfaug.editing.sentence.TextBlobTagger}}}}
class_words: {{_target_: cfaug.editing.label_guard.ClassWords}}
label_encoder: null
sentence_encoder: null
edit_check: {{_target_: cfaug.editing.edit_checks.StructureCheck,
              tagger: {{_target_: cfaug.editing.sentence.TextBlobTagger}}}}
word_filler: null
photo_diffusion: {{_target_: cfaug.imaging.model.DiffusionWeights, weights: {root}/diffusion,
                   device: cpu}}
clip: {{_target_: cfaug.models.specs.HFClip, name_or_path: {root}/clip}}
"""

RECIPE = """
recipe:
  image_editor: {steps: 4}
  draws: {self_replace_steps: [0.5, 0.8]}
  selection:
    minimum: {sim_0: -1, sim_1: -1, sim_image: -1, sim_direction: null}
    above: {consistency: null}
"""


def _save(file: Path, image: Image.Image, **how) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    image.save(file, **how)


def _noise(seed: int, width: int = 70, height: int = 60) -> Image.Image:
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (6, 7, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def lay_photos(folder: Path) -> None:
    """Two classes of photos as people have them: one is grey, one tiny, one animated."""
    _save(folder / "ball" / "one.png", _noise(0))
    _save(folder / "ball" / "grey.png", _noise(1).convert("L"))
    _save(folder / "ball" / "tiny.png", _noise(2, 1, 1))
    _save(folder / "cube" / "two.jpg", _noise(3))
    moving = [_noise(4), _noise(5)]
    _save(folder / "cube" / "moving.gif", moving[0], save_all=True, append_images=moving[1:])
    (folder / "star").mkdir()  # a class without photos


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    root = tmp_path_factory.mktemp("own")
    tiny.save_blip(root / "blip", seed=3)
    tiny.save_clip(root / "clip")
    tiny.save_classifier(root / "classifier")
    save_pipeline(root / "diffusion", calm=True)
    lay_photos(root / "photos")
    for name, text in {"zoo/mine": ZOO.format(root=root), "recipe/lance/mine": RECIPE}.items():
        file = root / "conf" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def words(shelf: Path, folder: Path) -> list[str]:
    return [
        f"hydra.searchpath=[file://{shelf / 'conf'}]", "recipe=lance", "zoo=mine",
        f"data.source={shelf / 'photos'}", f"paths.shards={folder}",
        f"paths.cache={shelf / 'cache'}", "shards.sets_per_shard=2",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_classifier_and_photos_of_ones_own_take_two_commands(shelf, tmp_path, script, capfd):
    made = tmp_path / "lance"
    assert script("generate")(words(shelf, made)) == 0
    out, _ = capfd.readouterr()
    summary = json.loads(out.splitlines()[-1])
    assert (summary["failed"], summary["shards"]) == (0, 3)
    assert summary["rejected"]["photo_tiny"] >= 1
    sets = {one.group: one for one in read_sets(made)}
    assert len(sets) == 4  # all but the tiny one
    for one in sets.values():
        photo, control, *edits = one.members
        assert photo.edit is None
        assert control.edit.kind == "reconstruction"
        assert photo.text == control.text
        assert photo.text.startswith("A photo of a")  # the captioner's, not the class folder's
        assert edits
        assert {member.label for member in one.members} <= {"ball", "cube"}
        assert {member.edit.kind for member in edits} <= {
            "subject", "object", "background", "adjective", "domain",
        }  # fmt: skip
        for member in edits:
            assert member.extra["p"] in (0.5, 0.8)
            assert set(member.extra["scores"]) >= {"sim_image", "sim_direction", "consistency"}
        with Image.open(io.BytesIO(one.images["0"])) as image:
            assert image.size[0] == image.size[1]
    assert (made / "gallery.html").exists()
    runs = tmp_path / "runs"
    ask = [
        "benchmark=stress", f"benchmark.data={made}", "model=classifier", "device=cpu",
        f"model.name_or_path={shelf / 'classifier'}", f"paths.runs={runs}",
        f"paths.shards={tmp_path / 'worlds'}",
    ]  # fmt: skip
    assert script("evaluate")(ask) == 0
    [file] = runs.rglob("results.jsonl")
    rows = {(row.metric, *row.by.values()) for row in read_results(file)}
    assert ("acc1", "edited") in rows
    items = read_items(file.parent, "lance_stress")
    kinds = set(items.columns["kind"])
    assert {"original", "reconstruction"} < kinds
    assert (file.parent / "stress.html").exists()
