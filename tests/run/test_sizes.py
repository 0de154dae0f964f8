"""Arms of a sweep that differ in size are said, with the size that all of them can have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from cfaug.data.mixture.mixture import plan_mixture
from cfaug.data.mixture.settings import DataSettings
from cfaug.run.run_folder import RunFolder
from cfaug.run.run_plan import unequal_sizes
from cfaug.train.mixture_task import ContrastiveTask
from cfaug.train.settings import LoggerSettings, OptimSettings, TrainerSettings
from tests.data.making import Columns

REAL, PAIRS = (Columns.of((group, members) for group in range(100)) for members in (1, 2))


def job(ratio: float, size: int | None = None, *, seed: int = 1, steps: int = 5, name: str = "x"):
    data = DataSettings("real", "cf", cf_ratio=ratio, size=size, seed=seed)
    mixture = plan_mixture(REAL, PAIRS, cf_ratio=ratio, size=size, seed=seed)
    folder = RunFolder(Path(f"runs/{name}/cf_ratio={ratio}/seed={seed}"), {})
    task = ContrastiveTask(
        data=data, mixture=mixture, indexes=(None, None), model=None, optim=OptimSettings(),
        trainer=TrainerSettings(max_steps=steps), logger=LoggerSettings(), seed=1, data_seed=seed,
    )  # fmt: skip
    return SimpleNamespace(task=task, folder=folder, settings=SimpleNamespace(name=name))


def test_the_largest_size_that_all_arms_can_have_is_named():
    jobs = [job(ratio, seed=seed) for ratio in (0, 0.5, 0.9) for seed in (1, 2)]
    (said,) = unequal_sizes(jobs)
    assert "from 80 (cf_ratio=0) to 177 (cf_ratio=0.9)" in said
    assert "data.size=100 is the largest" in said
    sized = [job(ratio, 100) for ratio in (0, 0.5, 0.9)]
    assert {one.task.mixture.counts["train"] for one in sized} == {80}
    assert unequal_sizes(sized) == []


def test_arms_that_are_as_asked_for_are_not_complained_of():
    assert unequal_sizes([job(0, 50), job(0.5, 100)]) == []
    assert unequal_sizes([job(0), job(0, seed=2)]) == []
    assert unequal_sizes([job(0, steps=0), job(0.9)]) == []  # not trained
    assert unequal_sizes([job(0), job(0.9, name="other")]) == []
    planned = job(0.9)
    mixture = replace(planned.task.mixture, size=None)
    planned.task = replace(planned.task, mixture=mixture)
    assert unequal_sizes([job(0), planned]) == []
