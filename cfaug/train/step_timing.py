"""The first steps of a run, taken to measure their time; nothing of them is kept or written."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl

from cfaug.train.engine import BatchGroups, limited, make_trainer, quiet_lightning, torch_as_before

if TYPE_CHECKING:
    from cfaug.train.task import Task

STEPS = 3
"""Steps that are measured, after a first one, which also starts what the others find there."""
FORWARD_SHARE = 1 / 3
"""The time of a validation's batch, in steps: forward, and not twice as long backward."""


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a run's parts: its start with the first step, and of some of its steps."""

    start_up: float
    steps: tuple[float, ...]


class _StepClock(pl.Callback):
    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any
    ) -> None:
        outputs["loss"].item()  # waits for a GPU
        self.ends.append(time.monotonic())


def time_steps(task: Task) -> StepTimes:
    """Take the first steps of a run as it would, without its validations, logs and checkpoints."""
    began = time.monotonic()
    trained = task.load_tuned()
    settings = replace(task.trainer, callbacks=None, profiler=None, val_metrics=())
    module = task.make_module(trained, task.steps)
    plan = limited(lambda steps: task.make_plan(trained, steps, None), task.steps, task.trainer)
    module.trained.train()
    module.measure(())
    clock = _StepClock()
    # An empty folder: Lightning reads checkpoints that lie in its own.
    with (
        tempfile.TemporaryDirectory() as folder,
        quiet_lightning(),
        torch_as_before(),
    ):
        trainer = make_trainer(settings, min(1 + STEPS, task.steps), Path(folder))
        trainer.callbacks.append(clock)
        batches: Iterable[Any] = plan.training(0, 0, 1)
        if settings.accumulate_grad_batches > 1:
            batches = BatchGroups(batches, settings.accumulate_grad_batches)
        trainer.fit(module, batches)
    first, *others = clock.ends
    steps = tuple(end - start for start, end in zip(clock.ends, others, strict=False))
    return StepTimes(first - began, steps)


def predict_seconds(task: Task, times: StepTimes) -> tuple[float, float, float]:
    """Return the seconds of the whole run by the median, the fastest and the slowest step."""
    steps = sorted(times.steps) or [0.0]
    validation = -(-task.counts["validation"] // task.batch_size)
    every = task.trainer.val_every_steps
    if every is None:
        several = task.trainer.accumulate_grad_batches
        every = max(1, task.trainer.limited(task.batches_per_epoch) // several)
    validations = -(-task.steps // every)
    count = max(0, task.steps - 1) + FORWARD_SHARE * validation * validations
    middle, low, high = steps[len(steps) // 2], steps[0], steps[-1]
    return (
        times.start_up + count * middle,
        times.start_up + count * low,
        times.start_up + count * high,
    )
