"""Sources of a paper's sizes, and plain twins of how rows are drawn of them."""

from __future__ import annotations

from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal
from functools import cache

from cfaug.core.rng import derive
from tests.data.making import Columns

REAL_ROWS, PAIRS = 17_410, 17_410
"""Of MS-COCO and COCO-Counterfactuals."""


def half_up(number: Decimal) -> int:
    return int(number.quantize(Decimal(1), ROUND_HALF_UP))


def floor(number: Decimal) -> int:
    return int(number.quantize(Decimal(1), ROUND_FLOOR))


def keyed(code: int, seed: int, *names: str | int) -> int:
    """SplitMix64's finaliser in Python's own integers."""
    key = code ^ derive(seed, *names)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = ((key ^ (key >> shift)) * factor) % 2**64
    return key ^ (key >> 31)


@cache
def photos(count: int, captions: int = 4) -> Columns:
    """Captions of photos, so many each; group i is photo i."""
    return Columns.of((i // captions, 1) for i in range(count))


@cache
def pairs(count: int, per_photo: int = 4) -> Columns:
    return Columns.of((i // per_photo, 2) for i in range(count))


@cache
def apart(count: int) -> Columns:
    """Pairs of photos that ``photos`` does not have."""
    return Columns.of((10**6 + i, 2) for i in range(count))
