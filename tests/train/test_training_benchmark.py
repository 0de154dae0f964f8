"""``benchmarks/training.py`` at smallest size: every contender trains the same epoch."""

from __future__ import annotations

import argparse
import json
import math
import os

import pytest

from benchmarks import rivals, training
from tests import children


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("benchmark")
    training.draw(place / "data", 6)
    shape = {"width": 64, "layers": 1, "patch": 112, "dim": 8}
    training.write_models(place, shape)
    return place


def race(folder, who, overrides):
    os.chdir(folder / "data")
    args = argparse.Namespace(batch=3, workers=0, lr=1e-4, device="cpu", overrides=overrides)
    (folder / f"{who}.json").write_text(json.dumps(rivals.RIVALS[who](folder, args)))


@pytest.mark.slow
@pytest.mark.parametrize("who", ["ours", "transformers", "open_clip"])
def test_an_epoch_is_trained_and_timed(folder, who):
    overrides = []
    if who == "ours":
        args = argparse.Namespace(batch=3, workers=0, lr=1e-4, device="cpu")
        command = training.ours("open_clip", folder, args)
        overrides = command[command.index("--overrides") + 1 :]
    child = children.start(race, folder, who, overrides)
    child.join()
    assert child.exitcode == 0
    found = json.loads((folder / f"{who}.json").read_text())
    assert found["steps"] == 2
    assert 0 < found["epoch"] < 600
    assert 0 < found["processor"] < 600


def test_ratios_are_of_one_round():
    """Twice, twice and twice as slow: 2, whatever the rounds had in common."""
    said = training.ratio([2.0, 20.0, 8.0], [1.0, 10.0, 4.0])
    assert said == "2.00 (equal in every round)"
    low, high = (float(x) for x in training.ratio([2.0, 3.0], [1.0, 1.0])[6:-1].split(" to "))
    assert low < math.sqrt(6) < high
