"""Settings of one process and of its shards, set by the configuration; no heavy imports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cfaug.errors import UserError
from cfaug.generate.plan import check_part

ImageFormat = Literal["png", "webp", "jpeg"]
Stage = Literal["captions", "images", "all"]
SetPer = Literal["proposal", "example"]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The share of a run that one process does, and how.

    Args:
        stage: ``captions`` (edits only), ``images`` (from existing edits), or ``all``.
        seed: seed of every draw.
        part: this process makes the shards whose number modulo ``parts`` is this.
        parts: how many parts there are.
        publish_incomplete: publish a shard without its failed items, and list them; otherwise it is
            not published, and the next run retries them.
        overwrite: whether to remove what other settings made in the folder.
        pipeline_scoring: score a batch in a second thread while the next one is made; worth it
            where images are made on a GPU.

    Raises:
        UserError: if a choice or a number is invalid.
    """

    stage: Stage = "all"
    seed: int = 0
    part: int = 0
    parts: int = 1
    publish_incomplete: bool = False
    overwrite: bool = False
    pipeline_scoring: bool = False

    def __post_init__(self) -> None:
        check_part(self.part, self.parts)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise UserError(f"seed must be a whole number, not {self.seed!r}")
        check_choice("stage", self.stage, get_args(Stage))
        if not isinstance(self.publish_incomplete, bool):
            raise UserError(
                f"publish_incomplete={self.publish_incomplete!r} is invalid: choose true or false"
            )


@dataclass(frozen=True)
class ShardSettings:
    """The size and format of shards, and the size of batches; all of it decides the shards' bytes.

    Args:
        sets_per_shard: number of examples from which a shard is made; it has fewer sets if some
            have no proposal or no accepted candidate.
        image_format: ``png``, ``webp`` (lossless), or ``jpeg`` (quality 95, 4:4:4); the same for
            every image of a set.
        batch: limit of candidates that are made and scored together. The plan fixes the content of
            a batch; a killed part loses one batch at most.

    Raises:
        UserError: for a count below 1, or an unknown format.
    """

    sets_per_shard: int = 100
    image_format: ImageFormat = "png"
    batch: int = 64

    def __post_init__(self) -> None:
        for name in ("sets_per_shard", "batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"shards.{name}={value!r} should be a whole number from 1")
        check_choice("shards.image_format", self.image_format, get_args(ImageFormat))


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among the choices.

    Raises:
        UserError: naming them.
    """
    if value not in choices:
        raise UserError(f"{name}={value} is not one of: {', '.join(choices)}")
