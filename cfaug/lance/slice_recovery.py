"""Compare the factors and slices found to make a classifier fail with the planted ones."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from cfaug.lance.edit_effects import GroupEffect

TOP_MEMBERS = 10
"""Number of a slice's members that count."""

MINIMUM = 0.1
"""Smallest excess of a factor that counts: a smaller one may be real but has no practical use. On
scenes held out from the training of ShapeScapes' classifiers the oracle's edits of the planted
factor move the probability of the true class by 0.7 to 0.8, those of others by 0.04 to 0.07, up or
down."""


def discover_factors(
    effects: Sequence[GroupEffect], *, minimum: float = MINIMUM, alpha: float = 0.05
) -> list[Hashable]:
    """Return the factors that a classifier relies on, the one it relies on most first.

    A classifier relies on a factor if its edits move the classifier by at least ``minimum`` more
    than a reconstruction does, significantly after correction.

    Args:
        effects: effect of the edits of each factor, measured together by ``group_effects``.
        minimum: smallest excess that counts, in probability; a smaller one may be real but has no
            practical use.
        alpha: largest corrected p that counts as significant.
    """
    found = [one for one in effects if one.p_holm <= alpha and one.excess >= minimum]
    return [one.group for one in sorted(found, key=lambda one: -one.excess)]


@dataclass(frozen=True)
class SliceRetrieval:
    """How well discovered factors match the planted ones, summed over all classifiers.

    Attributes:
        right: number of factors that were both found and planted.
        found: number of factors that were found.
        planted: number of factors that were planted.
    """

    right: int
    found: int
    planted: int

    @property
    def precision(self) -> float:
        """Share of the found factors that were planted; ``nan`` if nothing was found."""
        return self.right / self.found if self.found else math.nan

    @property
    def recall(self) -> float:
        """Share of the planted factors that were found; ``nan`` if nothing was planted."""
        return self.right / self.planted if self.planted else math.nan


def compare_factors(
    found: Sequence[Collection[Hashable]], planted: Sequence[Collection[Hashable]]
) -> SliceRetrieval:
    """Count found and planted factors over classifiers.

    Factors found for a classifier without a planted one count in ``found`` as well, so that false
    alarms cost precision.

    Args:
        found: the factors found for each classifier, for example only the first of
            ``discover_factors``.
        planted: the factors planted for each classifier.

    Raises:
        ValueError: if the two differ in the number of classifiers.

    >>> got = compare_factors([{"style"}, {"colour"}, {"colour"}, set()],
    ...                       [{"style"}, {"style"}, set(), {"style"}])
    >>> got.right, got.found, got.planted, round(got.precision, 3), round(got.recall, 3)
    (1, 3, 3, 0.333, 0.333)
    """
    pairs = [(set(own), set(true)) for own, true in zip(found, planted, strict=True)]
    return SliceRetrieval(
        right=sum(len(own & true) for own, true in pairs),
        found=sum(len(own) for own, _ in pairs),
        planted=sum(len(true) for _, true in pairs),
    )


def precision_at(members: Sequence[int], planted: Collection[int], k: int = TOP_MEMBERS) -> float:
    """Return the share of a slice's first ``k`` members that belong to a planted slice.

    The divisor is ``k`` for a slice of fewer members as well: a group of one cannot reach 1.

    Args:
        members: rows of a discovered slice, in descending order of membership.
        planted: rows of the planted slice.
        k: number of members that count.

    Raises:
        ValueError: if ``k`` is below 1, or a member is duplicated.

    >>> precision_at([4, 2, 9], {2, 4, 5}, k=4)
    0.5
    """
    if k < 1:
        raise ValueError(f"k={k} must be 1 or more")
    if len(set(members)) < len(members):
        raise ValueError("the members of a slice are duplicated")
    true = set(planted)
    return sum(row in true for row in list(members)[:k]) / k
