"""The plan of one run: its settings, data and folder. Nothing is trained here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, say_once
from cfaug.core.files import check_place
from cfaug.core.fitting import Config
from cfaug.core.processes import use_threads
from cfaug.core.progress import preparing, watch
from cfaug.core.worlds import is_world
from cfaug.data.mixture.settings import (
    ClassificationData,
    DataSettings,
    EntailmentData,
    ImageData,
    QuestionData,
)
from cfaug.planning.build import build
from cfaug.planning.mixture_plan import (
    plan_classification,
    plan_contrastive,
    plan_entailment,
    plan_language,
    plan_questions,
    prepare_sources,
)
from cfaug.planning.sources import check_undrawn
from cfaug.planning.training import (
    TrainPlan,
    TrainRequest,
    TrainSettings,
    check_batch,
    check_scale,
    check_warmup,
    notes,
    refuse_ignored_epochs,
)
from cfaug.report.arms import arm_identity
from cfaug.run.arm_names import DRAW, arm_slug, find_arm, other_settings
from cfaug.run.folder_names import DEBUG, clean_name, experiment_name, runs_folder
from cfaug.run.identity import EXTENDED, LENGTH, identity, what_follows_the_seed
from cfaug.run.run_folder import RunFolder
from cfaug.settings.arguments import key_of
from cfaug.settings.read_if import CommandJob
from cfaug.train.generative_tasks import EditData
from cfaug.train.mixture_task import ContrastiveTask
from cfaug.train.settings import refuse_unstarted
from cfaug.train.task import Task


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """One run, ready to start: its task and its folder.

    Attributes:
        config: the content of the run's ``config.yaml``, with open settings of the data filled in.
        notes: warnings to print before the start, one sentence each.
        sources: {role of a source: the form in which it was read}.
        by_seed: {setting that depends on the seed: its value as written}.
        is_mixed: whether the arm was named by hand, or its folder held runs of other settings when
            this was planned.
    """

    task: Task
    settings: TrainSettings
    config: Config
    folder: RunFolder
    notes: tuple[str, ...] = ()
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_seed: Mapping[str, str] = field(default_factory=dict)
    is_mixed: bool = False

    def find_other_settings(self) -> tuple[Path, str] | None:
        """Return a run of the arm's folder with other settings than this, and one that differs."""
        shared = arm_identity({"identity": self.folder.identity, "by_seed": self.by_seed})
        return other_settings(self.folder.path.parent, shared, (*LENGTH, EXTENDED))

    def unread(self) -> Iterator[tuple[str, str]]:
        """Yield (word, why it has no effect) of the typed settings that change nothing here."""
        limit, batches = self.task.trainer.limit_train_batches, self.task.batches_per_epoch
        if limit is None or self.task.trainer.limited(batches) < batches:
            return
        for word in self.settings.overrides:
            if key_of(word) == "trainer.limit_train_batches":
                yield (
                    word,
                    f"{word} would have no effect: an epoch has {batches:,} batches; leave it out, "
                    "or give fewer",
                )


