"""One run, planned: its settings, its data drawn, its folder named. Nothing is trained here."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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
from cfaug.run.launch import Jobs
from cfaug.run.names import experiment_name, runs_folder
from cfaug.run.preset import notes, refuse_ignored_epochs
from cfaug.run.readings import check_sources, describe_sources
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
from cfaug.run.train_settings import TrainSettings
from cfaug.train.job import FitSettings

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.planning.records import Mixture
    from cfaug.data.planning.settings import DataSettings
    from cfaug.models.specs import ModelSpec
    from cfaug.train.settings import LossSettings, TrainerSettings


@dataclass(frozen=True, kw_only=True)
class TrainJob(FitSettings):
    """One run, ready to start: settings, data plan and folder.

    Attributes:
        settings: as they were asked for.
        config: the same, with what was left to the data's settings filled in.
        folder: of the run, with its identity.
        notes: what should be known before it starts, a sentence each.
        sources: what was recognised of every source, by its role.
        by_seed: the settings that follow the seed, as they are written.
    """

    settings: TrainSettings
    config: Config
    folder: RunFolder
    notes: tuple[str, ...] = ()
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_seed: Mapping[str, str] = field(default_factory=dict)

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


def plan_run(settings: TrainSettings) -> TrainJob:
    """Plan one run: open its indexes, draw its mixture, name its folder. Trains nothing.

    Raises:
        UserError: for settings or data that cannot make a run, before anything is written.
    """
    root = runs_folder(settings.paths["runs"]) / experiment_name(settings.name)
    words = settings.overrides
    arm = arm_folder(root, without_length(words) if settings.extend else words, settings.config())
    use_threads(settings.threads)
    settings.check()
    refuse_ignored_epochs(words, settings.trainer)
    model: ModelSpec = build(settings.model)
    trainer: TrainerSettings = build(settings.trainer)
    model.check_trainable()
    data = _data_settings(settings.data, settings.seed)
    opened = _open(data, settings.paths)
    check_sources(data, opened)
    loss = _build_optional(settings.loss)
    check_negatives(opened, loss)
    mixture = count_negatives(mix(data, opened), loss)
    if settings.parallel > 1 and trainer.devices > 1:
        raise UserError(
            f"parallel={settings.parallel} with trainer.devices={trainer.devices}: either several "
            "runs at once, or several processes a run"
        )
    _report(mixture, opened, data, Path(settings.paths["cache"]))
    config = _fill_in(settings, data)
    # A plan counts by its name, as it did before it was an object.
    plan = None if data.plan is None else data.plan.name
    hashed = {**config, "data": {**config["data"], "plan": plan}}
    what = identity(hashed, {**opened.content, "weights": model.weights_hash()})
    older = older_content(opened.earlier)
    assert data.seed is not None
    job = TrainJob(
        settings=settings, config=config, seed=settings.seed, data_seed=data.seed, data=data,
        model=model, optim=build(settings.optim), trainer=trainer, logger=build(settings.logger),
        tuning=_build_optional(settings.tuning), loss=loss,
        mixture=mixture, indexes=_indexes(mixture),
        folder=RunFolder(arm / f"seed={settings.seed}", what, older, arm=settings.arm),
        notes=tuple(notes(settings.preset or {}, settings.optim, settings.tuning)),
        sources=describe_sources(data, opened),
        by_seed=what_follows_the_seed(settings.by_seed or {}, settings.data),
    )  # fmt: skip
    return replace(job, folder=longer(job.folder, job.steps)) if settings.extend else job


def _build_optional(node: Mapping[str, Any] | None) -> Any:
    return None if node is None else build(node)


def _fill_in(settings: TrainSettings, data: DataSettings) -> Config:
    """Return a run's settings with what was left to the data's: that is part of the run as well."""
    found = {"seed": data.seed, "cf_ratio": data.cf_ratio, "holdout": data.holdout}
    config = settings.config()
    return {**config, "data": {**config["data"], **found}}


def _report(mixture: Mixture, opened: Opened, data: DataSettings, cache: Path) -> None:
    """Say what was joined and what is held out."""
    if mixture.join is not None:
        report_join(mixture.join, opened, cache)
    if mixture.held_out is not None:
        report_held_out(mixture.held_out, data)


def count_negatives(mixture: Mixture, loss: LossSettings | None) -> Mixture:
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
    _open(settings, paths)


def _open(data: DataSettings, paths: Mapping[str, Any]) -> Opened:
    shards, cache, roots = Path(paths["shards"]), Path(paths["cache"]), permitted_roots(paths)
    return open_data(
        data, lambda name: open_source(name, data.world, data.seed, shards, cache, roots), shards
    )
