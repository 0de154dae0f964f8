"""The tiny entailer of ShapeScapes-VE knows photos that it has not seen."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.protocols import Entailer
from cfaug.core.types import ENTAILMENT
from cfaug.core.weights import resolve
from cfaug.models.task_specs import ViltEntailment
from cfaug.shapescapes.zoo.entailment import ASKED, EntailmentSettings, draw, evaluate
from tests.shapescapes.zoo.cards import card


def test_the_shipped_entailer_is_what_its_card_says() -> None:
    told = card("entailer-0")
    # The command's defaults are what was shipped.
    assert EntailmentSettings(out="x", **told["settings"]) == EntailmentSettings(out="x")
    shipped = ViltEntailment("zoo:entailer-0").load(Entailer)
    assert told["parameters"] == sum(one.numel() for one in shipped.parameters())
    found = evaluate(resolve("zoo:entailer-0"), EntailmentSettings(out="x", seed=7, held_out=48))
    assert found["n"] == 48 * ASKED
    # Three standard errors below what the card says.
    assert found["accuracy"] > told["metrics"]["accuracy"] - 3 * np.sqrt(0.09 / found["n"])


def test_drawings_are_balanced_the_same_again_and_others_in_another_part() -> None:
    one, again, other = draw(1, "train", 12), draw(1, "train", 12), draw(1, "held-out", 12)
    assert (one.pixels == again.pixels).all()
    assert one.texts == again.texts
    assert one.texts != other.texts
    assert np.bincount(one.labels).tolist() == [12] * len(ENTAILMENT)
    assert one.hidden.count("colour") == one.hidden.count("background") == 12


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UserError, match="choose from bridgetower, flava, vilt"):
        EntailmentSettings(out="x", kind="bert")
