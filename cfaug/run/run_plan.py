"""One run, planned: its settings, its data drawn, its folder named. Nothing is trained here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from cfaug.data.planning.mixture import mix
from cfaug.errors import UserError
from cfaug.run.build import build
from cfaug.run.compose import Config
from cfaug.run.extending import longer, without_length
from cfaug.run.identity import (
    RunFolder,
    arm_folder,
    identity,
    older_content,
    what_follows_the_seed,
)
from cfaug.run.image_cache import check_image_cache
from cfaug.run.launch import Jobs
from cfaug.run.names import experiment_name, runs_folder
from cfaug.run.parallel import check_on_error, check_parallel
from cfaug.run.preset import Preset, notes, refuse_ignored_epochs
from cfaug.run.readings import check_sources, describe_sources
from cfaug.run.setting_types import Node, RunPaths
from cfaug.run.sources import (
    Opened,
    check_negatives,
    needed_sources,
    open_data,
    open_source,
    permitted_roots,
    report_held_out,
    report_join,
)
from cfaug.run.threads import use_threads

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.planning.records import Mixture
    from cfaug.data.planning.settings import DataSettings
    from cfaug.models.specs import ModelSpec
    from cfaug.train.settings import LoggerSettings, LossSettings, OptimSettings, TrainerSettings
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
    loss: LossSettings | None = None
    notes: tuple[str, ...] = ()
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_seed: Mapping[str, str] = field(default_factory=dict)

    @property
    def data_seed(self) -> int:
        """The seed of the data plan; the papers pair seed 107 with data seed 108."""
        assert self.data.seed is not None
        return self.data.seed

    @property
    def cf_ratio(self) -> float:
        """The share of counterfactuals in train: as asked, or as the plan has it."""
        if self.data.cf_ratio is not None:
            return self.data.cf_ratio
        return round(self.mixture.counts["counterfactual"] / self.mixture.counts["train"], 4)

    @property
    def batches_per_epoch(self) -> int:
        """Batches in one pass over the training split."""
        return self.data.steps_per_epoch(len(self.mixture.train))

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.trainer.total_steps(self.batches_per_epoch)


def train(
    *,
    name: str,
    arm: str | None,
    seed: int,
    data: Node,
    model: Node,
    optim: Node,
    trainer: Node,
    logger: Node,
    paths: RunPaths,
    dry_run: bool,
    overwrite: bool,
    part: int = 0,
    parts: int = 1,
    parallel: int = 1,
    on_error: Literal["continue", "stop"] = "continue",
    share_image_cache: bool = False,
    image_cache_mib: int = 4096,
    extend: bool = False,
    threads: int | None = None,
    tuning: Node | None = None,
    loss: Node | None = None,
    preset: Preset | None = None,
    by_seed: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> TrainJob:
    """Plan one run: open its indexes, draw its mixture, name its folder. Trains nothing.

    The keyword arguments are the top level of ``conf/train.yaml``, described there. The model's
    file brings ``preset``, which has filled in the others and is no part of the run; composition
    brings ``by_seed``, the settings that follow the seed, as they are written.

    Raises:
        UserError: for settings or data that cannot make a run, before anything is written.
    """
    name, root = experiment_name(name), runs_folder(paths["runs"])
    config: Config = {
        "name": name, "arm": arm, "seed": seed, "data": data, "model": model, "optim": optim,
        "trainer": trainer, "logger": logger, "paths": paths, "dry_run": dry_run,
        "overwrite": overwrite, "part": part, "parts": parts, "parallel": parallel,
        "on_error": on_error, "share_image_cache": share_image_cache,
        "image_cache_mib": image_cache_mib, "extend": extend, "threads": threads,
    }  # fmt: skip
    options = {"tuning": tuning, "loss": loss}
    config |= {name: node for name, node in options.items() if node is not None}
    arm_of = arm_folder(root / name, without_length(overrides) if extend else overrides, config)
    use_threads(threads)
    check_parallel(parallel)
    check_on_error(on_error)
    check_image_cache(share_image_cache, image_cache_mib)
    if extend and overwrite:
        raise UserError("extend=true goes on from a run that overwrite=true removes: choose one")
    refuse_ignored_epochs(overrides, trainer)
    spec, fitting = build(model), build(trainer)
    spec.check_trainable()
    settings = _data_settings(data, seed)
    opened = _opened(settings, paths)
    check_sources(settings, opened)
    asked = None if loss is None else build(loss)
    check_negatives(opened, asked)
    mixture = counted(mix(settings, opened), asked)
    if parallel > 1 and fitting.devices > 1:
        raise UserError(
            f"parallel={parallel} with trainer.devices={fitting.devices}: either several runs at "
            "once, or several processes a run"
        )
    if mixture.join is not None:
        report_join(mixture.join, opened, Path(paths["cache"]))
    if mixture.held_out is not None:
        report_held_out(mixture.held_out, settings)
    # What was left to the settings is part of the run as well.
    filled_in = {
        "seed": settings.seed, "cf_ratio": settings.cf_ratio, "holdout": settings.holdout,
    }  # fmt: skip
    hashed = {**config, "data": {**data, **filled_in}}
    # A plan counts by its name, as it did before it was an object.
    plan = None if settings.plan is None else settings.plan.name
    what = identity(
        {**hashed, "data": {**hashed["data"], "plan": plan}},
        {**opened.content, "weights": spec.weights_hash()},
    )
    folder = RunFolder(arm_of / f"seed={seed}", what, older_content(opened.earlier), arm=arm)
    job = TrainJob(
        config=hashed, seed=seed, data=settings, model=spec, optim=build(optim),
        trainer=fitting, logger=build(logger), indexes=_indexes(mixture), mixture=mixture,
        folder=folder,
        overwrite=overwrite, overrides=tuple(overrides),
        tuning=None if tuning is None else build(tuning),
        loss=asked,
        notes=tuple(notes(preset or {}, optim, tuning)),
        sources=describe_sources(settings, opened),
        by_seed=what_follows_the_seed(by_seed or {}, data),
    )  # fmt: skip
    return replace(job, folder=longer(folder, job.steps)) if extend else job


def counted(mixture: Mixture, loss: LossSettings | None) -> Mixture:
    """Count the captions without an image that are trained against, where there are any."""
    if loss is None or loss.negative_captions != "used":
        return mixture
    indexes = _indexes(mixture)
    found = sum(len(cast("Index", indexes[s]).negatives(row)) for s, row in mixture.train.tolist())
    return replace(mixture, counts={**mixture.counts, "negatives": found})


def _indexes(mixture: Mixture) -> tuple[Index | None, Index | None]:
    """Return the indexes that the mixture's rows are of: a control's are not the plan's."""
    real, counterfactual = mixture.sources
    return cast("Index | None", real), cast("Index | None", counterfactual)


