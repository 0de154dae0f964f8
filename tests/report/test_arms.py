"""An arm is what its runs' records say, whatever its folder is called."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cfaug.report.arms import PAIRS_IN_BATCH, RATIO, Arm, names_an_arm, read_arms
from cfaug.report.records import Run, read_run


def run(arm="x", seed=1, folder=Path("nowhere"), **record) -> Run:
    return Run(folder, "e", arm, {"state": "done", "seed": seed, **record})


def test_an_arm_is_read_from_its_records():
    identity = {
        "seed": 1, "data.seed": 2, "data.world.seed": 3, "content.real": "h", "optim.lr": 0.1,
        "data.cf_ratio": 0.6, "data.pairs_in_batch": True, "data.control": "real",
    }  # fmt: skip
    sources = {"counterfactual": {"source": "pairs"}}
    runs = [
        run("cf_ratio=0.1", seed, steps=5, cf_ratio=0.6, counts={"train": 10 + seed},
            identity=identity, sources=sources)
        for seed in (1, 2)
    ]  # fmt: skip
    [arm] = read_arms(runs).values()
    assert arm == Arm(
        "cf_ratio=0.1", True, 0.6, "pairs", "real", True,
        {"optim.lr": 0.1, "data.cf_ratio": 0.6, "data.pairs_in_batch": True,
         "data.control": "real"},
        frozenset({11, 12}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "trained"), [([0, 0], False), ([0, 150], True), ([None], True), ([], True)]
)
def test_an_arm_is_untrained_if_no_run_took_a_step(steps, trained):
    runs = [run(seed=i, steps=n) for i, n in enumerate(steps)] or [run()]
    assert read_arms(runs)["x"].trained is trained


def test_a_renamed_folder_is_the_same_arm(tmp_path):
    record = {
        "state": "done", "seed": 1, "steps": 3, "cf_ratio": 0.3, "identity": {"data.cf_ratio": 0.3},
    }  # fmt: skip
    folder = tmp_path / "e/cf_ratio=0.3/seed=1"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(record))
    shutil.copytree(folder.parent, tmp_path / "e/cf_ratio=0.9")
    one, other = (
        read_arms([read_run(tmp_path / "e" / name / "seed=1")])[name]
        for name in ("cf_ratio=0.3", "cf_ratio=0.9")
    )
    assert replace(other, name=one.name) == one
    assert other.cf_ratio == 0.3


def test_arms_differ_in_one_setting():
    base = Arm("a", source="p", settings={RATIO: 0.3, "optim.lr": 1})
    assert base.differs_only_in(RATIO, replace(base, settings={RATIO: 0.6, "optim.lr": 1}))
    assert base.differs_only_in(RATIO, replace(base, source="", settings={"optim.lr": 1}))
    assert not base.differs_only_in(RATIO, replace(base, source="q"))
    assert not base.differs_only_in(RATIO, replace(base, settings={RATIO: 0.6, "optim.lr": 2}))
    assert not base.differs_only_in(PAIRS_IN_BATCH, replace(base, settings={"optim.lr": 1}))


def test_seeds_and_hashes_name_no_arm():
    assert [names_an_arm(key) for key in ("seed", "data.seed", "data.world.seed")] == [False] * 3
    assert not names_an_arm("content.real")
    assert names_an_arm("data.world.bias")
