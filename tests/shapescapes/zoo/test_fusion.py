"""Tiny FLAVA, BridgeTower, ViLT: shipped weights that know the drawings, and what rebuilds them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from cfaug.core.errors import UserError
from cfaug.core.protocols import Matcher
from cfaug.planning.build import build
from cfaug.shapescapes.zoo.clip import draw_unbiased, jitter, truth
from cfaug.shapescapes.zoo.command import read
from cfaug.shapescapes.zoo.fusion import KINDS, FusionSettings, evaluate, main

WEIGHTS = Path(__file__).parents[3] / "cfaug" / "shapescapes" / "zoo" / "weights"
CONF = Path(__file__).parents[3] / "conf"
SHIPPED = {kind: WEIGHTS / f"{kind}-0" for kind in KINDS}
TINY = ["seed=5", "scenes=40", "steps=2", "batch_size=8", "held_out=12"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_shipped_weights_are_what_their_card_says(kind: str) -> None:
    folder = SHIPPED[kind]
    assert sum(file.stat().st_size for file in folder.iterdir()) < 2_000_000
    card = json.loads((folder / "card.json").read_text())
    settings = card["settings"]
    assert card["command"].startswith("python -m cfaug zoo fusion out=FOLDER")
    assert settings["kind"] == kind
    found = evaluate(kind, folder, settings["seed"], settings["held_out"])
    for metric, value in card["metrics"].items():
        assert found[metric] == pytest.approx(value, abs=0.005), metric


@pytest.mark.parametrize("kind", ["flava", "bridgetower"])
def test_towers_know_shape_colour_and_place(kind: str) -> None:
    metrics = json.loads((SHIPPED[kind] / "card.json").read_text())["metrics"]
    assert metrics["subject_acc1"] > 0.6
    assert metrics["colour_acc1"] > 0.8
    assert metrics["background_acc1"] > 0.8


@pytest.mark.parametrize("kind", ["vilt", "bridgetower-itm"])
def test_matchers_tell_true_captions_from_false(kind: str) -> None:
    metrics = json.loads((SHIPPED[kind] / "card.json").read_text())["metrics"]
    assert metrics["auc"] > 0.85
    assert min(metrics[f"{factor}_auc"] for factor in ("subject", "colour", "background")) > 0.6


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_command_rebuilds_the_same_weights(kind: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    start = {"vilt": SHIPPED["flava"], "bridgetower-itm": SHIPPED["bridgetower"]}.get(kind)
    arguments = [*TINY, f"kind={kind}", *([] if start is None else [f"start={start}"])]
    for name in ("a", "b"):
        assert main([*arguments, f"out={tmp_path / name}"]) == 0
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("a", "b"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert {tensor.dtype for tensor in first.values()} == {torch.float16}


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("tiny_clip", "cosine x scale"),
        ("tiny_flava", "cosine x scale"),
        ("tiny_bridgetower", "cosine x scale"),
        ("tiny_bridgetower_itm", "probability"),
        ("tiny_vilt", "logit"),
    ],
)
def test_the_tiny_configurations_score_a_drawing_above_a_lie(file: str, kind: str) -> None:
    node = yaml.safe_load((CONF / "model" / f"{file}.yaml").read_text())
    spec = build({key: value for key, value in node.items() if key != "defaults"})
    matcher = spec.load(Matcher)
    assert matcher.kind == kind
    drawings = draw_unbiased(9, "test", 40)
    pixels = torch.from_numpy(drawings.pixels)
    lies = drawings.texts[1:] + drawings.texts[:1]
    with torch.inference_mode():
        true, false = (matcher.match(pixels, texts) for texts in (drawings.texts, lies))
    assert (true > false).float().mean() > 0.75


def test_vilt_starts_from_flavas_image_tower() -> None:
    from cfaug.models.specs import HFClip
    from cfaug.shapescapes.zoo.fusion import build_vilt

    flava = HFClip("zoo:flava-0").load().model
    vilt = build_vilt(flava).vilt
    theirs = dict(flava.image_model.encoder.named_parameters())
    ours = dict(vilt.encoder.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["kind=blip"], "flava, bridgetower"),
        (["kind=vilt"], "start=FOLDER"),
        (["kind=flava", "start=zoo:flava-0"], "leave out start"),
        ([], "out=FOLDER"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments: list[str], words: str) -> None:
    out = ["out=x"] if arguments else []
    with pytest.raises(UserError, match=words):
        read(FusionSettings, [*arguments, *out])


def test_a_caption_is_true_of_what_it_names() -> None:
    drawings = draw_unbiased(3, "test", 30)
    found = truth(drawings.labels(), drawings.stated())
    for i, factors in enumerate(drawings.factors):
        for j, (other, wording) in enumerate(zip(drawings.factors, drawings.wordings, strict=True)):
            expected = factors.subject == other.subject
            expected &= not wording.colour or factors.colour == other.colour
            expected &= not wording.background or factors.background == other.background
            assert found[i, j] == expected
    assert found.diagonal().all()


def test_jitter_moves_and_mirrors_and_nothing_else() -> None:
    pixels = np.arange(6 * 3 * 8 * 8, dtype=np.uint8).reshape(6, 3, 8, 8)
    moved = jitter(pixels, np.random.default_rng(1), reach=1)
    assert moved.shape == pixels.shape
    padded = np.pad(pixels, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
    windows = [padded[:, :, a : a + 8, b : b + 8] for a in range(3) for b in range(3)]
    for i in range(6):
        choices = [w[i] for w in windows] + [w[i][..., ::-1] for w in windows]
        assert any(np.array_equal(moved[i], choice) for choice in choices)
