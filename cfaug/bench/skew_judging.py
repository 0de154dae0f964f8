"""Settings that say how the rankings of a skew benchmark are scored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from cfaug.errors import UserError
from cfaug.metrics.skew import ALPHA, Zeros

Permute = Literal["sets", "pool"]
Compat = Literal["released"]

MOST_PERMUTATIONS, MOST_RESAMPLES = 100_000_000, 1_000_000
"""Permutations take time, some seconds per subject for a million; resamples take memory."""

LABELS = "labels"
"""A K that is the number of labels of each labelling."""


@dataclass(frozen=True)
class Judging:
    """How rankings are scored: these are settings of ``cfaug.bench.skew.Skew``."""

    k: tuple[int | str, ...] | None = None
    zeros: Zeros = "smooth"
    alpha: float = ALPHA
    permute: Permute = "sets"
    permutations: int = 10_000
    resamples: int = 2_000
    seed: int = 0
    compat: Compat | None = None

    def __post_init__(self) -> None:
        for name, choices in (("zeros", Zeros), ("permute", Permute), ("compat", Compat)):
            value, allowed = getattr(self, name), get_args(choices)
            if value not in allowed and not (name == "compat" and value is None):
                raise UserError(
                    f"benchmark.{name}={value} is invalid: choose from {', '.join(allowed)}"
                )
        for name, most in (("permutations", MOST_PERMUTATIONS), ("resamples", MOST_RESAMPLES)):
            number = getattr(self, name)
            if type(number) is not int or not 1 <= number <= most:
                raise UserError(f"benchmark.{name}={number} is invalid: from 1 to {most:,}")
        if isinstance(self.alpha, bool) or not 0 < self.alpha < math.inf:
            raise UserError(f"benchmark.alpha={self.alpha} is invalid: a number above 0")
        for k in self.k or ():
            if k != LABELS and (type(k) is not int or k < 1):
                raise UserError(
                    f"benchmark.k: {k} is invalid: give numbers from 1, or {LABELS} for the "
                    "number of labels"
                )

    def ks(self, members: int, labels: int) -> list[int]:
        """Return the distinct values of K.

        Args:
            members: number of combinations of the grid.
            labels: number of labels of the labelling.
        """
        asked = (members,) if self.k is None else self.k
        found = [labels if k == LABELS else int(k) for k in asked]
        if self.compat == "released":  # main.py: never fewer than there are labels
            found = [max(k, labels) for k in found]
        return list(dict.fromkeys(found))
