"""The top level of ``conf/train.yaml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from cfaug.core.errors import UserError
from cfaug.core.validation import Means, Positive, Processes, RunSeed, check_fields
from cfaug.run.compose import Config
from cfaug.run.preset import Preset
from cfaug.run.setting_types import Node, RunPaths
from cfaug.run.threads import Threads

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
