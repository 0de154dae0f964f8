"""A perceptual hash of images: nearly equal for nearly equal images, whatever their encoding.

It is pHash (Zauner, 2010, section 3.2.1) as ``imagehash.phash`` computes it: a grey copy of 32 x 32
pixels, its DCT-II, and for each of the 8 x 8 lowest frequencies, the mean among them, whether it is
above their median. The copy is made by averaging areas, where imagehash resamples by Lanczos: of
320 parts of photos as many crops were found, and different ones were 16 bits apart or more, not 12.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.progress import Progress

if TYPE_CHECKING:
    from PIL import Image

SIDE = 32
"""Side of the grey copy in pixels."""
LOW = 8
"""Number of frequencies in each direction that make the hash: 64 bits."""
LEAST_STRUCTURE = 2.0
"""Least median of the frequencies' absolute coefficients, in grey tones of 255 of an orthonormal
DCT. Below it, the noise of an encoder decides the bits, and so it would of flat images, all of
which would otherwise have one hash; rounding alone has a deviation of 0.3."""
WITHOUT = 0
"""The hash of an image that has too little structure for one."""


def perceptual_hash(image: Image.Image) -> int:
    """Return the hash of an image, 64 bits; ``WITHOUT`` if it has too little structure.

    Images without a hash are flat, or exactly symmetric, so that half of the coefficients are 0.

    >>> from PIL import Image
    >>> perceptual_hash(Image.new("RGB", (40, 30), "red"))
    0
    """
    from PIL.Image import Resampling

    grey = image.convert("L").resize((SIDE, SIDE), Resampling.BOX)
    basis = _cosines()
    low = (basis @ np.asarray(grey, np.float64) @ basis.T).reshape(-1)
    if np.median(np.abs(low[1:])) < LEAST_STRUCTURE:
        return WITHOUT
    return int.from_bytes(np.packbits(low > np.median(low)).tobytes(), "big")


@cache
def _cosines() -> np.ndarray:
    """Return the lowest frequencies of the orthonormal DCT-II, float64 (LOW, SIDE)."""
    places = (2 * np.arange(SIDE) + 1) * np.arange(LOW)[:, None]
    waves = np.cos(np.pi * places / (2 * SIDE)) * np.sqrt(2 / SIDE)
    waves[0] /= np.sqrt(2)
    return waves


def nearest_hashes(
    hashes: np.ndarray, others: np.ndarray, distance: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find for each hash the nearest of the others, if it differs in at most ``distance`` bits.

    All pairs are compared, 64 bits at once: some 0.4 billion a second on one core.

    Args:
        hashes: uint64 (n,).
        others: uint64 (m,).

    Returns:
        The places among ``hashes`` that have a near one, ascending, the place of the nearest among
        ``others`` (the first of equals), both int64, and how many bits differ, int64.
    """
    known = np.flatnonzero(hashes != WITHOUT)
    there = np.flatnonzero(others != WITHOUT)
    if not len(there):
        known = known[:0]
    compared = others[there]
    nearest, bits = np.empty(len(known), np.int64), np.empty(len(known), np.int64)
    at_once = max(1, PAIRS_AT_ONCE // max(1, len(there)))
    with Progress("comparing images", len(known), "images") as progress:
        for start in range(0, len(known), at_once):
            part = slice(start, start + at_once)
            apart = np.bitwise_count(hashes[known[part], None] ^ compared)
            nearest[part] = apart.argmin(axis=1)
            bits[part] = apart[np.arange(len(apart)), nearest[part]]
            progress.advance(len(apart))
    near = bits <= distance
    return known[near], there[nearest[near]], bits[near]


PAIRS_AT_ONCE = 2**20
"""Number of pairs that are compared at once: 8 MiB, which the processor's cache holds."""
