"""The input and the result of planning a run, for every kind of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError
from cfaug.run.build import build
from cfaug.run.train_settings import TrainSettings

if TYPE_CHECKING:
    from cfaug.models.specs import ModelSpec
    from cfaug.train.settings import (
        AnswerLoss,
        LoggerSettings,
        LossSettings,
        OptimSettings,
        TrainerSettings,
    )
    from cfaug.train.task import Task
    from cfaug.train.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """A run's settings other than its data, as objects.

    Attributes:
        model: the specification of the initial model.
        optim: optimizer and schedule.
        trainer: length, device, precision and saving of the training.
        logger: the destination of the curves besides ``metrics.csv``.
        tuning: the parameters to train; ``None`` trains all.
        loss: the loss over images and captions, or over a question's options; ``None`` is the loss
            of the model's authors.
        seed: the run's seed.
        paths: folders of runs, shards and indexes.
    """

    model: ModelSpec
    optim: OptimSettings
    trainer: TrainerSettings
    logger: LoggerSettings
    tuning: Tuning | None
    loss: LossSettings | AnswerLoss | None
    seed: int
    paths: Mapping[str, Any]

    @classmethod
    def of(cls, settings: TrainSettings) -> TrainRequest:
        """Make the objects of a run's settings.

        Raises:
            UserError: for a value that one of them refuses.
        """
        return cls(
            model=build(settings.model), trainer=build(settings.trainer),
            optim=build(settings.optim), logger=build(settings.logger),
            tuning=_build_optional(settings.tuning), loss=_build_optional(settings.loss),
            seed=settings.seed, paths=settings.paths,
        )  # fmt: skip

    @property
    def cache(self) -> Path:
        """The folder of cached indexes."""
        return Path(self.paths["cache"])

    def refuse_contrastive(self, beside: str) -> None:
        """Refuse settings of contrastive training.

        Args:
            beside: the word of the command that chose another training.

        Raises:
            UserError: naming the setting.
        """
        if self.loss is not None:
            raise UserError(
                "loss=... sets what counts as a negative in contrastive training: leave it out "
                f"with {beside}"
            )
        self.refuse_pieces(beside)

    def refuse_pieces(self, beside: str) -> None:
        """Refuse encoding in pieces, which only a contrastive loss needs.

        Args:
            beside: the word of the command that chose another training.

        Raises:
            UserError: naming the setting.
        """
        pieces = self.trainer.micro_batch_size
        if pieces is not None:
            raise UserError(
                f"trainer.micro_batch_size={pieces} is for contrastive training, whose loss needs "
                "the whole batch: set data.batch_size, and trainer.accumulate_grad_batches beside "
                f"it, which is exact with {beside}"
            )

    def of_task(self) -> dict[str, Any]:
        """Return the arguments of every :class:`cfaug.train.task.Task` except the data's seed."""
        names = ("model", "optim", "trainer", "logger", "tuning", "seed")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """A task, and the part of its data that identifies its run.

    Attributes:
        task: the task to train, with its model, data and settings.
        data: values for settings of ``data`` that were left open.
        hashed: settings whose value in the run's identity differs from the written one.
        content: {setting: hash of its training data}.
        older: {setting: hash by an older rule}, where that hash differs.
        sources: {role of a source: the form in which it was read}.
    """

    task: Task
    data: Mapping[str, Any]
    hashed: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, str] = field(default_factory=dict)
    older: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _build_optional(node: Mapping[str, Any] | None) -> Any:
    return None if node is None else build(node)
