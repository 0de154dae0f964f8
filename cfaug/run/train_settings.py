"""The top level of ``conf/train.yaml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from cfaug.errors import UserError
from cfaug.run.compose import Config
from cfaug.run.preset import Preset
from cfaug.run.setting_types import Node, RunPaths
from cfaug.validation import Positive, check_fields

NOT_OF_A_RUN = ("preset", "by_seed", "overrides")
"""What composition and the command line bring beside the settings."""

OPTIONAL_GROUPS = ("tuning", "loss")
"""Groups that a run's ``config.yaml`` lacks where nothing was chosen of them."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """One run as it was asked for; ``conf/train.yaml`` describes the settings.

    Args:
        name: the experiment.
        arm: the arm; ``None`` is named after the overrides.
        seed: order of examples and dropout.
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
        parallel: runs of a sweep at once.
        on_error: ``continue`` with the other runs of a sweep when one fails, or ``stop``.
        share_image_cache: share decoded images between the runs of a process.
        image_cache_mib: memory in MiB for them, in all processes together.
        extend: continue a finished run to more steps.
        threads: torch's threads; ``None`` uses all cores.
        tuning: node of the parameters to train; ``None`` trains all.
        loss: node of ``LossSettings``, or of ``AnswerLoss`` of questions; ``None`` is the model's
            authors'.
        preset: the training settings of the model's file, already filled in above.
        by_seed: settings that depend on the seed, as written.
        overrides: the words of the command line.
    """

    name: str
    arm: str | None
    seed: int
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
    parallel: Positive = 1
    on_error: Literal["continue", "stop"] = "continue"
    share_image_cache: bool = False
    image_cache_mib: Positive = 4096
    extend: bool = False
    threads: int | None = None
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
            raise UserError(
                "extend=true goes on from a run that overwrite=true removes: choose one"
            )

    def config(self) -> Config:
        """Return the content of a run's ``config.yaml``, with nodes as composed."""
        settings: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: value
            for name, value in settings.items()
            if name not in NOT_OF_A_RUN and not (name in OPTIONAL_GROUPS and value is None)
        }
