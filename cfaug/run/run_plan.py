"""The plan of one run: its settings, data and folder. Nothing is trained here."""

from __future__ import annotations

import csv
import math
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from cfaug.core.errors import UserError, say_once
from cfaug.core.files import check_place
from cfaug.core.fitting import Config
from cfaug.core.processes import (
    count_threads,
    end_with_parent,
    has_launcher,
    lacks_memory,
    use_threads,
)
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
from cfaug.report.records import Run, read_run
from cfaug.run.arm_names import DRAW, arm_slug, find_arm, other_settings
from cfaug.run.folder_names import DEBUG, clean_name, experiment_name, runs_folder
from cfaug.run.identity import EXTENDED, LENGTH, identity, what_follows_the_seed
from cfaug.run.run_folder import RunFolder
from cfaug.settings.arguments import key_of
from cfaug.settings.read_if import Job
from cfaug.train.generative_tasks import EditData
from cfaug.train.mixture_task import ContrastiveTask
from cfaug.train.settings import LossSettings, refuse_unstarted
from cfaug.train.task import Task

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")


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
        wanted = {"identity": self.folder.identity, "by_seed": self.by_seed}
        return other_settings(self.folder.path.parent, wanted, (*LENGTH, EXTENDED))

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
    runs = runs_folder(settings.paths["runs"])
    experiment = (runs / DEBUG if settings.debugging else runs) / experiment_name(settings.name)
    check_place(settings.paths["cache"], "paths.cache")
    declared = settings.declared_content()
    request = TrainRequest.of(settings)
    # What a folder of weights says itself is not what a file of settings says for other weights.
    if (find_left_out := getattr(request.model, "find_left_out", None)) is not None:
        said = find_left_out(config["model"], "model.", Job(config, words))
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
    name, typed = names[0], {key_of(word) for word in words}
    is_typed = settings.arm is not None and "arm" in typed
    if not settings.debugging and not is_typed:
        wanted = {"identity": run_identity, "by_seed": by_seed, "arm": settings.arm}
        name = find_arm(experiment, names, wanted, draw_typed=DRAW in typed, extend=settings.extend)
    place = experiment / name / f"seed={settings.seed}"
    folder = RunFolder(place, run_identity, arm=settings.arm)
    job = TrainJob(
        task=planned.task, settings=settings, config=config,
        folder=folder.longer(planned.task.steps) if settings.extend else folder,
        notes=tuple(filter(None, warned)),
        sources=planned.sources,
        by_seed=by_seed,
    )  # fmt: skip
    by_hand = is_typed and "=" not in name
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


# ``dry_run=true``: describe a run from its indexes and from earlier runs.

PLANNING_S = 3.0
"""Seconds of a command before its first run begins, measured on two cores."""
STEPS_TAKEN = "three steps taken"
START_UP_S = 10.0
"""Seconds of a whole command without its steps, mostly imports: 7 to 14, measured on two cores."""


def estimate_seconds(job: TrainJob) -> tuple[float | None, str]:
    """Return the estimated seconds of the whole run, and the basis of the estimate.

    The basis is the newest finished run here of the same weights and batch size; without one, a
    rule of thumb: six operations per parameter, example and token (forward and backward), 50 tokens
    (image patches or caption tokens of CLIP ViT-B/32) per example, at a third of the measured
    matrix rate of as many cores as the run has threads, rounded to two digits.
    """
    several = job.task.trainer.accumulate_grad_batches
    wanted = (job.folder.identity["content.weights"], job.task.batch_size, several)
    newest: tuple[float, Run, float] | None = None
    for file in Path(job.settings.paths["runs"]).glob("*/*/seed=*/run.json"):
        try:
            run = read_run(file.parent)
        except UserError:
            continue
        identity = run.record.get("identity") or {}
        there = identity.get("trainer.accumulate_grad_batches", 1)
        same = (identity.get("content.weights"), identity.get("data.batch_size"), there) == wanted
        if same and run.done:
            written, per_step = file.stat().st_mtime, _seconds_per_step(file.parent)
            if per_step is not None and (newest is None or written > newest[0]):
                newest = (written, run, per_step)
    if newest is not None:
        _, run, per_step = newest
        last = run.record["attempts"][-1]
        stepped = (last["end_step"] - last["start_step"]) * per_step
        start_up = PLANNING_S + max(0.0, float(run.record["wall_s"]) - stepped)
        return round(start_up + job.task.steps * per_step, 1), f"measured in {run.folder}"
    parameters = job.task.model.parameters()
    if parameters is None:
        return None, "nothing measured yet, and the number of parameters is unknown"
    examples = min(job.task.batch_size * several, job.task.counts["train"])  # of an update
    operations = 6 * parameters * 50 * examples * job.task.steps
    cores = count_threads()
    seconds = START_UP_S + operations / (_matrix_rate() * cores / 3)
    basis = (
        "rule of thumb from the number of parameters, for "
        f"{cores} core{'s' * (cores > 1)} free for it; dry_run=measure takes three steps"
    )
    return float(f"{seconds:.2g}"), basis


