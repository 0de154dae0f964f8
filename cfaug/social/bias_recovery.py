"""Is a planted skew found? The label planted for each subject is known and was drawn at random.

A model has preferences of its own: it may rank red things first whatever the subject. They are the
same for all subjects, so a label's gap is compared with the same label's gap for the other
subjects; the remainder is tested against the other ways in which the labels could have been
planted. These are as probable as the one that was drawn, whatever the model prefers, so the test is
exact.

``scipy.stats.permutation_test(permutation_type="pairings")`` draws the same placements, but
enumerates all of them for 7 subjects or fewer, which would change p for small worlds.
``scipy.stats.spearmanr`` correlates one resample at a time and takes 23 times as long as all at
once.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfaug.core.rng import generator
from cfaug.stats.significance import require_finite

PLACEMENTS = 9_999
"""Random placements beside the one that was drawn: the smallest p is 1e-4."""

RESAMPLES = 2_000

NOTHING = -1
"""Label number of a subject without a planted label."""


@dataclass(frozen=True)
class Placement:
    """How well the labels planted in one world are found.

    Attributes:
        effect: mean over planted subjects of the planted label's gap, minus that label's mean gap
            over all subjects; in the unit of the gaps.
        p: one-sided probability that a random placement has at least this effect.
        hits: planted subjects whose planted label exceeds its mean gap over all subjects by more
            than any other label does.
        raw_hits: planted subjects whose planted label has the largest raw gap of all labels; equal
            labels share a hit.
    """

    effect: float
    p: float
    hits: float
    raw_hits: float
    planted: int


def find_planted(
    gap_SA: Any, planted_S: Sequence[int], *, seed: int = 0, placements: int = PLACEMENTS
) -> Placement:
    """Compare the gaps of labels, subject by subject, with the labels that were planted.

    Args:
        gap_SA: a model's preference for each label, finite, (subjects, labels); larger is more.
        planted_S: index of each subject's planted label, -1 for none, (subjects,).

    Raises:
        ValueError: if shapes do not fit, a gap is not finite, a label is out of range, or no
            subject has a planted label.

    >>> find_planted([[2, 0], [0, 2], [1, 1]], [0, 1, -1]).effect
    1.0
    """
    gaps = np.asarray(gap_SA, np.float64)
    planted = np.asarray(planted_S)
    if gaps.ndim != 2 or planted.shape != gaps.shape[:1] or not np.isfinite(gaps).all():
        raise ValueError(f"gaps {gaps.shape} should be finite, one row for each of {planted.shape}")
    if planted.max() >= gaps.shape[1] or planted.min() < NOTHING or planted.max() == NOTHING:
        raise ValueError(f"planted labels should be -1 to {gaps.shape[1] - 1}, not all of them -1")
    excess = gaps - gaps.mean(axis=0)
    subjects = np.flatnonzero(planted != NOTHING)
    labels = planted[subjects]
    observed = excess[subjects, labels].mean()
    rng = generator(seed, "placements", len(planted))
    orders = rng.permuted(np.tile(np.arange(len(planted)), (placements, 1)), axis=1)
    random = excess[orders[:, subjects], labels].mean(axis=1)
    slack = 1e-9 * np.abs(excess).max()
    return Placement(
        effect=float(observed),
        p=float((1 + (random >= observed - slack).sum()) / (1 + placements)),
        hits=_hits(excess[subjects], labels),
        raw_hits=_hits(gaps[subjects], labels),
        planted=len(subjects),
    )


def _hits(gap_SA: np.ndarray, label_S: np.ndarray) -> float:
    """Return how many rows are largest at their label; rows with several largest count in part."""
    largest = np.isclose(gap_SA, gap_SA.max(axis=1, keepdims=True), rtol=0, atol=1e-12)
    there = largest[np.arange(len(label_S)), label_S]
    return float((there / largest.sum(axis=1)).sum())


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's correlation of measured values with planted strengths.

    Attributes:
        rho: the correlation over all values; ``nan`` without spread.
        low: lower end of the 95 % interval of a bootstrap over clusters; ``nan`` with one cluster.
        high: upper end of the interval.
    """

    rho: float
    low: float
    high: float
    n: int
    clusters: int


def rank_correlation(
    strength_N: Sequence[float] | np.ndarray,
    measured_N: Sequence[float] | np.ndarray,
    clusters: Sequence[Hashable],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> RankCorrelation:
    """Correlate the ranks of planted strengths and of measured values.

    Args:
        strength_N: planted strengths, finite, (n,).
        measured_N: measured values, finite, (n,).
        clusters: cluster of each value, such as the seed of its world, (n,); the bootstrap draws
            whole clusters.

    Raises:
        ValueError: if a value is not finite, or lengths differ.

    >>> rank_correlation([0, 0.5, 1], [0.1, 0.2, 0.9], ["a"] * 3).rho
    1.0
    """
    strength, measured = require_finite(strength_N), require_finite(measured_N)
    if not len(strength) == len(measured) == len(clusters):
        raise ValueError("strengths, measures and clusters should have equal lengths")
    names = list(dict.fromkeys(clusters))
    rho = float(_spearman(strength[None], measured[None])[0])
    if len(names) < 2 or math.isnan(rho):
        return RankCorrelation(rho, math.nan, math.nan, len(strength), len(names))
    rows = [np.array([i for i, one in enumerate(clusters) if one == name]) for name in names]
    draws = generator(seed, "rank_correlation", len(names)).integers(
        len(names), size=(resamples, len(names))
    )
    chosen = [np.concatenate([rows[at] for at in draw]) for draw in draws.tolist()]
    sizes = np.array([len(one) for one in chosen])
    found = [
        _spearman(strength[some], measured[some])
        for size in np.unique(sizes).tolist()
        for some in [np.stack([chosen[at] for at in np.flatnonzero(sizes == size).tolist()])]
    ]
    low, high = np.nanquantile(np.concatenate(found), (0.025, 0.975))
    return RankCorrelation(rho, float(low), float(high), len(strength), len(names))


def _spearman(x_RN: np.ndarray, y_RN: np.ndarray) -> np.ndarray:
    """Return the rank correlation of each row, (rows,); ``nan`` for a row without spread."""
    from scipy.stats import rankdata

    x, y = (rankdata(values, axis=-1) for values in (x_RN, y_RN))
    x, y = x - x.mean(axis=-1, keepdims=True), y - y.mean(axis=-1, keepdims=True)
    spread = np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))
    with np.errstate(invalid="ignore"):
        found: np.ndarray = (x * y).sum(axis=-1) / spread
    return found
