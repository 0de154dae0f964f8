"""Settings of one process and of its shards, set by the configuration; no heavy imports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cfaug.validation import Positive, check_fields, check_part

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
        check_fields(self)
        check_part(self.part, self.parts)


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

    sets_per_shard: Positive = 100
    image_format: ImageFormat = "png"
    batch: Positive = 64

    def __post_init__(self) -> None:
        check_fields(self, "shards")
