"""The classifiers with a planted shortcut: shipped weights lean on it, a command rebuilds them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.weights import resolve
from cfaug.models.task_specs import ImageClassification
from cfaug.shapescapes.drawing import render
from cfaug.shapescapes.settings import SUBJECTS
from cfaug.shapescapes.zoo.classifier import (
    TRANSFORM,
    ClassifierSettings,
    draw_scenes,
    edits,
    evaluate,
    label,
    main,
    show,
)
from cfaug.shapescapes.zoo.command import read

PLANTED = {"background": "background", "colour": "colour", "style": "domain", "none": None}
NAMES = [f"classifier-{shortcut}-{seed}" for shortcut in PLANTED for seed in range(3)]


def card(name: str) -> dict:
    return json.loads((resolve(f"zoo:{name}") / "card.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_each_leans_on_its_planted_factor_alone(name: str) -> None:
    metrics, shortcut = card(name)["metrics"], name.split("-")[1]
    drops = {kind: metrics[f"drop_{kind}"] for kind in ("colour", "background", "domain")}
    for kind, drop in drops.items():
        if kind == PLANTED[shortcut]:
            assert drop > 0.4
        else:
            assert abs(drop) < 0.12
    assert metrics["iid_acc1"] > 0.6
    folder = resolve(f"zoo:{name}")
    assert card(name)["settings"]["shortcut"] == shortcut
    assert (folder / "model.safetensors").stat().st_size <= 150_000


@pytest.mark.parametrize("shortcut", sorted(PLANTED))
def test_a_card_tells_what_the_shipped_weights_do_on_other_scenes(shortcut: str) -> None:
    told = card(f"classifier-{shortcut}-0")
    settings = ClassifierSettings(out="x", **told["settings"])
    model = ImageClassification(f"zoo:classifier-{shortcut}-0").load()
    assert model.classes == SUBJECTS
    world = settings.scenery
    scenes = draw_scenes(world, "test-classifier", 60)
    kind = PLANTED[shortcut] or "background"
    edited = list(edits(scenes, world, kind))
    images = [render(one, 64, world.settings.look()).image() for one in (*scenes, *edited)]
    pixels = torch.from_numpy(np.stack([model.transform(image) for image in images]))
    with torch.inference_mode():
        found = model.classify(pixels).argmax(1).numpy()
    right = found.reshape(2, -1) == label(scenes)
    before, after = (float(one.mean()) for one in right)
    assert before == pytest.approx(told["metrics"]["iid_acc1"], abs=0.2)
    assert after == pytest.approx(told["metrics"][f"edited_{kind}_acc1"], abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_card_is_recomputed_from_its_weights(name: str) -> None:
    from transformers import ConvNextForImageClassification

    told = card(name)
    settings = ClassifierSettings(out="x", **told["settings"])
    folder = resolve(f"zoo:{name}")
    model = ConvNextForImageClassification.from_pretrained(folder, dtype=torch.float32).eval()
    found = evaluate(model, settings.scenery, settings.held_out)
    for metric, value in told["metrics"].items():
        assert found[metric] == pytest.approx(value, abs=0.011), metric


def test_training_and_evaluation_scenes_differ_and_edits_change_one_factor() -> None:
    settings = ClassifierSettings(out="x", shortcut="colour")
    world = settings.scenery
    train, other = (draw_scenes(world, f"classifier-{seed}", 40) for seed in (0, 1))
    held_out = draw_scenes(world, "classifier-held-out", 40)
    seeds = [{scene.seed for scene in scenes} for scenes in (train, other, held_out)]
    assert len(set.union(*seeds)) == 120
    for kind in world.values:
        for before, after in zip(held_out, edits(held_out, world, kind), strict=True):
            assert before.seed == after.seed
            differing = [k for k, v in vars(before.factors).items() if v != vars(after.factors)[k]]
            assert differing == [kind]
    pixels = show(train[:3], world)
    assert pixels.shape == (3, 3, 32, 32)
    image = render(train[0], 64, world.settings.look()).image()
    assert np.array_equal(pixels[0], TRANSFORM(image))


@pytest.mark.slow
def test_the_command_rebuilds_the_same_bytes(tmp_path: Path) -> None:
    arguments = ["shortcut=style", "scenes=40", "steps=3", "batch_size=8", "held_out=10", "seed=4"]
    for name in ("a", "b"):
        assert main([*arguments, f"out={tmp_path / name}"]) == 0
    files = [tmp_path / name / "model.safetensors" for name in ("a", "b")]
    assert files[0].read_bytes() == files[1].read_bytes()
    model = ImageClassification(str(tmp_path / "a")).load()
    assert model.transform == TRANSFORM
    told = json.loads((tmp_path / "a" / "card.json").read_text())
    assert "shortcut=style" in told["command"]
    assert told["metrics"]["n"] == 10


def test_an_unknown_shortcut_is_refused() -> None:
    settings = read(ClassifierSettings, ["out=x", "shortcut=texture"])
    with pytest.raises(UserError, match="choose from background"):
        _ = settings.scenery
