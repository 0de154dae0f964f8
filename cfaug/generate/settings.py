"""Settings of one process and of its shards, set by the configuration; no heavy imports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cfaug.core.validation import Positive, Seed, check_fields, check_part

ImageFormat = Literal["png", "webp", "jpeg"]
Stage = Literal["captions", "images", "all"]
SetPer = Literal["proposal", "example"]

TEXT_PARTS = ("annotators", "texts_from", "replace_texts", "editor")
"""The parts of a recipe that decide the proposals."""

IMAGE_PARTS = (
    "image_editor", "draws", "scorers", "report", "selection", "postprocess", "set_per", "count_by"
)  # fmt: skip
"""The parts of a recipe that decide the images."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings of one process: its stage, its part of the shards, its handling of failures.

    Args:
        stage: ``captions`` (edits only), ``images`` (from existing edits), or ``all``.
        seed: the seed of every draw.
        part: the number of this process's part: it makes every shard i with i % ``parts`` = part.
        parts: the number of parts.
        publish_incomplete: whether to publish a shard without its failed items, and list them;
            otherwise the shard is not published, and the next run retries them.
        overwrite: whether to remove the output of other settings from the folder.
        pipeline_scoring: whether a batch is scored in a second thread while the next one is made,
            which saves time if images are made on a GPU.

    Raises:
        UserError: if a choice or a number is invalid.
    """

    stage: Stage = "all"
    seed: Seed = 0
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
    """The size and format of shards, and the size of batches; all of them affect the bytes.

    Args:
        sets_per_shard: the number of examples for each shard; a shard has fewer sets if some
            examples have no proposal or no accepted candidate.
        image_format: ``png``, ``webp`` (lossless), or ``jpeg`` (quality 95, 4:4:4).
        batch: the largest number of candidates made and scored together. The plan fixes the content
            of a batch; a killed process loses at most one batch.

    Raises:
        UserError: for a count below 1, or an unknown format.
    """

    sets_per_shard: Positive = 100
    image_format: ImageFormat = "png"
    batch: Positive = 64

    def __post_init__(self) -> None:
        check_fields(self, "shards")
