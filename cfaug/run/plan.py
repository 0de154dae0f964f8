"""One run, planned: its settings, its data drawn, its folder named. Nothing is trained here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.errors import UserError
from cfaug.run.at_once import check_parallel
from cfaug.run.compose import Config, build
from cfaug.run.identity import RunFolder, arm_slug, identity
from cfaug.run.launch import Jobs
from cfaug.run.sources import of_the_world, open_source

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture import Mixture
    from cfaug.data.settings import DataSettings
    from cfaug.models.specs import ModelSpec
    from cfaug.train.settings import LoggerSettings, OptimSettings, TrainerSettings
    from cfaug.train.tuning import Tuning


@dataclass(frozen=True)
class TrainJob:
    """One run, ready to start: settings, data plan and folder."""

    config: Config
    seed: int
    data: DataSettings
    model: ModelSpec
    optim: OptimSettings
    trainer: TrainerSettings
    logger: LoggerSettings
    indexes: tuple[Index | None, Index | None]
    mixture: Mixture
    folder: RunFolder
    overwrite: bool
    overrides: tuple[str, ...]
    tuning: Tuning | None = None

    @property
    def data_seed(self) -> int:
        """The seed of the data plan; the papers pair seed 107 with data seed 108."""
        assert self.data.seed is not None
        return self.data.seed

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one pass over the training split."""
        return self.data.steps_per_epoch(len(self.mixture.train))

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.trainer.total_steps(self.steps_per_epoch)


def train(
    *,
    name: str,
    arm: str | None,
    seed: int,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    optim: Mapping[str, Any],
    trainer: Mapping[str, Any],
    logger: Mapping[str, Any],
    paths: Mapping[str, Any],
    dry_run: bool,
    overwrite: bool,
    parallel: int = 1,
    tuning: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
) -> TrainJob:
    """Plan one run: open its indexes, draw its mixture, name its folder. Trains nothing.

    The keyword arguments are the top level of ``conf/train.yaml``, described there.

    Raises:
        UserError: for settings or data that cannot make a run, before anything is written.
    """
    config: Config = {
        "name": name, "arm": arm, "seed": seed, "data": data, "model": model, "optim": optim,
        "trainer": trainer, "logger": logger, "paths": paths, "dry_run": dry_run,
        "overwrite": overwrite, "parallel": parallel,
    }  # fmt: skip
    if tuning is not None:
        config["tuning"] = tuning
    check_parallel(parallel)
    settings = _data_settings(data, seed)
    indexes = _open_indexes(settings, paths)
    mixture = settings.mix(*indexes)
    spec, fitting = build(model), build(trainer)
    if parallel > 1 and fitting.devices > 1:
        raise UserError(
            f"parallel={parallel} with trainer.devices={fitting.devices}: either several runs at "
            "once, or several processes a run"
        )
    content = {
        role: index.hash
        for role, index in zip(("real", "counterfactual"), indexes, strict=True)
        if index is not None
    }
    hashed = {**config, "data": {**data, "seed": settings.seed}}
    what = identity(hashed, {**content, "weights": spec.weights_hash()})
    folder = Path(paths["runs"]) / name / arm_slug(overrides, config) / f"seed={seed}"
    return TrainJob(
        config=hashed, seed=seed, data=settings, model=spec, optim=build(optim),
        trainer=fitting, logger=build(logger), indexes=indexes, mixture=mixture,
        folder=RunFolder(folder, what), overwrite=overwrite, overrides=tuple(overrides),
        tuning=None if tuning is None else build(tuning),
    )  # fmt: skip


def _data_settings(data: Mapping[str, Any], seed: int) -> DataSettings:
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise UserError(f"seed must be a whole number, not {seed!r}")
    settings: DataSettings = build(data)
    return settings if settings.seed is not None else replace(settings, seed=seed + 1)


def prepare_data(jobs: Jobs) -> None:
    """Draw and scan what a sweep reads on every core; planning then finds it on the disk.

    Raises:
        UserError: what drawing or scanning a source raises.
    """
    wanted = {}
    for config, _ in jobs:
        settings = _data_settings(config["data"], config["seed"])
        wanted[settings.seed, settings.world, _sources(settings)] = (settings, config["paths"])
    if len(wanted) == 1:
        return
    # Forked before torch is imported, so a process costs next to nothing.
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
        for _ in pool.map(_prepare, *zip(*wanted.values(), strict=True)):
            pass


def _prepare(settings: DataSettings, paths: Mapping[str, Any]) -> None:
    _open_indexes(settings, paths)


def _sources(data: DataSettings) -> tuple[str | None, str | None]:
    """Return what the ratio asks for: none of the other source is ever read."""
    return (
        data.real if data.cf_ratio < 1 else None,
        data.counterfactual if data.cf_ratio > 0 else None,
    )


def _open_indexes(
    data: DataSettings, paths: Mapping[str, Any]
) -> tuple[Index | None, Index | None]:
    named = _sources(data)
    if all(named) and len({of_the_world(str(name)) for name in named}) == 2:
        raise UserError(
            f"data.real={named[0]} and data.counterfactual={named[1]} mix the embedded world with "
            "your own data: give both, or data.cf_ratio=0 for real data only"
        )
    roles = ("real", "counterfactual")
    for role, name, needed in zip(
        roles, named, (data.cf_ratio < 1, data.cf_ratio > 0), strict=True
    ):
        if needed and name is None:
            raise UserError(f"data.cf_ratio={data.cf_ratio} needs data.{role}=FOLDER")
    real, counterfactual = (
        None
        if name is None
        else open_source(name, data.world, data.seed, Path(paths["shards"]), Path(paths["cache"]))
        for name in named
    )
    return real, counterfactual
