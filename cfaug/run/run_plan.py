"""The plan of one run: its settings, data and folder. Nothing is trained here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.messages import say_once
from cfaug.core.progress import watch
from cfaug.core.validation import RunSeed, check
from cfaug.data.mixture.settings import DataSettings, EntailmentData, QuestionData
from cfaug.run.build import build
from cfaug.run.compose import Config
from cfaug.run.contrastive_plan import plan_contrastive
from cfaug.run.entailment_plan import plan_entailment
from cfaug.run.extending import longer, without_length
from cfaug.run.identity import (
    arm_folder,
    identity,
    older_content,
    what_follows_the_seed,
)
from cfaug.run.language_plan import plan_language
from cfaug.run.launch import Jobs
from cfaug.run.mixture_plan import prepare_sources
from cfaug.run.names import clean_name, experiment_name, runs_folder
from cfaug.run.planned import TrainPlan, TrainRequest
from cfaug.run.preset import check_scale, check_warmup, notes, refuse_ignored_epochs
from cfaug.run.question_plan import plan_questions
from cfaug.run.readings import check_undrawn
from cfaug.run.run_folder import RunFolder
from cfaug.run.threads import use_threads
from cfaug.run.train_settings import TrainSettings
from cfaug.train.edit_data import EditData
from cfaug.train.settings import refuse_unstarted
from cfaug.train.task import Task


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """One run, ready to start: its task and its folder.

    Attributes:
        task: the task to train, with its model, data and settings.
        settings: the requested settings.
        config: the content of the run's ``config.yaml``, with open settings of the data filled in.
        folder: the run's folder and identity.
        notes: warnings to print before the start, one sentence each.
        sources: {role of a source: the form in which it was read}.
        by_seed: {setting that depends on the seed: its value as written}.
    """

    task: Task
    settings: TrainSettings
    config: Config
    folder: RunFolder
    notes: tuple[str, ...] = ()
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_seed: Mapping[str, str] = field(default_factory=dict)


def plan_run(settings: TrainSettings) -> TrainJob:
    """Plan one run without training: read its data, draw its examples, name its folder.

    Raises:
        UserError: for settings or data that cannot make a run, before anything is written.
    """
    root = runs_folder(settings.paths["runs"]) / experiment_name(settings.name)
    words = settings.overrides
    arm = arm_folder(root, without_length(words) if settings.extend else words, settings.config())
    use_threads(settings.threads)
    settings.check()
    if settings.arm is not None and clean_name(settings.arm) != settings.arm:
        say_once(f"the folder of arm={settings.arm} is called {arm.name}")
    refuse_ignored_epochs(words, settings.trainer)
    asked = TrainRequest.of(settings)
    if settings.parallel > 1 and asked.trainer.devices > 1:
        raise UserError(
            f"parallel={settings.parallel} with trainer.devices={asked.trainer.devices}: either "
            "several runs at once, or several processes a run"
        )
    data = _data_settings(settings.data, settings.seed)
    if isinstance(data, DataSettings) and data.plan is None:
        check_undrawn(data, words)
    planned = _plan(data, asked)
    planned.task.check()
    if isinstance(data, DataSettings) and data.plan is None:
        _refuse_missing_side(data, planned.task.counts)
    if asked.trainer.num_nodes > 1:  # several devices of one machine are started by the command
        refuse_unstarted(asked.trainer)
    warned = [
        *notes(settings.preset or {}, settings.optim, settings.tuning),
        check_warmup(words, asked.optim, planned.task.steps),
        check_scale(settings.model),
    ]
    config = settings.config()
    config = {**config, "data": {**config["data"], **planned.data}}
    hashed = {**config, "data": {**config["data"], **planned.hashed}}
    what = identity(hashed, {**planned.content, "weights": asked.model.weights_hash()})
    older = older_content(planned.older)
    job = TrainJob(
        task=planned.task, settings=settings, config=config,
        folder=RunFolder(arm / f"seed={settings.seed}", what, older, arm=settings.arm),
        notes=tuple(filter(None, warned)),
        sources=planned.sources,
        by_seed=what_follows_the_seed(settings.by_seed or {}, config["data"]),
    )  # fmt: skip
    return replace(job, folder=longer(job.folder, job.task.steps)) if settings.extend else job


PLANS: Mapping[type, Callable[[Any, TrainRequest], TrainPlan]] = {
    EntailmentData: plan_entailment,
    QuestionData: plan_questions,
    DataSettings: plan_contrastive,
    EditData: plan_language,
}
"""The planner of each kind of data; a subclass of two kinds counts as the first."""


def _plan(data: Any, asked: TrainRequest) -> TrainPlan:
    for kind, plan in PLANS.items():
        if isinstance(data, kind):
            return plan(data, asked)
    names = ", ".join(kind.__name__ for kind in PLANS)
    raise UserError(f"data is a {type(data).__name__}, which nothing trains on: choose {names}")


def _refuse_missing_side(data: DataSettings, counts: Mapping[str, int]) -> None:
    """Refuse a ratio of which rounding leaves no example of one of the sources.

    Raises:
        UserError: naming the ratio that this is.
    """
    for kind, whole in (("counterfactual", 0), ("real", 1)):
        if 0 < data.ratio < 1 and not counts[kind]:
            raise UserError(
                f"data.cf_ratio={data.ratio:g} of {counts['train']:,} training examples leaves no "
                f"{kind} example: write data.cf_ratio={whole}, or give a larger data.size"
            )


def _data_settings(data: Mapping[str, Any], seed: int) -> Any:
    check(seed, RunSeed, "seed")
    return build(data).with_seed(seed)


def prepare_data(jobs: Jobs) -> None:
    """Draw and scan the sources of a sweep on all cores, so that planning finds them on the disk.

    Raises:
        UserError: if a source cannot be drawn or scanned.
    """
    found = [
        (_data_settings(one["data"], one["seed"]), one["paths"])
        for one, _ in watch(jobs, "reading the settings of the data", len(jobs), "jobs")
    ]
    prepare_sources([
        (data, paths) for data, paths in found
        if isinstance(data, DataSettings) and not isinstance(data, QuestionData)
    ])  # fmt: skip
