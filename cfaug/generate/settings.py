"""How shards are cut and written; light, bound by the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cfaug.errors import UserError

ImageFormat = Literal["png", "webp", "jpeg"]
Stage = Literal["captions", "images", "all"]
OnError = Literal["fail", "publish"]


@dataclass(frozen=True)
class ShardSettings:
    """What a shard holds, and how it is worked through; all of it decides the shard's bytes.

    Args:
        sets_per_shard: captions a shard is made of; those without an edit or an accepted candidate
            leave it smaller.
        image_format: ``png``, ``webp`` (lossless), or ``jpeg`` (quality 95, 4:4:4); the same for
            every image of a set.
        batch: candidates that are denoised, decoded and scored together, at most. What a batch
            holds is fixed by the plan; a part that is killed loses one batch at most.

    Raises:
        UserError: for a count below 1, or another format.
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
    """Refuse a value that is none of the choices.

    Raises:
        UserError: naming them.
    """
    if value not in choices:
        raise UserError(f"{name}={value} is not one of: {', '.join(choices)}")
