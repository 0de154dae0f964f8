"""A task: the data, loss and outputs of a training run; ``fit`` trains it. No torch at import."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cfaug.core.errors import UserError
from cfaug.core.processes import uncollected
from cfaug.core.progress import preparing
from cfaug.train.records import Plan, Steps, Trainable

if TYPE_CHECKING:
    from cfaug.data.mixture.loader import KeptPixels
    from cfaug.models.specs import ModelSpec
    from cfaug.train.module import TrainingModule
    from cfaug.train.settings import Factory, LoggerSettings, OptimSettings, TrainerSettings
    from cfaug.train.tuning import Tuning


# A task: the data, loss, and outputs of a training run. No torch at import.

Started = Callable[[int], None]
"""A function that is called with the first step of an attempt."""


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A training run, defined by its settings and data; :func:`cfaug.train.task.fit` runs it.

    Attributes:
        logger: the loggers of the curves besides ``metrics.csv``, or a function that makes a logger
            of Lightning's.
        data_seed: the seed that draws the data; the papers pair it with the run's seed (108 with
            107). Both determine the order of examples.
        tuning: the choice of trained parameters; ``None`` trains all.
    """

    model: ModelSpec
    optim: OptimSettings
    trainer: TrainerSettings
    logger: LoggerSettings | Factory
    seed: int
    data_seed: int
    tuning: Tuning | None = None
    measurable: ClassVar[Mapping[str, str]] = {}
    """{pattern of ``trainer.val_metrics``: an example}."""

    @property
    @abstractmethod
    def counts(self) -> Mapping[str, int]:
        """The counts for ``run.json``; ``train`` and ``validation`` count examples."""

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """The number of examples in a batch, over all processes together."""

    @property
    @abstractmethod
    def batches_per_epoch(self) -> int:
        """The number of batches in one pass over the training split."""

    @property
    def default_size(self) -> int | None:
        """The number of examples drawn before the split, if the settings do not set it."""
        return None

    @property
    @abstractmethod
    def lower_validation(self) -> str:
        """The setting, with its value, to raise if the validation split is empty."""

    @abstractmethod
    def load(self) -> Trainable:
        """Return the initial model, on the CPU."""

    def load_tuned(self) -> Trainable:
        """Return the initial model, adapted by ``tuning``."""
        trained = self.load()
        if self.tuning is not None:
            self.tuning.apply(trained, self.seed)
        if self.trainer.gradient_checkpointing:
            from cfaug.train.tuning import recompute_activations

            recompute_activations(trained)
        return trained

    @abstractmethod
    def make_module(self, trained: Any, total_steps: int | None) -> TrainingModule:
        """Return a model from ``load_tuned`` with its loss and optimizer.

        Args:
            total_steps: the number of optimizer steps of the whole run; ``None`` for somebody's own
                Trainer, which then decides about the gradient's norm as well.
        """

    @abstractmethod
    def make_plan(self, trained: Any, total_steps: int, kept: KeptPixels | None) -> Plan:
        """Return the batches of every step.

        Args:
            trained: the result of ``load``.
            kept: the decoded pixels that runs of one process share.
        """

    @abstractmethod
    def save(self, trained: Any, folder: Path) -> None:
        """Write the run's ``checkpoint/`` atomically."""

    def measure(self, trained: Any) -> dict[str, Any]:
        """Return measurements with the weights that are kept, for ``run.json``."""
        return {}

    def record(self) -> dict[str, Any]:
        """Return the entries of ``run.json`` that only this kind of task has."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Return the entries of a dry run that only this kind of task has."""
        return {}

    def log_examples(self, folder: Path) -> None:  # noqa: B027  # most tasks show none
        """Write examples of a finished run's data to its logger, if the task shows any."""

    @property
    def steps(self) -> int:
        """The number of optimizer steps of the whole run."""
        return self.trainer.total_steps(self.batches_per_epoch)

    def make_steps(self, total_steps: int | None) -> Steps:
        """Return the settings of a module's steps."""
        if total_steps is None:
            return Steps(self.optim, seed=self.seed)
        return Steps(
            self.optim,
            total=total_steps,
            gradient_clip=self.trainer.gradient_clip,
            seed=self.seed,
            parts=self.trainer.accumulate_grad_batches,
        )

    def count_seen(self, batches: int) -> int:
        """Return the number of training examples in ``batches`` batches, with repetitions."""
        rows, size = self.counts["train"], self.batch_size
        per_epoch = self.trainer.limited(self.batches_per_epoch)
        epochs, rest = divmod(batches, per_epoch)
        return epochs * min(rows, per_epoch * size) + min(rows, rest * size)

    def check(self) -> None:
        """Refuse metrics of another task, and to select weights or stop by an empty split."""
        trainer = self.trainer
        for name in trainer.val_metrics:
            if not any(re.fullmatch(pattern, name) for pattern in self.measurable):
                known = " or ".join(self.measurable.values()) or "none: leave it out"
                raise UserError(
                    f"trainer.val_metrics={name} is not of this task, which has {known}"
                )
        if not self.steps or self.counts["validation"]:
            return
        if trainer.checkpoint == "best":
            raise UserError(
                "trainer.checkpoint=best needs a validation split to choose by, and it is empty: "
                f"set trainer.checkpoint=last, or raise {self.lower_validation}"
            )
        if trainer.early_stopping is not None:
            raise UserError(
                f"trainer.early_stopping={trainer.early_stopping} needs a validation split to stop "
                f"by, and it is empty: raise {self.lower_validation}"
            )
        if trainer.val_metrics:
            raise UserError(
                f"trainer.val_metrics={','.join(trainer.val_metrics)} are of the validation split, "
                f"and it is empty: raise {self.lower_validation}"
            )