def _seconds_per_step(folder: Path) -> float | None:
    """Return the seconds per step of a run's last attempt; ``None`` if unknown.

    Only the steps count: a short run spends most of its time on starting.
    """
    try:
        with (folder / "metrics.csv").open(newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.DictReader(lines) if row.get("seconds")]
        last = [row for row in rows if row["attempt"] == rows[-1]["attempt"]]
        began, ended = ((int(row["step"]), float(row["seconds"])) for row in (last[0], last[-1]))
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
    steps = ended[0] - began[0]
    return (ended[1] - began[1]) / steps if steps > 0 else None


def _matrix_rate() -> float:
    """Return the operations of float32 matrix products in a second of one core's own time.

    Other programs on the machine do not count: this is the best of many short products, which numpy
    leaves to one thread, by the processor time of that thread.
    """
    import numpy as np

    side, count, best = 64, 64, math.inf
    matrices = np.ones((count, side, side), np.float32)
    for _ in range(100):
        began = time.thread_time()
        matrices @ matrices[0]
        best = min(best, time.thread_time() - began)
    return 2 * count * side**3 / best


def measure_seconds(job: TrainJob) -> tuple[float, tuple[float, float], str]:
    """Return the seconds of the whole run, with a range, from its first steps taken now.

    Raises:
        UserError: if they cannot be taken, or if the run would have several processes.
    """
    trainer = job.task.trainer
    if trainer.devices * trainer.num_nodes > 1 or has_launcher():
        raise UserError(
            "dry_run=measure times the steps of one process: leave out trainer.devices, "
            "trainer.num_nodes and torchrun, or choose dry_run=true"
        )
    if not job.task.steps:
        return START_UP_S, (START_UP_S, START_UP_S), "the run takes no step"
    measured = _answer_in_child(_measure, job.task, "taking the first steps", learns=True)
    if isinstance(measured, int):
        name = signal.Signals(measured).name
        killed = ", as by a machine without free memory: try a smaller data.batch_size"
        raise UserError(
            f"dry_run=measure: {name} ended the process that took the steps"
            + killed * (measured == signal.SIGKILL)
        )
    if isinstance(measured, str):
        raise UserError(measured)
    middle, low, high = (round(seconds, 1) for seconds in measured)
    return middle, (low, high), f"{STEPS_TAKEN} now, with what else is at work on this machine"


def _measure(task: Task) -> tuple[float, float, float] | str:
    from cfaug.train.step_timing import predict_seconds, time_steps

    try:
        return predict_seconds(task, time_steps(task))
    except UserError as error:
        return str(error)
    except Exception as error:
        if not lacks_memory(error):
            raise
        return (
            f"dry_run=measure: a step does not fit into memory ({str(error).splitlines()[0]}): try "
            "a smaller data.batch_size, with trainer.accumulate_grad_batches"
        )


