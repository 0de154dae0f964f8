"""``fit``: one run from its task to ``checkpoint/``. Torch and Lightning are imported in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.train.task import Started, Task

if TYPE_CHECKING:
    from cfaug.data.mixture.pixel_cache import KeptPixels


@dataclass(frozen=True)
class FitResult:
    """The result of a finished run.

    Attributes:
        steps: the number of optimizer steps of the whole run, all attempts together.
        start_step: the step at which this attempt resumed.
        end_step: the step at which it ended.
        seen: the number of training examples in all steps up to ``end_step``, with repetitions.
        best_step: the step of the weights in ``checkpoint/``; ``None`` if they are the last ones,
            as requested.
        best_val_loss: the validation loss of these weights.
        trained: the number of trained parameters, including adapters.
        parameters: the number of parameters of the model, including adapters.
        measured: the task's measurements with the weights in ``checkpoint/``.
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

    This writes ``last.ckpt`` and ``metrics.csv``, and finally ``checkpoint/``, whole or not at all.
    Under torchrun every process calls this; rank 0 alone writes.

    Args:
        task: the model, its data and the settings of the training.
        folder: the folder of the run, ``.../<experiment>/<arm>/seed=<seed>``.
        attempt: the number of this attempt at the run, from 0; a column of ``metrics.csv``.
        started: a function that is called on rank 0 with the first step of this attempt, before
            training.
        kept: the decoded pixels that runs of one process share; ``None`` gives the run its own.

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
    """Save the initial weights, for the table's row before fine-tuning."""
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
        dist.barrier()  # no process finishes before the checkpoint exists
    return measured
