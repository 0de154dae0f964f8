"""The input and the result of planning a run, for every kind of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cfaug.core.errors import UserError
from cfaug.core.processes import Threads
from cfaug.core.validation import Means, Positive, Processes, RunSeed, check_fields
from cfaug.run.binding import Node, RunPaths
from cfaug.run.build import build
from cfaug.run.compose import Config
from cfaug.run.preset import Preset

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


# The top level of ``conf/train.yaml``.

NOT_OF_A_RUN = ("preset", "by_seed", "overrides")
"""Fields that composition and the command line fill, which are not settings."""
OPTIONAL_GROUPS = ("tuning", "loss")
"""Groups that a run's ``config.yaml`` lacks if nothing was chosen from them."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """The settings of one run, which ``conf/train.yaml`` describes.

    Args:
        name: the experiment's name.
        arm: the arm's name; ``None`` names it after the overrides.
        seed: the seed of the order of examples and of dropout.
        data: node of ``DataSettings``.
        model: node of a model's specification.
        optim: node of ``OptimSettings``.
        trainer: node of ``TrainerSettings``.
        logger: node of ``LoggerSettings``.
        paths: folders of runs, shards and indexes.
        dry_run: describe the run, and stop.
        overwrite: remove another run in the folder and start anew.
        part: number of this part of a sweep, from 0.
        parts: number of parts of a sweep.
        parallel: number of runs of a sweep at once.
        on_error: ``continue`` with the other runs of a sweep when one fails, or ``stop``.
        share_image_cache: share decoded images between the runs of a process.
        image_cache_mib: memory of the shared images in MiB, in all processes together.
        extend: continue a finished run to more steps.
        threads: number of torch's threads; ``None`` uses all cores.
        tuning: node of the parameters to train; ``None`` trains all.
        loss: node of ``LossSettings``, or of ``AnswerLoss`` for questions; ``None`` is the loss of
            the model's authors.
        preset: the training settings of the model's file, already filled into the others.
        by_seed: settings that depend on the seed, as written.
        overrides: the words of the command line.
    """

    name: str
    arm: str | None
    seed: RunSeed
    data: Node
    model: Node
    optim: Node
    trainer: Node
    logger: Node
    paths: RunPaths
    dry_run: bool
    overwrite: bool
    part: int = 0
    parts: int = 1
    parallel: Annotated[Processes, Means("runs at once")] = 1
    on_error: Literal["continue", "stop"] = "continue"
    share_image_cache: bool = False
    image_cache_mib: Annotated[Positive, Means("MiB of decoded images")] = 4096
    extend: bool = False
    threads: Threads = None
    tuning: Node | None = None
    loss: Node | None = None
    preset: Preset | None = None
    by_seed: Mapping[str, str] | None = None
    overrides: Sequence[str] = ()

    def check(self) -> None:
        """Refuse settings that are invalid for any data and model.

        Raises:
            UserError: naming the setting and the choices.
        """
        check_fields(self)
        if self.extend and self.overwrite:
            raise UserError("extend=true continues a run that overwrite=true removes: choose one")

    def config(self) -> Config:
        """Return the content of a run's ``config.yaml``, with composed nodes."""
        settings: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: value
            for name, value in settings.items()
            if name not in NOT_OF_A_RUN and not (name in OPTIONAL_GROUPS and value is None)
        }
