"""The judge: shipped weights that read the world, and refusals."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.shapescapes.settings import DOMAINS, FACTORS
from cfaug.shapescapes.zoo.command import read
from cfaug.shapescapes.zoo.factor_classifier import (
    DOMAIN_WEIGHTS,
    WEIGHTS,
    JudgeSettings,
    evaluate,
    load_judge,
    main,
)
from cfaug.shapescapes.zoo.scenes import draw
from tests.shapescapes.zoo.cards import card


def test_the_shipped_judges_read_scenes_they_have_not_seen() -> None:
    found = evaluate(load_judge(), draw(1, "test-judge", 150))
    assert found["subject_acc1"] >= 0.97
    assert min(found["colour_acc1"], found["background_acc1"]) >= 0.99
    told = card("judge-domains")["metrics"]
    found = evaluate(load_judge(DOMAIN_WEIGHTS), draw(1, "test-judge", 100, domains=DOMAINS))
    for name in FACTORS:
        assert found[f"{name}_acc1"] >= told[f"{name}_acc1"] - 0.05, name


def test_probabilities_and_factors_agree_row_by_row() -> None:
    pixels = draw(2, "test-judge", 5).pixels
    judge = load_judge()
    shares = judge.probabilities(pixels)
    assert {kind: p.shape for kind, p in shares.items()} == {
        "subject": (5, 10), "colour": (5, 8), "background": (5, 8),
    }  # fmt: skip
    for p in shares.values():
        assert np.allclose(p.sum(axis=1), 1, atol=1e-5)
    alone = [judge.factors(pixels[i : i + 1])[0] for i in range(5)]
    assert alone == judge.factors(pixels)


@pytest.mark.parametrize(
    "pixels", [np.zeros((1, 3, 32, 32), np.uint8), np.zeros((1, 3, 64, 64), np.float32)]
)
def test_other_pixels_are_refused(pixels: np.ndarray) -> None:
    with pytest.raises(UserError, match="uint8 pixels"):
        load_judge().factors(pixels)


def test_a_folder_without_a_judge_of_this_world_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"python -m cfaug zoo factor_classifier"):
        load_judge(tmp_path)
    shutil.copytree(WEIGHTS, tmp_path / "other")
    (tmp_path / "other" / "config.json").write_text('{"widths": [1], "factors": {}}')
    with pytest.raises(UserError, match="another world"):
        load_judge(tmp_path / "other")


@pytest.mark.slow
def test_a_judge_that_goes_on_from_another_begins_with_its_weights(tmp_path: Path) -> None:
    arguments = ["scenes=20", "steps=0", "batch_size=4", "held_out=40", "processes=1"]
    arguments += [f"domains={','.join(DOMAINS)}", "start=zoo:judge", f"out={tmp_path / 'a'}"]
    assert main(arguments) == 0
    judge, scenes = load_judge(tmp_path / "a"), draw(3, "test-judge", 30)
    assert list(judge.choices) == list(FACTORS)
    first, second = judge.probabilities(scenes.pixels), load_judge().probabilities(scenes.pixels)
    for kind, shares in second.items():
        assert np.allclose(first[kind], shares, atol=1e-4)


def test_an_unknown_domain_is_refused() -> None:
    with pytest.raises(UserError, match="choose from photo, sketch"):
        read(JudgeSettings, ["out=x", "domains=photo,statue"])
