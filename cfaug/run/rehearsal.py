"""Check before a sweep that every model can be trained as its runs ask.

Patterns of ``tuning`` and losses are compared with the model itself, so a run would only find at
its start, after its data were drawn, that they do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from cfaug.core.errors import UserError
from cfaug.train.settings import LossSettings

if TYPE_CHECKING:
    from cfaug.run.run_plan import TrainJob
    from cfaug.train.task import Task


def rehearse(jobs: Sequence[TrainJob]) -> None:
    """Load every model that a tuning or a loss may not fit, once, and adapt it as its runs will.

    Raises:
        UserError: for a model that cannot be trained as asked, naming the run if there are several.
    """
    different = {
        repr(asked): job for job in jobs if not job.folder.has_checkpoint and (asked := _ask(job))
    }
    if not different:
        return
    # Forked, so that runs are forked from a process that has not imported torch.
    context = get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    tasks = [job.task for job in different.values()]
    process = context.Process(target=_try_all, args=(tasks, writer))
    process.start()
    writer.close()
    wrong: list[str | None] = []
    with suppress(EOFError):  # killed, for instance for its memory: the run itself will say why
        wrong = reader.recv()
    process.join()
    for job, message in zip(different.values(), wrong, strict=False):
        if message is not None:
            raise UserError(message if len(jobs) == 1 else f"{job.folder.path}: {message}")


def _ask(job: TrainJob) -> tuple[object, ...]:
    """Return what a model has to fit; empty if every model does."""
    task = job.task
    loss, data = getattr(task, "loss", None), getattr(task, "data", None)
    asked = (
        task.tuning,
        loss if isinstance(loss, LossSettings) else None,
        task.trainer.micro_batch_size,
        getattr(data, "negatives", None),
    )
    return (task.model, *asked) if task.steps and any(asked) else ()


def _try_all(tasks: Sequence[Task], writer: Connection) -> None:
    from cfaug.run.threads import use_threads

    use_threads(1)
    writer.send([_try(task) for task in tasks])


def _try(task: Task) -> str | None:
    """Return why a model cannot be trained; ``None`` if it can."""
    try:
        trained = task.load()
        if task.tuning is not None:
            task.tuning.apply(trained, task.seed)
        task.make_module(trained, task.steps)
    except UserError as error:
        return str(error)
    return None
