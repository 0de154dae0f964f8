"""An image editor that generates nothing: the source image serves every text of a proposal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.pixels import MAX_PIXELS, open_image, to_rgb
from cfaug.core.types import ImageJob, Images

WRITTEN = ("PNG", "JPEG", "WEBP")
"""Formats in shards; images of other formats (GIF, BMP, TIFF) are re-encoded losslessly."""


@dataclass(frozen=True)
class SameImage:
    """An image editor for methods that change only texts: it returns the source's file unchanged.

    Args:
        max_pixels: the largest number of pixels by an image's header; larger images are invalid.
    """

    max_pixels: int = MAX_PIXELS

    keeps_files: ClassVar[bool] = True

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        """Return the source image of each job, once for each of its texts."""
        return [Images((self._read(job),), (0,) * len(job.texts)) for job in jobs]

    def describe(self) -> dict[str, str]:
        """Return the source of the images."""
        return {"images": "the source's own"}

    def _read(self, job: ImageJob) -> bytes | np.ndarray:
        name = f"the image of {job.proposal.example.key!r}"
        if job.image is None:
            raise UserError(
                f"{name} is missing: SameImage needs a source with images (data.source=FOLDER) "
                "and a recipe that asks for them (source_images: true)"
            )
        data = job.image.read()
        image = open_image(data, name, self.max_pixels)
        return data if image.format in WRITTEN else np.asarray(to_rgb(image, name))
