"""A small world and the scripts pointed at it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

WORLD = [
    "data.world.real_scenes=80", "data.world.counterfactual_pairs=40",
    "data.world.unbiased_scenes=60", "data.world.id_scenes=30", "data.world.ood_pairs=12",
    "data.world.seed=5", "data.batch_size=16",
]  # fmt: skip


class Place:
    """A folder of runs, and the scripts pointed at it."""

    def __init__(self, root: Path, shards: Path, script) -> None:
        self.root = root
        self.paths = [f"paths.runs={root}", f"paths.shards={shards}"]
        self.script = script

    def train(self, *words: str) -> int:
        arm = [] if any(word.startswith("arm=") for word in words) else ["arm=run"]
        return self.script("train")([*WORLD, "trainer.max_steps=3", *self.paths, *arm, *words])

    def evaluate(self, *words: str) -> int:
        return self.script("evaluate")([*self.paths, *words])

    def record(self, arm: str = "run", seed: int = 107, name: str = "main") -> dict:
        return json.loads((self.root / name / arm / f"seed={seed}" / "run.json").read_text())


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    return tmp_path_factory.mktemp("shards")


@pytest.fixture
def place(tmp_path, shards, script):
    return Place(tmp_path / "runs", shards, script)
