"""Paired gaps of labels within matched sets, and whether planted ones are found.

The images of a set share everything but the label, so a label's score minus its set's mean does not
depend on how well the set suits the prompt. All images count, not only the K best, which makes this
far more sensitive than MaxSkew@K; and it says which label is preferred, and by how much.

``scipy.stats.friedmanchisquare`` needs every label once in every set and has no exact test of
pairs; on such sets ``friedman`` finds its p. ``label_gaps`` finds the intervals and p of
``ttest_1samp(nan_policy="omit")``, except for the last bit, in a 13th of the time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import generator
from cfaug.stats.item_tests import ROUNDING, sign_test
from cfaug.stats.ranking import as_array, finite
from cfaug.stats.significance import NO_SPREAD, require_finite, sign_flip


@dataclass(frozen=True)
class LabelGaps:
    """How far each label is above the mean of its set, averaged over sets.

    Attributes:
        mean: gap of each label, float64 (labels,); ``nan`` for a label that is in no set.
        low: lower end of Student's interval over sets, ``nan`` with fewer than two sets.
        high: upper end of the interval, in the same form.
        p: two-sided p of the paired t-test over sets; ``nan`` with fewer than two sets.
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    p: NDArray[np.float64]

    @property
    def range(self) -> float:
        """The largest mean minus the smallest: how far apart the labels are, 0 or more."""
        return float(np.nanmax(self.mean) - np.nanmin(self.mean))


def label_gaps(
    values_N: Any, labels_N: np.ndarray, sets_N: np.ndarray, level: float = 0.95
) -> LabelGaps:
    """Compare labels within sets.

    Where a set has a label several times, as with marginal labels, the label's mean counts.
    ``friedman`` tests all labels at once for any difference.

    Args:
        values_N: score of each image, or its rank in its set from ``rank_within``, (images,).
        labels_N: index of each image's label, integers from 0 (images,).
        sets_N: index of each image's set, integers from 0 (images,).
        level: nominal coverage of the intervals.

    Raises:
        ValueError: if there is no image, a value is NaN or infinite, or lengths differ.

    >>> gaps = label_gaps([0.3, 0.1, 0.5, 0.1], np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
    >>> gaps.mean.round(3).tolist(), round(gaps.range, 3)
    ([0.15, -0.15], 0.3)
    """
    from scipy.special import stdtr, stdtrit

    values = finite(as_array(values_N).astype(np.float64), "values")
    gaps = gaps_by_set(values, labels_N, sets_N)
    unseen = NO_SPREAD * max(float(np.abs(values).max()), 1.0)
    n = (~np.isnan(gaps)).sum(axis=0)
    mean = np.where(n > 0, np.nansum(gaps, axis=0) / np.maximum(n, 1), np.nan)
    squares = np.nansum((gaps - mean) ** 2, axis=0)
    error = np.sqrt(squares / np.maximum(n - 1, 1) / np.maximum(n, 1))
    spread = (n > 1) & (error > unseen)
    degrees = np.maximum(n - 1, 1)
    reach = np.where(spread, stdtrit(degrees, (1 + level) / 2) * error, np.nan)
    p = np.where(spread, 2 * stdtr(degrees, -np.abs(mean / np.where(spread, error, 1))), np.nan)
    nothing = (n > 1) & ~spread & (np.abs(mean) <= unseen)
    return LabelGaps(mean, mean - reach, mean + reach, np.where(nothing, 1.0, p))


def gaps_by_set(values_N: Any, labels_N: np.ndarray, sets_N: np.ndarray) -> np.ndarray:
    """Return how far each label is above the mean of each set, float64 (sets, labels).

    A label that a set has several times counts with its mean; one that a set lacks is ``nan``.

    Args:
        values_N: value of each image, (images,).
        labels_N: index of each image's label, integers from 0 (images,).
        sets_N: index of each image's set, integers from 0 (images,).

    Raises:
        ValueError: if there is no image, a value is NaN or infinite, or lengths differ.
    """
    values = finite(as_array(values_N).astype(np.float64), "values")
    labels, sets = np.asarray(labels_N), np.asarray(sets_N)
    if not len(values) or not len(values) == len(labels) == len(sets):
        raise ValueError(
            f"{len(values)} values, {len(labels)} labels and {len(sets)} sets: lengths should be "
            "equal and above 0"
        )
    many = int(labels.max()) + 1
    centred = values - _means(values, sets)[sets]
    cell = sets * many + labels
    counts = np.bincount(cell, minlength=(int(sets.max()) + 1) * many)
    totals = np.bincount(cell, centred, len(counts))
    gaps: np.ndarray = np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
    return gaps.reshape(-1, many)


