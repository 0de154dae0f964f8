"""Sources of the paper's sizes, and what its plans draw of them."""

from __future__ import annotations

from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal
from functools import cache
from typing import Any

import numpy as np

from cfaug.core.rng import derive
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.records import Mixture
from cfaug.data.mixture.settings import DataSettings, Sources
from cfaug.papers.coco_cf.mixtures import PaperMixture
from tests.data.making import Columns

PLANS = ("real", "base", "medium", "all", "human_validated")
REAL_ROWS, PAIRS, VALIDATED = 17_410, 17_410, 25_482
"""Of MS-COCO and COCO-Counterfactuals, and how many rows people validated."""


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


def settings_of(plan: str, **more: Any) -> DataSettings:
    given = {"seed": 108, "human_labels": "labels" if plan == "human_validated" else None}
    return DataSettings("real", "cf", plan=PaperMixture(plan), **(given | more))


class Validated:
    """Labels that validate the first so many rows of a fixed shuffle."""

    def __init__(self, count: int) -> None:
        self.count = count

    def find_validated(self, index: Columns) -> np.ndarray:
        mask = np.zeros(len(index), bool)
        mask[np.random.default_rng(0).permutation(len(index))[: self.count]] = True
        return mask


def mixed(
    plan: str, real: Columns, cf: Columns, labels: Validated | None = None, **more: Any
) -> Mixture:
    asked = settings_of(plan, **more)
    return mix(asked, Sources(real, cf if asked.needed[1] else None, labels=labels))