# ``fit``: one run from its task to ``checkpoint/``. Torch and Lightning are imported in it.


@dataclass(frozen=True)
class FitResult:
    """The result of a finished run.

    Attributes:
        steps: the number of optimizer steps of the whole run, all attempts together.
        start_step: the step at which this attempt resumed.
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
    begin: Callable[[], None] | None = None,
    started: Started | None = None,
    kept: KeptPixels | None = None,
) -> FitResult:
    """Fine-tune, resuming from ``folder/last.ckpt`` if a killed attempt left one.

    This writes ``last.ckpt`` and ``metrics.csv``, and finally ``checkpoint/``, whole or not at all.
    Under torchrun every process calls this; rank 0 alone writes.

    Args:
        folder: the folder of the run, ``.../<experiment>/<arm>/seed=<seed>``.
        attempt: the number of this attempt at the run, from 0; a column of ``metrics.csv``.
        begin: a function that is called before anything is written, once the model is loaded and
            its data and settings are known to fit it.
        started: a function that is called on rank 0 with the first step of this attempt, before
            training.
        kept: the decoded pixels that runs of one process share; ``None`` gives the run its own.
    """
    total_steps = task.steps
    task.check()
    # The tokenizer would warn at every fork of a loader's worker.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    begin = begin or (lambda: None)
    measured: Mapping[str, Any] = {}
    loading = f"loading the model {getattr(task.model, 'weights', '')}".rstrip()
    if total_steps == 0:  # the initial weights are saved, for the table's row before fine-tuning
        with preparing(loading):
            trained = task.load()
        begin()
        if int(os.environ.get("RANK", "0")) == 0:
            if started is not None:
                started(0)
            folder.mkdir(parents=True, exist_ok=True)
            measured = task.measure(trained)
            task.save(trained, folder / "checkpoint")
        return FitResult(0, 0, 0, 0, None, None, measured=measured)
    with preparing(loading):
        trained = task.load_tuned()
    with preparing("preparing the trainer and the order of the batches"):
        with uncollected():
            import torch.distributed as dist

            from cfaug.train.engine import limited, train
            from cfaug.train.tuning import trainable

        module = task.make_module(trained, total_steps)
        plan = limited(
            lambda steps: task.make_plan(trained, steps, kept), total_steps, task.trainer
        )
    begin()
    start_step, end_step, best = train(
        module,
        plan,
        folder=folder,
        settings=task.trainer,
        logger=task.logger,
        attempt=attempt,
        started=started,
    )
    if best is not None:
        trained.load_state_dict(best.weights)
    numbers = trainable(trained)
    together = dist.is_available() and dist.is_initialized()
    if not together or dist.get_rank() == 0:
        with preparing("saving the model"):
            measured = task.measure(trained)
            task.save(trained, folder / "checkpoint")
    if together:
        dist.barrier()  # no process finishes before the checkpoint exists
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
