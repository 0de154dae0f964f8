"""The input and the result of planning a run, for every kind of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.errors import UserError
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
class Asked:
    """A run's settings other than its data, as objects.

    Attributes:
        model: where to start.
        optim: optimizer and schedule.
        trainer: how long, on which device, what to keep.
        logger: where the curves go besides ``metrics.csv``.
        tuning: which parameters are trained; ``None`` is all.
        loss: what counts as a negative, or what is learnt from a question's options; ``None`` is
            the choice of the model's authors.
        seed: the run's.
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
    def of(cls, settings: TrainSettings) -> Asked:
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
                "loss=...: what counts as a negative is of contrastive training; leave it out with "
                f"{beside}"
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
                f"trainer.micro_batch_size={pieces} is of contrastive training, whose loss needs "
                "the whole batch: set data.batch_size, and trainer.accumulate_grad_batches beside "
                f"it, which is exact with {beside}"
            )

    def of_task(self) -> dict[str, Any]:
        """Return the arguments of every :class:`cfaug.train.task.Task` except the data's seed."""
        names = ("model", "optim", "trainer", "logger", "tuning", "seed")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A task, and the part of its data that identifies its run.

    Attributes:
        task: what is trained, on what and how.
        data: values of settings of ``data`` that were left open.
        hashed: settings whose value in the run's identity differs from the written one.
        content: hashes of the training data, by the name of the setting.
        older: those of these hashes that differ by an older rule, by that rule.
        sources: what was recognised of every source, by its role.
    """

    task: Task
    data: Mapping[str, Any]
    hashed: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, str] = field(default_factory=dict)
    older: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _build_optional(node: Mapping[str, Any] | None) -> Any:
    return None if node is None else build(node)