def plan_run(settings: TrainSettings, swept: Collection[str] = ()) -> TrainJob:
    """Plan one run without training: read its data, draw its examples, name its folder.

    Args:
        swept: settings in which the jobs of its sweep differ; empty for a run by itself.
    """
    use_threads(settings.threads)
    words, config = settings.overrides, settings.config()
    settings.check()
    refuse_ignored_epochs(words, settings.trainer)
    # Without their length, words name the arm to extend.
    named = [w for w in words if not (settings.extend and w.partition("=")[0] in LENGTH)]
    # Its name in the sweep, if that is free, or else every setting that was typed.
    names = [arm_slug(named, config, settings.by_seed, of_sweep) for of_sweep in (swept, ())]
    if settings.arm is not None and clean_name(settings.arm) != settings.arm:
        say_once(f"the folder of arm={settings.arm} is called {names[0]}")
    name, runs = experiment_name(settings.name), runs_folder(settings.paths["runs"])
    experiment = (runs / DEBUG if settings.debugging else runs) / name
    check_place(settings.paths["cache"], "paths.cache")
    declared = settings.declared_content()
    request = TrainRequest.of(settings)
    # What a folder of weights says itself is not what a file of settings says for other weights.
    if (find_left_out := getattr(request.model, "find_left_out", None)) is not None:
        said = find_left_out(config["model"], "model.", CommandJob(config, words))
        config = {**config, "model": {**config["model"], **dict.fromkeys(said)}}
    if settings.parallel > 1 and request.trainer.devices > 1:
        raise UserError(
            f"parallel={settings.parallel} with trainer.devices={request.trainer.devices}: either "
            "several runs at once, or several processes a run"
        )
    if settings.engine is not None and request.trainer.devices > 1:
        raise UserError(
            f"engine with trainer.devices={request.trainer.devices}: a worker is one process; "
            "leave the engine out, and start such a run by torchrun on its machine"
        )
    data = build(settings.data).with_seed(settings.seed)
    if isinstance(data, DataSettings) and data.plan is None:
        check_undrawn(data, words)
        # The embedded world has tests of its own, one's own photos need a part as a test set.
        own_photos = data.real is not None and not is_world(data.real) and data.drawn[0]
        says_holdout = any(word.lstrip("+").startswith("data.holdout=") for word in words)
        excused = data.holdout or says_holdout or isinstance(data, QuestionData)
        if data.world is not None and own_photos and not excused:
            raise UserError(
                f"data.real={data.real} is not of the embedded world, and with data=shapescapes "
                "none of it is held out as a test set: add data=folder, which holds out a tenth, "
                "or data.holdout=0 to train on all of it"
            )
    plan = next((plan for kind, plan in PLANS.items() if isinstance(data, kind)), None)
    if plan is None:
        kinds = ", ".join(kind.__name__ for kind in PLANS)
        raise UserError(f"data is a {type(data).__name__}, which nothing trains on: choose {kinds}")
    with preparing("reading the data of the run and drawing its examples"):
        planned = plan(data, request)
    planned.task.check()
    if isinstance(data, DataSettings) and data.plan is None and 0 < data.ratio < 1:
        counts = planned.task.counts
        for kind, whole in (("counterfactual", 0), ("real", 1)):
            if not counts[kind]:  # by rounding
                raise UserError(
                    f"data.cf_ratio={data.ratio:g} of {counts['train']:,} training examples leaves "
                    f"no {kind} example: write data.cf_ratio={whole}, or give a larger data.size"
                )
    if request.trainer.num_nodes > 1:  # several devices of one machine are started by the command
        refuse_unstarted(request.trainer)
    warned = [
        *notes(settings.preset or {}, settings.optim, settings.tuning),
        check_warmup(words, request.optim, planned.task.steps),
        check_scale(settings.model),
        check_batch(planned.task) if isinstance(planned.task, ContrastiveTask) else None,
    ]
    config = {**config, "data": {**config["data"], **planned.data}}
    hashed = {**config, "data": {**config["data"], **planned.hashed}}
    with preparing("reading the weights of the model"):
        hashes = {"weights": request.model.weights_hash(), **declared}
    run_identity = identity(hashed, {**planned.content, **hashes})
    by_seed = what_follows_the_seed(settings.by_seed or {}, config["data"])
    arm, typed = names[0], {key_of(word) for word in words}
    is_typed = settings.arm is not None and "arm" in typed
    if not settings.debugging and not is_typed:
        arm = find_arm(
            experiment, names, arm_identity({"identity": run_identity, "by_seed": by_seed}),
            arm=settings.arm, draw_typed=DRAW in typed, extend=settings.extend,
        )  # fmt: skip
    place = experiment / arm / f"seed={settings.seed}"
    folder = RunFolder(place, run_identity, arm=settings.arm)
    job = TrainJob(
        task=planned.task, settings=settings, config=config,
        folder=folder.longer(planned.task.steps) if settings.extend else folder,
        notes=tuple(filter(None, warned)),
        sources=planned.sources,
        by_seed=by_seed,
    )  # fmt: skip
    by_hand = is_typed and "=" not in arm
    return replace(job, is_mixed=by_hand or job.find_other_settings() is not None)


PLANS: Mapping[type, Callable[[Any, TrainRequest], TrainPlan]] = {
    EntailmentData: plan_entailment,
    ClassificationData: plan_classification,
    QuestionData: plan_questions,
    ImageData: plan_contrastive,
    EditData: plan_language,
}
"""The planner of each kind of data; a subclass of two kinds counts as the first."""


def prepare_data(sweep: Sequence[TrainSettings]) -> None:
    """Draw and scan the sources of a sweep on all cores, so that planning finds them on disk."""
    sources = [
        (build(settings.data).with_seed(settings.seed), settings.paths)
        for settings in watch(sweep, "reading the settings of the data", len(sweep), "jobs")
    ]
    prepare_sources([
        (data, paths) for data, paths in sources
        if isinstance(data, DataSettings) and not isinstance(data, QuestionData)
    ])  # fmt: skip