def resample_range(gaps_SA: np.ndarray, drawn_BS: np.ndarray) -> np.ndarray:
    """Return ``LabelGaps.range`` for every resample of sets, float64 (resamples,).

    Args:
        gaps_SA: gap of each set and label, from ``gaps_by_set``, (sets, labels).
        drawn_BS: number of times each resample has each set, from ``draw_sets``, (resamples, sets);
            at least one drawn set has a label.

    >>> resample_range(np.array([[1.0, -1.0], [0.5, -0.5]]), np.array([[1, 1], [0, 2]])).tolist()
    [1.5, 1.0]
    """
    there = ~np.isnan(gaps_SA)
    drawn = np.asarray(drawn_BS, np.float64)
    counts = drawn @ there
    means = np.where(
        counts > 0, drawn @ np.where(there, gaps_SA, 0.0) / np.maximum(counts, 1), np.nan
    )
    ranges: np.ndarray = np.nanmax(means, axis=1) - np.nanmin(means, axis=1)
    return ranges


def rank_within(values_N: Any, sets_N: np.ndarray) -> np.ndarray:
    """Return each image's rank in its set, from 1 for the best to 0 for the last, float64 (N,).

    Equal values share the mean of their ranks; the only image of a set is at 1/2.

    Args:
        values_N: score of each image, (images,); larger is better.
        sets_N: index of each image's set, integers (images,).

    >>> rank_within([0.3, 0.1, 0.3, 0.9], np.array([0, 0, 0, 1])).tolist()
    [0.75, 0.0, 0.75, 0.5]
    """
    values, sets = as_array(values_N).astype(np.float64), np.asarray(sets_N)
    order = np.lexsort((values, sets))
    ordered, sorted_sets = values[order], sets[order]
    starts = np.r_[True, sorted_sets[1:] != sorted_sets[:-1]]
    runs = np.cumsum(starts | np.r_[True, ordered[1:] != ordered[:-1]]) - 1
    first = np.flatnonzero(starts)
    below = np.arange(len(ordered)) - np.repeat(first, np.diff(np.r_[first, len(ordered)]))
    size = np.repeat(np.diff(np.r_[first, len(ordered)]), np.diff(np.r_[first, len(ordered)]))
    ranks = np.empty(len(ordered))
    ranks[order] = np.where(size > 1, _means(below, runs)[runs] / np.maximum(size - 1, 1), 0.5)
    return ranks


def friedman(values_N: Any, labels_N: np.ndarray, sets_N: np.ndarray) -> float:
    """Return the two-sided p of no label effect within sets, by the chi-squared approximation.

    For ranks in sets that have each label once it is Friedman's test (1937), corrected for ties. In
    general it is the quadratic form of the labels' sums in their covariance over all permutations
    of labels within sets (the extended Mantel-Haenszel test of mean scores), so a label may be in a
    set several times, and values may be scores. With few sets it is conservative.

    Where every set is a pair, one image of each of two labels, the approximation would be too
    liberal; there it is the exact sign test for ranks, and a sign-flip permutation test for scores.

    Args:
        values_N: value of each image, (images,).
        labels_N: index of each image's label, integers from 0, (images,).
        sets_N: index of each image's set, integers from 0, (images,).

    Returns:
        p; 1 if no values differ within any set, or there is only one label.

    >>> labels, sets = np.tile([0, 1], 3), np.repeat([0, 1, 2], 2)
    >>> friedman([1, 0, 1, 0, 1, 0], labels, sets)  # the first wins in all three sets
    0.25
    """
    from scipy.special import chdtrc

    values = as_array(values_N).astype(np.float64)
    labels, sets = np.asarray(labels_N), np.asarray(sets_N)
    # Pairs: every set has one image of each of two labels.
    cell = np.bincount(sets * 2 + np.minimum(labels, 1))
    if labels.max() == 1 and len(cell) % 2 == 0 and (cell == 1).all():
        order = np.lexsort((labels, sets))
        pairs = values[order][::2] - values[order][1::2]
        sizes = np.abs(pairs[pairs != 0])
        if not len(sizes) or sizes.max() - sizes.min() <= ROUNDING * sizes.max():
            return sign_test(pairs)
        return sign_flip(pairs, "two-sided")
    sums, covariance = _moments(values, labels, sets)
    scale = float(np.abs(covariance).max())
    if scale <= (NO_SPREAD * max(float(np.abs(values).max()), 1.0)) ** 2:
        return 1.0
    spread, directions = np.linalg.eigh(covariance / scale)
    free = spread > 1e-9  # without the sum of all labels, which no permutation changes
    along = directions[:, free].T @ sums
    return float(chdtrc(int(free.sum()), (along**2 / spread[free]).sum() / scale))


