"""What a run trains: on what, by which loss, and what it leaves. No torch at import."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cfaug.errors import UserError

if TYPE_CHECKING:
    from cfaug.data.feeding.pixel_cache import KeptPixels
    from cfaug.models.specs import ModelSpec
    from cfaug.train.engine import Plan
    from cfaug.train.module import Steps, TrainingModule
    from cfaug.train.settings import LoggerSettings, OptimSettings, TrainerSettings
    from cfaug.train.tuning import Tuning


Started = Callable[[int], None]
"""Told of the step an attempt starts from."""


class Trainable(Protocol):
    """An ``nn.Module`` around a library's ``model``, as its task loads it for training.

    Attributes:
        model: the library's, whose parameters are trained or frozen.
        held_in_evaluation: modules that stay in evaluation mode (frozen statistics).
    """

    model: Any
    held_in_evaluation: tuple[Any, ...]

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Take weights as ``state_dict`` gave them."""
        ...


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A training from its settings and its data on; :func:`cfaug.train.job.fit` carries it out.

    Attributes:
        model: where to start.
        optim: optimizer and schedule.
        trainer: how long, on what, what to keep.
        logger: where the curves go besides ``metrics.csv``.
        seed: of the run.
        data_seed: of the data, which the papers pair with the seed (108 with 107); both decide
            the order of examples.
        tuning: which parameters are trained; ``None`` is all.
    """

    model: ModelSpec
    optim: OptimSettings
    trainer: TrainerSettings
    logger: LoggerSettings
    seed: int
    data_seed: int
    tuning: Tuning | None = None

    @property
    @abstractmethod
    def counts(self) -> Mapping[str, int]:
        """What ``run.json`` counts; ``train`` and ``validation`` are examples."""

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """Examples of a batch, over all processes together."""

    @property
    @abstractmethod
    def batches_per_epoch(self) -> int:
        """Batches in one pass over the training split."""

    @property
    def unasked_size(self) -> int | None:
        """How many examples were drawn before the split, where nobody said how many."""
        return None

    @property
    @abstractmethod
    def lower_validation(self) -> str:
        """The setting, as it stands, that must be raised where the validation split is empty."""

    @abstractmethod
    def load(self) -> Trainable:
        """Return the model, as it starts, on the CPU."""

    @abstractmethod
    def make_module(self, trained: Any, total_steps: int) -> TrainingModule:
        """Return a model of ``load``, adapted by ``tuning``, with its loss and its optimizer."""

    @abstractmethod
    def make_plan(self, trained: Any, total_steps: int, kept: KeptPixels | None) -> Plan:
        """Return the batches of every step.

        Args:
            trained: as ``load`` returned it.
            total_steps: optimizer steps of the whole run.
            kept: decoded pixels that runs of one process share.
        """

    @abstractmethod
    def save(self, trained: Any, folder: Path) -> None:
        """Write what is left of a run, ``checkpoint/``, whole or not at all."""

    def measure(self, trained: Any) -> dict[str, Any]:
        """Return what is measured once of the weights that are kept, for ``run.json``."""
        return {}

    def record(self) -> dict[str, Any]:
        """Return what ``run.json`` says of this kind of task alone."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Return what a dry run says of this kind of task alone."""
        return {}

    def log_examples(self, folder: Path) -> None:  # noqa: B027  # most tasks show none
        """Write examples of a finished run's data to where its curves go, if it shows any."""

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.trainer.total_steps(self.batches_per_epoch)

    def make_steps(self, total_steps: int) -> Steps:
        """Return how a module makes its steps."""
        from cfaug.train.module import Steps

        return Steps(
            self.optim,
            total=total_steps,
            gradient_clip=self.trainer.gradient_clip,
            seed=self.seed,
            parts=self.trainer.accumulate_grad_batches,
        )

    def count_seen(self, batches: int) -> int:
        """Return the training examples of so many batches, repetitions counted."""
        rows, size = self.counts["train"], self.batch_size
        epochs, rest = divmod(batches, self.batches_per_epoch)
        return epochs * min(rows, self.batches_per_epoch * size) + min(rows, rest * size)

    def check(self) -> None:
        """Refuse to choose or stop by a validation split that is empty.

        Raises:
            UserError: naming the setting.
        """
        trainer = self.trainer
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
