"""Settings that say how the rankings of a skew benchmark are scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Interval

from cfaug.core.errors import UserError
from cfaug.core.validation import PositiveNumber, Seed, check_fields
from cfaug.social.skew_metrics import SKEW_ALPHA, Zeros

Permute = Literal["sets", "pool"]
Compat = Literal["released"]

MOST_PERMUTATIONS, MOST_RESAMPLES = 100_000_000, 1_000_000
"""Permutations take time, some seconds per subject for a million; resamples take memory."""

LABELS = "labels"
"""A K that is the number of labels of each labelling."""


@dataclass(frozen=True)
class Judging:
    """How rankings are scored; the fields are settings of ``cfaug.social.skew.Skew``."""

    k: tuple[int | str, ...] | None = None
    zeros: Zeros = "smooth"
    alpha: PositiveNumber = SKEW_ALPHA
    permute: Permute = "sets"
    permutations: Annotated[int, Interval(ge=1, le=MOST_PERMUTATIONS)] = 10_000
    resamples: Annotated[int, Interval(ge=1, le=MOST_RESAMPLES)] = 2_000
    seed: Seed = 0
    compat: Compat | None = None

    def __post_init__(self) -> None:
        check_fields(self, "benchmark")
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