def chance_range(values_N: Any, labels_N: np.ndarray, sets_N: np.ndarray) -> float:
    """Return the expected ``LabelGaps.range`` if labels do not matter within sets.

    The labels' means are approximately normal, with the variance that permutations of labels within
    sets give them; if sets have all labels equally often, the expected range of that many normal
    values is known. Good from about ten sets on.

    Args:
        values_N: value of each image, (images,).
        labels_N: index of each image's label, integers from 0, (images,).
        sets_N: index of each image's set, integers from 0, (images,); all sets have the same
            labels.

    >>> round(chance_range([1, 0, 1, 0, 0, 1], np.tile([0, 1], 3), np.repeat([0, 1, 2], 2)), 3)
    0.461
    """
    labels = np.asarray(labels_N)
    _, covariance = _moments(as_array(values_N).astype(np.float64), labels, np.asarray(sets_N))
    many = len(covariance)
    if many < 2:
        return 0.0
    variance = float((np.diag(covariance) / np.bincount(labels) ** 2).mean())
    return _normal_range(many) * math.sqrt(variance * many / (many - 1))


@lru_cache(maxsize=256)
def _normal_range(many: int) -> float:
    """Return the expected range of independent standard normal values (Tippett, 1925)."""
    from scipy.special import ndtr

    x = np.linspace(-10, 10, 4001)
    return float(np.trapezoid(1 - ndtr(x) ** many - ndtr(-x) ** many, x))


def _moments(
    values: np.ndarray, labels: np.ndarray, sets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of each label's values minus their sets' means, and its covariance.

    The covariance is that over all permutations of labels within sets.
    """
    many, strata = int(labels.max()) + 1, int(sets.max()) + 1
    centred = values - _means(values, sets)[sets]
    counts = np.bincount(sets * many + labels, minlength=strata * many).reshape(-1, many)
    sizes = np.maximum(counts.sum(axis=1), 1)
    variance = np.bincount(sets, centred**2, strata) / np.maximum(sizes - 1, 1)
    sums = np.bincount(labels, centred, many)
    return sums, np.diag(variance @ counts) - (counts.T * (variance / sizes)) @ counts


def _means(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the mean of each group, numbered from 0; 0 for an empty group."""
    means: np.ndarray = np.bincount(groups, values) / np.maximum(np.bincount(groups), 1)
    return means


# Is a planted skew found? The label planted for each subject is known and was drawn at random.
#
# A model has preferences of its own: it may rank red things first whatever the subject. They are
# the same for all subjects, so a label's gap is compared with the same label's gap for the other
# subjects; the remainder is tested against the other ways in which the labels could have been
# planted. These are as probable as the one that was drawn, whatever the model prefers, so the test
# is exact.
#
# ``scipy.stats.permutation_test(permutation_type="pairings")`` draws the same placements, but
# enumerates all of them for 7 subjects or fewer, which would change p for small worlds.
# ``scipy.stats.spearmanr`` correlates one resample at a time and takes 23 times as long as all at
# once.

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
    rows = [
        np.array([i for i, cluster in enumerate(clusters) if cluster == name]) for name in names
    ]
    draws = generator(seed, "rank_correlation", len(names)).integers(
        len(names), size=(resamples, len(names))
    )
    chosen = [np.concatenate([rows[at] for at in draw]) for draw in draws.tolist()]
    sizes = np.array([len(indices) for indices in chosen])
    rhos = [
        _spearman(strength[some], measured[some])
        for size in np.unique(sizes).tolist()
        for some in [np.stack([chosen[at] for at in np.flatnonzero(sizes == size).tolist()])]
    ]
    low, high = np.nanquantile(np.concatenate(rhos), (0.025, 0.975))
    return RankCorrelation(rho, float(low), float(high), len(strength), len(names))


def _spearman(x_RN: np.ndarray, y_RN: np.ndarray) -> np.ndarray:
    """Return the rank correlation of each row, (rows,); ``nan`` for a row without spread."""
    from scipy.stats import rankdata

    x, y = (rankdata(values, axis=-1) for values in (x_RN, y_RN))
    x, y = x - x.mean(axis=-1, keepdims=True), y - y.mean(axis=-1, keepdims=True)
    spread = np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))
    with np.errstate(invalid="ignore"):
        rho: np.ndarray = (x * y).sum(axis=-1) / spread
    return rho
