"""A memory cache of decoded pixels, for the epochs of a run, its workers, and later runs."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from cfaug.core.pixels import ImageTransform
from cfaug.data.index import Index

TAG = np.dtype([("image", np.int64), ("check", np.uint32)])

Key = tuple[str, ImageTransform]
"""The origin of decoded pixels: the hash of an index, and the image transform."""


class Slab:
    """Pixels of one source at one size, in memory shared with forked processes.

    An image's place is its number modulo the number of places; the first image stored there stays.
    Reads are verified by a checksum, so that a process that reads while another writes finds no
    image rather than half of one.

    Args:
        places: the capacity, in images.
        size: the side of an image in pixels.
    """

    def __init__(self, places: int, size: int) -> None:
        self.places, self.size = places, size
        if places:
            pixels = mmap.mmap(-1, places * 3 * size**2)
            tags = mmap.mmap(-1, places * TAG.itemsize)
            self._pixels = np.frombuffer(pixels, np.uint8).reshape(places, size, size, 3)
            # New memory is zero, so images are numbered from 1 here.
            self._tags = np.frombuffer(tags, TAG)

    @property
    def nbytes(self) -> int:
        """Size in bytes when full; a page is allocated at its first write."""
        return self.places * place_bytes(self.size)

    def get(self, image: int) -> np.ndarray | None:
        """Return an image, uint8 (3, size, size), read-only; ``None`` if it is not cached."""
        if not self.places:
            return None
        place = image % self.places
        tag = self._tags[place]
        if tag["image"] != image + 1:
            return None
        pixels: np.ndarray = self._pixels[place]
        if zlib.crc32(pixels.data) != tag["check"]:
            return None
        pixels.flags.writeable = False
        return pixels.transpose(2, 0, 1)

    def put(self, image: int, pixels: np.ndarray) -> None:
        """Keep an image if its place is free."""
        if not self.places or self._tags[image % self.places]["image"]:
            return
        place = image % self.places
        self._pixels[place] = pixels.transpose(1, 2, 0)
        self._tags[place] = (image + 1, zlib.crc32(self._pixels[place].data))


def place_bytes(size: int) -> int:
    """Return the size in bytes of an image with a side of ``size`` pixels, with its tag."""
    return 3 * size**2 + TAG.itemsize


class KeptPixels:
    """Slabs by content, within a limit; slabs of earlier runs are dropped for those of this one.

    A copy in a process that was not forked starts empty.

    Args:
        limit: maximum size of all slabs together, in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._slabs: dict[Key, Slab] = {}

    def __getstate__(self) -> Mapping[str, Any]:
        return {"limit": self.limit, "_slabs": {}}

    def slabs(
        self, indexes: tuple[Index | None, Index | None], transform: ImageTransform
    ) -> tuple[Slab, Slab]:
        """Return a slab for each source; empty without a source, and smaller if memory is short."""
        wanted = {
            (index.hash, transform): int(index.images.max()) + 1
            for index in indexes
            if index is not None
        }
        missing = {key: images for key, images in wanted.items() if key not in self._slabs}
        each = place_bytes(transform.size)
        self._make_room(sum(missing.values()) * each, wanted)
        for key, images in missing.items():
            self._slabs[key] = Slab(min(images, max(0, self._free // each)), transform.size)
        first, second = (
            Slab(0, transform.size) if index is None else self._slabs[index.hash, transform]
            for index in indexes
        )
        return first, second

    @property
    def _free(self) -> int:
        return self.limit - sum(slab.nbytes for slab in self._slabs.values())

    def _make_room(self, needed: int, wanted: Mapping[Key, int]) -> None:
        for key in [key for key in self._slabs if key not in wanted]:  # the oldest first
            if self._free >= needed:
                return
            del self._slabs[key]
