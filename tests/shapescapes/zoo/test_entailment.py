"""The tiny entailer of ShapeScapes-VE: shipped weights, and what rebuilds them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.protocols import Entailer
from cfaug.core.types import ENTAILMENT
from cfaug.models.task_specs import ViltEntailment
from cfaug.shapescapes.zoo.command import read
from cfaug.shapescapes.zoo.entailment import ASKED, EntailmentSettings, draw, evaluate, main

FOLDER = Path(__file__).parents[3] / "cfaug/shapescapes/zoo/weights/entailer-0"
CARD = json.loads((FOLDER / "card.json").read_text())


@pytest.fixture(scope="module")
def shipped():
    return ViltEntailment("zoo:entailer-0").load(Entailer)


def test_the_card_is_that_of_the_weights_and_they_are_small(shipped):
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 1_500_000
    settings = read(
        EntailmentSettings,
        [*(f"{name}={value}" for name, value in CARD["settings"].items()), "out=somewhere"],
    )
    # The command's defaults are what was shipped.
    assert settings == EntailmentSettings(out="somewhere")
    assert CARD["metrics"]["accuracy"] > 0.9
    assert CARD["parameters"] == sum(one.numel() for one in shipped.parameters())


def test_the_shipped_entailer_knows_photos_that_it_has_not_seen(shipped):
    found = evaluate(shipped, draw(7, "held-out", 48))
    assert found["n"] == 48 * ASKED
    # Three standard errors below what the card says.
    assert found["accuracy"] > CARD["metrics"]["accuracy"] - 3 * np.sqrt(0.09 / found["n"])


@pytest.mark.slow
def test_the_shipped_weights_are_what_their_card_says(shipped):
    settings = CARD["settings"]
    found = evaluate(shipped, draw(settings["seed"], "held-out", settings["held_out"]))
    for metric, value in CARD["metrics"].items():
        assert found[metric] == pytest.approx(value, abs=0.005), metric


def test_drawings_are_balanced_the_same_again_and_others_in_another_part():
    one, again, other = draw(1, "train", 12), draw(1, "train", 12), draw(1, "held-out", 12)
    assert (one.pixels == again.pixels).all()
    assert one.texts == again.texts
    assert one.texts != other.texts
    assert np.bincount(one.labels).tolist() == [12] * len(ENTAILMENT)
    assert one.hidden.count("colour") == one.hidden.count("background") == 12


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["vilt start=zoo:vilt-0", "bridgetower start=zoo:bridgetower-itm-0"]
)
def test_the_command_rebuilds_the_same_weights(kind, tmp_path):
    from safetensors.torch import load_file

    few = ["seed=5", "scenes=24", "steps=2", "batch_size=4", "held_out=6", *f"kind={kind}".split()]
    for name in ("a", "b"):
        assert main([*few, f"out={tmp_path / name}"]) == 0
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("a", "b"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert {tensor.dtype for tensor in first.values()} == {torch.float16}


def test_an_unknown_kind_is_refused():
    with pytest.raises(UserError, match="choose from bridgetower, flava, vilt"):
        EntailmentSettings(out="x", kind="bert")