def describe(job: TrainJob, measured: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the description of a run from its data: the last line of ``dry_run=true``.

    Args:
        measured: the entries of an estimate from real steps; ``None`` estimates without any.
    """
    task = job.task
    if measured is None:
        seconds, basis = estimate_seconds(job)
        measured = {"estimate_s": seconds, "estimate_from": basis}
    batches = task.trainer.limited(task.batches_per_epoch)
    several = task.trainer.accumulate_grad_batches
    described = {
        "run": str(job.folder.path),
        "state": job.folder.state(),
        "config_hash": job.folder.hash,
        "counts": dict(task.counts),
        "sources": job.sources,
        "steps": task.steps,
        "steps_per_epoch": batches if several == 1 else round(batches / several, 2),
        "batch_size": task.batch_size,
        **task.describe(),
        **measured,
    }
    if job.notes:
        described["notes"] = list(job.notes)
    return described


# Check in a dry run, and before a sweep, that every model can be trained as its runs ask.
#
# Labels, questions, patterns of ``tuning`` and losses are compared with the model itself, so a run
# would only find at its start, after its data were drawn, that they do not fit.

SHIPPED = "zoo:"
"""Weights with this prefix are this package's: they load, and fit captions of any kind."""


def rehearse(jobs: Sequence[TrainJob]) -> None:
    """Load every model that data or settings may not fit, once, and adapt it as its runs will.

    Parts of Lightning's are made as well, and left. Dual encoders that are shipped, trained on
    captions without settings of that kind, are left out: a dry run of them stays quick.
    """
    different: dict[str, TrainJob] = {}
    for job in jobs:
        task, loss = job.task, getattr(job.task, "loss", None)
        weights = getattr(task.model, "weights", "")
        data = getattr(task, "data", None)
        if isinstance(data, DataSettings):
            data = replace(data, seed=None)
        learnt = (getattr(task, "labels", None), data)  # what has to fit the model, beside captions
        fitted = (
            None if isinstance(task, ContrastiveTask) else learnt,
            not str(weights).startswith(SHIPPED),
            task.tuning,
            loss if isinstance(loss, LossSettings) else None,
            task.trainer.micro_batch_size,
            getattr(task.model, "max_tokens", None),
            task.trainer.gradient_checkpointing,
            task.trainer.passed_on,
            task.optim.layer_decay,
            getattr(getattr(task, "data", None), "negatives", None),
        )
        if not job.folder.has_checkpoint and any(fitted):
            different[repr((task.model, *fitted))] = job
    if not different:
        return
    # Killed, for instance for its memory: the run itself will say why.
    tried = [(job.task, job.folder.path) for job in different.values()]
    wrong = _answer_in_child(_try_all, tried, "trying whether the model fits data and settings")
    if isinstance(wrong, int):
        return
    for job, message in zip(different.values(), wrong, strict=True):
        if message is not None:
            raise UserError(message if len(jobs) == 1 else f"{job.folder.path}: {message}")


def check_parts(task: Task, folder: Path) -> None:
    """Make the parts of Lightning's that a task asks for and leave them: a wrong one is refused."""
    if task.trainer.passed_on:
        from cfaug.train.lightning_parts import logged_names, make_parts

        logged = logged_names(task.trainer, bool(task.counts["validation"]))
        make_parts(task.trainer, logged, folder)


def _answer_in_child(
    work: Callable[[Argument], Answer], argument: Argument, title: str, *, learns: bool = False
) -> Answer | int:
    """Call a function in a child; return the number of the signal that ended it, if one did.

    It is forked, so that runs are forked from a process that has not imported torch. Where this
    process has, it is a new one: after training here, autograd refuses to work in a fork.

    Args:
        learns: whether the function computes gradients.

    Raises:
        UserError: if the function's argument cannot be sent to a new process.
        RuntimeError: with the child's own traceback, where the function raised an error.
    """
    anew = learns and "torch" in sys.modules
    context = get_context("spawn") if anew else get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(work, argument, writer))
    try:
        process.start()
    except (pickle.PicklingError, AttributeError, TypeError) as error:  # of a new process
        raise UserError(
            f"{title} takes a process of its own here, and settings cannot be sent to it ({error}):"
            " type the command in a terminal"
        ) from error
    writer.close()
    answer: Answer | None = None
    failure = ""
    with preparing(title), suppress(EOFError):  # started before, without the thread that prints
        answer, failure = reader.recv()
    process.join()
    if failure:
        raise RuntimeError(f"{title} failed:\n{failure}")
    if answer is not None:
        return answer
    if process.exitcode is None or process.exitcode >= 0:
        raise RuntimeError(f"{title} ended with {process.exitcode} and without an answer")
    return -process.exitcode


def _send(work: Callable[[Any], Any], argument: Any, writer: Connection) -> None:
    end_with_parent()
    try:
        answer, error = work(argument), ""
    except Exception:
        answer, error = None, traceback.format_exc()
    writer.send((answer, error))


def _try_all(runs: Sequence[tuple[Task, Path]]) -> list[str | None]:
    """Return why each model cannot be trained; ``None`` for one that can."""
    use_threads(1)
    reasons: list[str | None] = []
    for task, folder in runs:
        try:
            if task.steps:
                trained = task.load_tuned()
                task.make_module(trained, task.steps).check_layer_decay()
                task.make_plan(trained, task.steps, None)
            else:
                task.load()
            check_parts(task, folder)
            reasons.append(None)
        except UserError as error:
            reasons.append(str(error))
    return reasons
