"""``fit``: one run from its task to ``checkpoint/``. Torch and Lightning are imported in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.train.task import Started, Task

if TYPE_CHECKING:
    from cfaug.data.feeding.pixel_cache import KeptPixels


@dataclass(frozen=True)
class FitResult:
    """What a finished run did.

    Attributes:
        steps: optimizer steps of the whole run, all attempts together.
        start_step: the step from which this attempt resumed.
        end_step: the step it ended at.
        seen: training examples in all steps up to ``end_step``, repetitions counted.
        best_step: the step whose weights are in ``checkpoint/``; ``None`` if the last were asked
            for.
        best_val_loss: their validation loss.
        trained: trained parameters, including adapters.
        parameters: parameters of the model, including adapters.
        measured: what the task measures with the weights that are kept.
    """

    steps: int
    start_step: int
    end_step: int
    seen: int
    best_step: int | None
    best_val_loss: float | None
    trained: int = 0
    parameters: int = 0
    measured: Mapping[str, Any] = field(default_factory=dict)


def fit(
    task: Task,
    folder: Path,
    *,
    attempt: int,
    started: Started | None = None,
    kept: KeptPixels | None = None,
) -> FitResult:
    """Fine-tune, resuming from ``folder/last.ckpt`` if a killed attempt left one.

    Writes ``last.ckpt`` and ``metrics.csv``, and at the end ``checkpoint/``, whole or not at all.
    Under torchrun every process calls this; rank 0 alone writes.

    Args:
        task: what is trained, on what and how.
        folder: the run's, ``.../<experiment>/<arm>/seed=<seed>``.
        attempt: number of this attempt at the run, from 0; a column of ``metrics.csv``.
        started: called on rank 0 with the step this attempt starts from, before training.
        kept: decoded pixels that runs of one process share; ``None`` keeps the run's own.

    Raises:
        UserError: if there is too little data, no validation split to choose the best weights by,
            or a loss that is not a number.
    """
    total_steps = task.steps
    task.check()
    # The tokenizer would warn at every fork of a loader's worker.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    trained = task.load()
    if total_steps == 0:
        return _keep_initial(task, trained, folder, started)
    if task.tuning is not None:
        task.tuning.apply(trained, task.seed)

    from cfaug.train.engine import train
    from cfaug.train.tuning import trainable

    start_step, end_step, best = train(
        task.make_module(trained, total_steps),
        task.make_plan(trained, total_steps, kept),
        folder=folder,
        settings=task.trainer,
        logger=task.logger,
        attempt=attempt,
        started=started,
    )
    if best is not None:
        trained.load_state_dict(best.weights)
    numbers = trainable(trained)
    measured = _save_on_rank_0(task, trained, folder)
    return FitResult(
        steps=total_steps,
        start_step=start_step,
        end_step=end_step,
        seen=task.count_seen(end_step * task.trainer.accumulate_grad_batches),
        best_step=None if best is None else best.step,
        best_val_loss=None if best is None else best.val_loss,
        trained=numbers[0],
        parameters=numbers[1],
        measured=measured,
    )


def _keep_initial(task: Task, trained: Any, folder: Path, started: Started | None) -> FitResult:
    """Save the initial weights: the table's row before fine-tuning."""
    measured: Mapping[str, Any] = {}
    if int(os.environ.get("RANK", "0")) == 0:
        if started is not None:
            started(0)
        folder.mkdir(parents=True, exist_ok=True)
        measured = task.measure(trained)
        task.save(trained, folder / "checkpoint")
    return FitResult(0, 0, 0, 0, None, None, measured=measured)


def _save_on_rank_0(task: Task, trained: Any, folder: Path) -> Mapping[str, Any]:
    import torch.distributed as dist

    together = dist.is_available() and dist.is_initialized()
    measured: Mapping[str, Any] = {}
    if not together or dist.get_rank() == 0:
        measured = task.measure(trained)
        task.save(trained, folder / "checkpoint")
    if together:
        dist.barrier()  # no process says it is done before the checkpoint is there
    return measured
