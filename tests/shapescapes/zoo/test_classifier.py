"""The classifiers with a planted shortcut: shipped weights lean on it alone."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.weights import resolve
from cfaug.shapescapes.drawing import render
from cfaug.shapescapes.zoo.classifier import ClassifierSettings, draw_scenes, edits, show
from cfaug.shapescapes.zoo.command import read
from cfaug.shapescapes.zoo.model import TRANSFORM
from tests.shapescapes.zoo.cards import card

PLANTED = {"background": "background", "colour": "colour", "style": "domain", "none": None}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shortcut", PLANTED)
def test_each_leans_on_its_planted_factor_alone(shortcut: str, seed: int) -> None:
    name = f"classifier-{shortcut}-{seed}"
    metrics = card(name)["metrics"]
    for kind in ("colour", "background", "domain"):
        if kind == PLANTED[shortcut]:
            assert metrics[f"drop_{kind}"] > 0.4
        else:
            assert abs(metrics[f"drop_{kind}"]) < 0.12
    assert metrics["iid_acc1"] > 0.6
    assert card(name)["settings"]["shortcut"] == shortcut
    assert (resolve(f"zoo:{name}") / "model.safetensors").stat().st_size <= 150_000


def test_training_and_evaluation_scenes_differ_and_edits_change_one_factor() -> None:
    world = ClassifierSettings(out="x", shortcut="colour").scenery
    parts = ("classifier-0", "classifier-1", "classifier-held-out")
    train, _, held_out = every = [draw_scenes(world, part, 40) for part in parts]
    assert len({scene.seed for scenes in every for scene in scenes}) == 120
    for kind in world.values:
        for before, after in zip(held_out, edits(held_out, world, kind), strict=True):
            assert before.seed == after.seed
            differing = [k for k, v in vars(before.factors).items() if v != vars(after.factors)[k]]
            assert differing == [kind]
    pixels = show(train[:3], world)
    assert pixels.shape == (3, 3, 32, 32)
    image = render(train[0], 64, world.settings.look()).image()
    assert np.array_equal(pixels[0], TRANSFORM(image))


def test_an_unknown_shortcut_is_refused() -> None:
    settings = read(ClassifierSettings, ["out=x", "shortcut=texture"])
    with pytest.raises(UserError, match="choose from background"):
        _ = settings.scenery
