"""The images of a batch's candidates, decoded when they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cfaug.core.pixels import as_floats, round_pixels
from cfaug.core.protocols import Progressive
from cfaug.core.types import ImageJob, Images

if TYPE_CHECKING:
    from torch import Tensor

TOGETHER = 32
"""Number of images decoded and embedded at once, which bounds the memory for large images."""

Place = tuple[int, int]
"""The place of an image in a batch: the number of its job, and its number within the job."""


class CandidateImages(Protocol):
    """The images of a batch, as scorers read them.

    Attributes:
        jobs: the jobs of the batch.
        unsafe: the images decoded so far that the safety checker flags.
    """

    jobs: Sequence[ImageJob]
    unsafe: set[Place]

    def places(self, j: int) -> list[Place]:
        """Return the place of every text's image of job ``j``; jobs and texts may share one."""
        ...

    def look(self, places: Iterable[Place]) -> Iterator[tuple[list[Place], Tensor]]:
        """Decode images: yield places and float32 (n, 3, H, W) in [0, 1], a few at a time."""
        ...

    def images(self, j: int) -> Images:
        """Return the images of job ``j``, all of which were decoded by ``look``."""
        ...


class LazyImages:
    """Images of a progressive editor: latents until they are decoded.

    Args:
        editor: the editor that made the latents.
        jobs: the jobs of the batch.
        latents: the latents of each job, (texts, channels, height, width).
    """

    def __init__(
        self, editor: Progressive, jobs: Sequence[ImageJob], latents: Sequence[Tensor]
    ) -> None:
        self.jobs = jobs
        self.unsafe: set[Place] = set()
        self._editor, self._latents = editor, latents
        self._pixels: dict[Place, np.ndarray] = {}
        first: dict[object, int] = {}
        self._base = [first.setdefault(_base_key(job), j) for j, job in enumerate(jobs)]

    def places(self, j: int) -> list[Place]:
        """Return the place of every text's image of job ``j``; jobs may share a base image."""
        return [(self._base[j], 0), *((j, i) for i in range(1, len(self.jobs[j].texts)))]

    def look(self, places: Iterable[Place]) -> Iterator[tuple[list[Place], Tensor]]:
        """Decode images, and record unsafe ones."""
        import torch

        wanted = list(places)
        for start in range(0, len(wanted), TOGETHER):
            part = wanted[start : start + TOGETHER]
            images = self._editor.decode(torch.stack([self._latents[j][i] for j, i in part]))
            yield part, images
            flags = self._editor.unsafe(images)
            self.unsafe.update(place for place, flag in zip(part, flags, strict=True) if flag)
            rounded = round_pixels(images)
            self._pixels.update(zip(part, rounded, strict=True))

    def images(self, j: int) -> Images:
        """Return the images of job ``j``, one for each text."""
        return Images(tuple(self._pixels[place] for place in self.places(j)))


class ReadyImages:
    """Finished images: pixels or files.

    Args:
        jobs: the jobs of the batch.
        made: the images of each job.
        decode: whether ``look`` decodes images, for scorers that embed them.
    """

    def __init__(
        self, jobs: Sequence[ImageJob], made: Sequence[Images], *, decode: bool = True
    ) -> None:
        self.jobs = jobs
        self.unsafe = {(j, i) for j, images in enumerate(made) for i in images.unsafe}
        self._made, self._decode = made, decode

    def places(self, j: int) -> list[Place]:
        """Return the place of every text's image of job ``j``; texts may share one."""
        return [(j, i) for i in self._made[j].shown]

    def look(self, places: Iterable[Place]) -> Iterator[tuple[list[Place], Tensor]]:
        """Decode images one by one, because they may differ in size."""
        for j, i in places if self._decode else ():
            name = f"the image of {self.jobs[j].proposal.key!r}"
            yield [(j, i)], as_floats(self._made[j].images[i], name)[None]

    def images(self, j: int) -> Images:
        """Return the images of job ``j``."""
        return self._made[j]


def _base_key(job: ImageJob) -> object:
    """Return everything that a base image depends on: the candidates of a tree share one."""
    draw, source = job.draw, None if job.image is None else job.image.digest
    return job.texts[0], source, draw.seed, draw.cfg, tuple(sorted(draw.parameters.items()))