def _data_settings(data: Mapping[str, Any], seed: int) -> DataSettings:
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise UserError(f"seed must be a whole number, not {seed!r}")
    settings: DataSettings = build(data)
    return settings.with_seed(seed)


def prepare_data(jobs: Jobs) -> None:
    """Draw and scan what a sweep reads on every core; planning then finds it on the disk.

    Raises:
        UserError: what drawing or scanning a source raises.
    """
    wanted = {}
    for config, _ in jobs:
        settings = _data_settings(config["data"], config["seed"])
        names = (*needed_sources(settings), settings.control_source, settings.human_labels)
        wanted[settings.seed, settings.world, names] = (settings, config["paths"])
    if len(wanted) == 1:
        return
    # Forked before torch is imported, so a process costs next to nothing.
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
        for _ in pool.map(_prepare, *zip(*wanted.values(), strict=True)):
            pass


def _prepare(settings: DataSettings, paths: Mapping[str, Any]) -> None:
    _opened(settings, paths)


def _opened(data: DataSettings, paths: Mapping[str, Any]) -> Opened:
    shards, cache, roots = Path(paths["shards"]), Path(paths["cache"]), permitted_roots(paths)
    return open_data(
        data, lambda name: open_source(name, data.world, data.seed, shards, cache, roots), shards
    )
