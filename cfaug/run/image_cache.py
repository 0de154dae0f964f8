"""``share_image_cache=true``: the runs of one process share decoded images.

They share imports, indexes, decoded pixels and tokenized captions, but never weights, optimizers or
randomness, so a run has the same bytes as on its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cfaug.data.mixture.pixel_cache import KeptPixels

MIB = 1024 * 1024


def shared_pixels(share: bool, mib: int, processes: int) -> KeptPixels | None:
    """Return the image cache that the runs of this process share; ``None`` without one.

    Args:
        share: whether the runs share an image cache.
        mib: memory of the caches of all processes together, in MiB.
        processes: number of processes that run at once.
    """
    return _of_this_process(mib * MIB // processes) if share else None


@lru_cache(maxsize=1)
def _of_this_process(limit: int) -> KeptPixels:
    from cfaug.data.mixture.pixel_cache import KeptPixels

    return KeptPixels(limit)
