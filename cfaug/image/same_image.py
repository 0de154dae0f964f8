"""No drawing: every text of a proposal is shown by the image of its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfaug.errors import UserError
from cfaug.pixels import MAX_PIXELS, open_image, to_rgb
from cfaug.types import ImageJob, Images

WRITTEN = ("PNG", "JPEG", "WEBP")
"""Formats that shards hold; an image of another (GIF, BMP, TIFF) is encoded anew, without loss."""


@dataclass(frozen=True)
class SameImage:
    """An image editor for methods that change texts only: the source's own file, byte by byte.

    Args:
        max_pixels: the most pixels an image may have, by its header; nothing larger is decoded.
    """

    max_pixels: int = MAX_PIXELS

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        """Return the source image of each job, shown by all of its texts.

        Raises:
            UserError: if an example has no image, or one that cannot be read or is too large.
        """
        return [Images((self._read(job),), (0,) * len(job.texts)) for job in jobs]

    def describe(self) -> dict[str, str]:
        """Return where the images are from."""
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
