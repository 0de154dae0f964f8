"""The judge: shipped weights that read the world, and a command that rebuilds them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.shapescapes.oracle import FACTORS
from cfaug.shapescapes.settings import DOMAINS
from cfaug.shapescapes.zoo.command import read
from cfaug.shapescapes.zoo.diffusion.data import draw
from cfaug.shapescapes.zoo.factor_classifier import (
    DOMAIN_WEIGHTS,
    WEIGHTS,
    JudgeSettings,
    evaluate,
    load_judge,
    main,
)


def test_the_shipped_judge_reads_scenes_it_has_not_seen() -> None:
    card = json.loads((WEIGHTS / "card.json").read_text())
    assert card["metrics"]["all_acc1"] >= 0.99
    found = evaluate(load_judge(), draw(1, "test-judge", 150))
    assert found["subject_acc1"] >= 0.97
    assert found["colour_acc1"] >= 0.99
    assert found["background_acc1"] >= 0.99
    assert sum(file.stat().st_size for file in WEIGHTS.iterdir()) < 600_000


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


def test_the_command_rebuilds_the_same_judge(tmp_path: Path) -> None:
    arguments = ["seed=5", "scenes=20", "steps=2", "batch_size=4", "held_out=4", "processes=1"]
    for name in ("a", "b"):
        assert main([*arguments, f"out={tmp_path / name}"]) == 0
    first, second = ((tmp_path / name / "judge.safetensors").read_bytes() for name in ("a", "b"))
    assert first == second
    with pytest.raises(UserError, match="exists already"):
        main([*arguments, f"out={tmp_path / 'a'}"])
    assert "seed=5 " in json.loads((tmp_path / "a" / "card.json").read_text())["command"]


def test_a_folder_without_a_judge_of_this_world_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"python -m cfaug zoo factor_classifier"):
        load_judge(tmp_path)
    shutil.copytree(WEIGHTS, tmp_path / "other")
    (tmp_path / "other" / "config.json").write_text('{"widths": [1], "factors": {}}')
    with pytest.raises(UserError, match="another world"):
        load_judge(tmp_path / "other")


def test_settings_are_read_and_mistakes_named() -> None:
    assert read(JudgeSettings, ["out=x", "seed=3", "vae=y"]) == JudgeSettings("x", seed=3, vae="y")
    with pytest.raises(UserError, match="steps"):
        read(JudgeSettings, ["out=x", "step=3"])
    with pytest.raises(UserError, match="takes a number"):
        read(JudgeSettings, ["out=x", "steps=many"])
    with pytest.raises(UserError, match="out=FOLDER"):
        read(JudgeSettings, ["seed=1"])


def test_the_shipped_judge_of_domains_reads_scenes_it_has_not_seen() -> None:
    card = json.loads((DOMAIN_WEIGHTS / "card.json").read_text())
    assert card["metrics"]["domain_acc1"] >= 0.99
    found = evaluate(load_judge(DOMAIN_WEIGHTS), draw(1, "test-judge", 100, domains=DOMAINS))
    for name in FACTORS:
        assert found[f"{name}_acc1"] >= card["metrics"][f"{name}_acc1"] - 0.05, name


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
