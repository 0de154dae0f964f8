"""What a dry run says of planned runs, from their indexes, earlier runs and a few steps.

Before a sweep, too, every model that may not fit its data and settings is tried.
"""

from __future__ import annotations

import csv
import math
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cfaug.core.errors import UserError
from cfaug.core.processes import (
    count_threads,
    end_with_parent,
    has_launcher,
    lacks_memory,
    use_threads,
)
from cfaug.core.progress import preparing
from cfaug.data.mixture.settings import DataSettings
from cfaug.report.records import Run, read_run
from cfaug.train.mixture_task import ContrastiveTask
from cfaug.train.settings import LossSettings
from cfaug.train.task import Task

if TYPE_CHECKING:
    from cfaug.run.run_plan import TrainJob

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")

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
