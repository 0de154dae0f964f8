"""Paired tests of the loss of accuracy and macro scores on the same items after a change.

A macro score is not a mean over items. So clusters of items are resampled with their confusion
matrices, and the scores of each resample are computed anew.

``scipy.stats.bootstrap`` would copy the matrices of every drawn cluster: with 100 clusters of 3
classes it takes 1.5 times as long for the interval as this module for interval and permutation test
together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SCORES = ("accuracy", "precision", "recall", "f1")
RESAMPLES = 10_000
DRAWN_AT_ONCE = 2**22
"""Counts drawn at once: 32 MB."""

ROUNDING = 1e-12
"""Differences of scores below this are rounding error."""


@dataclass(frozen=True)
class ScoreDrop:
    """One score before and after a change.

    Attributes:
        name: name of the score, one of ``SCORES``; all but accuracy are macro means.
        before: score of the items before the change.
        after: score of the same items after the change.
        low: lower end of the 95 % percentile interval of ``before - after``.
        high: upper end of the interval.
        p: two-sided p of a permutation test that exchanges before and after for whole clusters.
    """

    name: str
    before: float
    after: float
    low: float
    high: float
    p: float

    @property
    def drop(self) -> float:
        """The loss, ``before - after``."""
        return self.before - self.after


def score_drops(
    truth_N: np.ndarray,
    before_N: np.ndarray,
    after_N: np.ndarray,
    clusters: Sequence[Any] | np.ndarray,
    rng: np.random.Generator,
    *,
    classes: int,
    resamples: int = RESAMPLES,
) -> list[ScoreDrop]:
    """Return accuracy and macro precision, recall and F1 before and after, each tested.

    Intervals come from a bootstrap over whole clusters and are too narrow with few of them. p
    counts the observed data as one more permutation, so that it is never below 1 / (resamples + 1).
    Classes count as in :func:`cfaug.stats.confusion.macro_scores`.

    Args:
        truth_N: index of each item's true class, integers (items,).
        before_N: index of the class predicted before the change, (items,).
        after_N: index of the class predicted after the change, (items,).
        clusters: the cluster each item was sampled in, any comparable values, (items,).
        rng: generator that draws the resamples and the permutations.
        classes: number of classes.
        resamples: number of resamples, and of permutations.

    Returns:
        The drop of each score, in the order of ``SCORES``; intervals and p are ``nan`` with a
        single cluster.

    Raises:
        ValueError: if there is no item, lengths differ or an index is not that of a class.

    >>> found = score_drops(np.array([0, 1]), np.array([0, 1]), np.array([0, 0]), ["a", "b"],
    ...                     np.random.default_rng(0), classes=2)
    >>> [(one.name, round(one.drop, 3)) for one in found]
    [('accuracy', 0.5), ('precision', 0.75), ('recall', 0.5), ('f1', 0.667)]
    """
    counts = _count(truth_N, before_N, after_N, clusters, classes)
    before, after = (_scores(side.sum(axis=0)[None])[0] for side in counts)
    low = high = p = np.full(len(SCORES), math.nan)
    many = counts.shape[1]
    if many > 1:
        drops = np.concatenate(
            [_scores(one) - _scores(other) for one, other in _resample(counts, rng, resamples)]
        )
        low, high = np.quantile(drops, [0.025, 0.975], axis=0)
        turned = np.concatenate(
            [_scores(one) - _scores(other) for one, other in _exchange(counts, rng, resamples)]
        )
        extreme = np.abs(turned) >= np.abs(before - after) - ROUNDING
        p = (1 + extreme.sum(axis=0)) / (resamples + 1)
    numbers = zip(SCORES, before, after, low, high, p, strict=True)
    return [ScoreDrop(name, *map(float, values)) for name, *values in numbers]


def _count(
    truth: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    clusters: Sequence[Any] | np.ndarray,
    classes: int,
) -> np.ndarray:
    """Return the confusion matrices of every cluster, float64 (2, clusters, classes ** 2)."""
    sides = [np.asarray(one).astype(np.int64) for one in (truth, before, after)]
    if not len(sides[0]) or len({len(one) for one in (*sides, np.asarray(clusters))}) > 1:
        raise ValueError("truth, answers and clusters need one value per item, not 0 items")
    for one in sides:
        if not 0 <= one.min() <= one.max() < classes:
            raise ValueError(f"a class is outside 0 to {classes - 1}")
    names, place = np.unique(np.asarray(clusters), return_inverse=True)
    cells = classes * classes
    found = np.empty((2, len(names), cells))
    for number, said in enumerate(sides[1:]):
        codes = place.reshape(-1) * cells + sides[0] * classes + said
        found[number] = np.bincount(codes, minlength=len(names) * cells).reshape(-1, cells)
    return found


def _chunks(many: int, resamples: int) -> Iterator[int]:
    size = max(1, DRAWN_AT_ONCE // many)
    for start in range(0, resamples, size):
        yield min(size, resamples - start)


def _resample(
    counts: np.ndarray, rng: np.random.Generator, resamples: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the matrices of resamples of clusters, before and after, each (some, cells)."""
    many = counts.shape[1]
    for some in _chunks(many, resamples):
        drawn = rng.multinomial(many, np.full(many, 1 / many), size=some)
        yield drawn @ counts[0], drawn @ counts[1]


def _exchange(
    counts: np.ndarray, rng: np.random.Generator, resamples: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the matrices with before and after exchanged in random clusters."""
    many = counts.shape[1]
    difference, total = counts[1] - counts[0], counts.sum(axis=1)
    for some in _chunks(many, resamples):
        kept = total[0] + rng.integers(2, size=(some, many)) @ difference
        yield kept, total.sum(axis=0) - kept


def _scores(matrices: np.ndarray) -> np.ndarray:
    """Return the scores of confusion matrices (n, cells): float64 (n, 4)."""
    classes = math.isqrt(matrices.shape[1])
    square = matrices.reshape(-1, classes, classes)
    hits = np.diagonal(square, axis1=1, axis2=2)
    support, said = square.sum(axis=2), square.sum(axis=1)
    counted = (support + said > 0).sum(axis=1)

    def mean(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
        shares = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
        found: np.ndarray = shares.sum(axis=1) / counted
        return found

    accuracy = hits.sum(axis=1) / support.sum(axis=1)
    return np.stack(
        [accuracy, mean(hits, said), mean(hits, support), mean(2 * hits, support + said)], axis=1
    )
