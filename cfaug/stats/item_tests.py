"""Is one model better than another, over the items of a test? Exact tests and bootstraps.

Two checkpoints have no spread over seeds, but they answered the same questions. ``mcnemar`` and
``sign_test`` treat items as independent. Items that were sampled together (the captions of one
image, the members of one set) are not: ``cluster_bootstrap`` draws whole clusters, and
``nested_bootstrap`` draws within them as well.

NaN and infinite values are a ``ValueError``: leave out the items that do not count first. scipy
takes long to import, so it is imported where it is used.

``scipy.stats.binomtest`` finds the p of ``mcnemar`` and takes 60 times as long (0.3 ms).
``scipy.stats.bootstrap`` of the clusters' sums and sizes draws the same resamples in twice the time
(100 times for hits, where only kinds of clusters are drawn here), without a second stage within
clusters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from cfaug.stats.significance import Alternative, require_finite

RESAMPLES = 10_000
DRAWN_AT_ONCE = 2**18
"""Clusters drawn at once: 2 MB of indices, which fit a processor's cache."""
FEW_KINDS = 10
"""Clusters per kind (equal sum and weight) from which drawing kinds is faster than clusters."""
ROUNDING = 1e-12
"""A mean below this share of the mean absolute difference is rounding error, that is, zero."""


def mcnemar(better: int, worse: int, alternative: Alternative = "two-sided") -> float:
    """Return p of McNemar's exact test (1947) for two models' right and wrong answers.

    Under the null hypothesis an item on which the two models differ is as likely to be answered
    right by the one as by the other: ``better`` is binomial with probability 1/2. Items on which
    both are right or both are wrong say nothing.

    Args:
        better: number of items that only the first model answers right.
        worse: number of items that only the second model answers right.
        alternative: direction; ``"greater"``: the first model is better, ``"less"``: the second is.

    Returns:
        p; 1 if the models differ on no item.

    Raises:
        ValueError: if a count is negative or the alternative is unknown.

    >>> mcnemar(6, 0), mcnemar(6, 0, "greater")
    (0.03125, 0.015625)
    """
    _check_alternative(alternative)
    if min(better, worse) < 0:
        raise ValueError(f"counts must be 0 or more, not {better} and {worse}")
    n = better + worse
    if n == 0:
        return 1.0
    from scipy.special import betainc

    def at_most(k: int) -> float:
        # Not bdtr, which loses digits from a million on and is nan beyond 32 bits.
        return float(betainc(n - k, k + 1, 0.5)) if 0 <= k < n else float(k >= n)

    few = {"greater": worse, "less": better, "two-sided": min(better, worse)}[alternative]
    if alternative != "two-sided":
        return at_most(few)
    return 1.0 if better == worse else min(1.0, 2 * at_most(few))


def sign_test(
    differences: Sequence[float] | np.ndarray, alternative: Alternative = "two-sided"
) -> float:
    """Return p of the exact sign test: are differences as often above zero as below it?

    Differences of zero are left out (Dixon and Mood, 1946). For binary values it is McNemar's test.

    Args:
        differences: first model minus second, one per item, (n,).

    Raises:
        ValueError: if there is no difference, or one is NaN or infinite.

    >>> sign_test([0.5, 0.0, 0.1, 0.2, 0.3, 0.9, 2.0])
    0.03125
    """
    values = require_finite(differences)
    return mcnemar(int((values > 0).sum()), int((values < 0).sum()), alternative)


@dataclass(frozen=True)
class MeanDifference:
    """A mean over items with its bootstrap interval and p.

    Attributes:
        low: lower end of the percentile interval.
        high: upper end of the percentile interval.
        p_greater: one-sided p for a mean above zero, see ``cluster_bootstrap``.
    """

    mean: float
    low: float
    high: float
    p_greater: float
    p_less: float
    items: int
    clusters: int

    @property
    def p(self) -> float:
        """The two-sided p: twice the smaller one-sided p, at most 1; ``nan`` if both are."""
        return min(2 * min(self.p_greater, self.p_less), 1.0)


def cluster_bootstrap(
    differences: Sequence[float] | np.ndarray,
    clusters: Sequence[Any] | np.ndarray,
    rng: np.random.Generator,
    *,
    weights: Sequence[float] | np.ndarray | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> MeanDifference:
    """Bootstrap the mean of differences, drawing whole clusters with replacement.

    Every resample draws as many clusters as there are and takes the weighted mean of all items in
    them, so that a cluster counts by its number of items (Davison and Hinkley, 1997, section 3.8).
    With one item per cluster it is the ordinary bootstrap. With few clusters (below about 20)
    intervals are too narrow.

    p inverts the interval: one-sided, it is the share of resamples whose mean is zero or on the
    other side of it, with the observed data counted as one more. It is never below 1 / (resamples +
    1).

    Args:
        differences: first model minus second, one per item, (n,).
        clusters: the cluster each item was sampled in, any comparable values, (n,).
        rng: generator that draws the resamples; the same state gives the same answer.
        weights: weight of each item, above 0, (n,); ``None`` gives all items the same weight.

    Returns:
        The mean, the percentile interval and p; interval and p are ``nan`` with a single cluster.

    Raises:
        ValueError: if there is no difference, one is NaN or infinite, lengths differ, or another
            argument is out of range.

    >>> interval = cluster_bootstrap([1, 1, 0, 1], ["a", "a", "b", "c"], np.random.default_rng(0))
    >>> interval.mean, interval.items, interval.clusters
    (0.75, 4, 3)
    """
    values = require_finite(differences)
    weighing = np.ones(len(values)) if weights is None else require_finite(weights)
    if not len(values) == len(clusters) == len(weighing):
        raise ValueError(
            f"{len(values)} differences, {len(clusters)} clusters and {len(weighing)} weights: "
            "lengths must be equal"
        )
    if (weighing <= 0).any() or not 0 < level < 1 or resamples < 1:
        raise ValueError("weights and resamples must be above 0, and level between 0 and 1")
    names, codes = np.unique(np.asarray(clusters), return_inverse=True)
    codes = codes.reshape(-1)
    totals = np.bincount(codes, values * weighing, len(names))
    sizes = np.bincount(codes, weighing, len(names))
    mean = float(totals.sum() / sizes.sum())
    if len(names) < 2:
        nan = math.nan
        return MeanDifference(mean, nan, nan, nan, nan, len(values), len(names))
    means = _resampled_means(totals, sizes, rng, resamples)
    ends = read_interval(means, level, float(np.abs(values).mean()))
    return MeanDifference(mean, *ends, len(values), len(names))


def nested_bootstrap(
    values_G: Sequence[float] | np.ndarray,
    resampled_GB: np.ndarray,
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> MeanDifference:
    """Bootstrap the mean of a statistic over clusters, drawing clusters and, within each, items.

    For a statistic of each cluster that is not a mean over its items, such as the difference of two
    models' MaxSkew of one subject. Every resample draws as many clusters as there are and, each
    time one is drawn, takes one of the cluster's own resamples (Davison and Hinkley, 1997, section
    3.8, both stages with replacement). A cluster's resamples are shifted so that their mean is its
    observed value: statistics such as a maximum are larger in resamples than in the data.

    The spread of the clusters' values already includes the variance from items, which is added once
    more here, so the interval is wider than that of ``cluster_bootstrap`` for the same values: a
    difference whose interval excludes 0 depends neither on the choice of clusters nor on that of
    items.

    Args:
        values_G: the statistic of each cluster, (clusters,).
        resampled_GB: the statistic of each cluster's own resamples, (clusters, resamples of items).
        rng: generator that draws clusters and resamples; the same state gives the same answer.

    Returns:
        The mean, the percentile interval and p as for ``cluster_bootstrap``; interval and p are
        ``nan`` with a single cluster. ``items`` and ``clusters`` are both the number of clusters.

    Raises:
        ValueError: if there is no cluster, a value is NaN or infinite, or shapes do not fit.

    >>> resampled = np.array([[0.5, 1.5], [1.0, 3.0], [2.0, 4.0]])  # each cluster, twice
    >>> interval = nested_bootstrap([1.0, 2.0, 3.0], resampled, np.random.default_rng(0))
    >>> interval.mean, round(interval.low, 2), round(interval.high, 2)
    (2.0, 0.83, 3.33)
    """
    values = require_finite(values_G)
    resampled = np.asarray(resampled_GB, np.float64)
    if resampled.ndim != 2 or len(resampled) != len(values) or not resampled.size:
        raise ValueError(
            f"{len(values)} clusters and resamples {resampled.shape}: shapes do not fit"
        )
    if not np.isfinite(resampled).all():
        raise ValueError("a resample is NaN or infinite")
    if not 0 < level < 1 or resamples < 1:
        raise ValueError("resamples must be above 0, and level between 0 and 1")
    many, mean = len(values), float(values.mean())
    if many < 2:
        nan = math.nan
        return MeanDifference(mean, nan, nan, nan, nan, many, many)
    shifted = resampled - resampled.mean(axis=1, keepdims=True) + values[:, None]
    at_once = max(1, DRAWN_AT_ONCE // many)
    means = []
    for first in range(0, resamples, at_once):
        size = (min(at_once, resamples - first), many)
        clusters, items = rng.integers(many, size=size), rng.integers(resampled.shape[1], size=size)
        means.append(shifted[clusters, items].mean(axis=1))
    ends = read_interval(np.concatenate(means), level, float(np.abs(values).mean()))
    return MeanDifference(mean, *ends, many, many)


def read_interval(
    means: np.ndarray, level: float, size: float
) -> tuple[float, float, float, float]:
    """Return the ends of the percentile interval of resampled means, and p above and below 0.

    Args:
        means: mean of every resample, (resamples,).
        size: magnitude of the values, to which rounding errors are relative.
    """
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    slack, many = ROUNDING * size, len(means)
    above, below = ((1 + int((side <= slack).sum())) / (many + 1) for side in (means, -means))
    return float(low), float(high), above, below


def _resampled_means(
    totals: np.ndarray, sizes: np.ndarray, rng: np.random.Generator, resamples: int
) -> np.ndarray:
    """Return the mean of every resample of clusters, given by their sums and weights.

    Clusters of equal sum and weight are interchangeable, so where there are few kinds of them only
    the number of each kind is drawn: the same distribution with far fewer draws.
    """
    kinds, counts = np.unique(np.stack([totals, sizes]), axis=1, return_counts=True)
    many = len(totals)
    if FEW_KINDS * len(counts) <= many:
        shares = counts / many
        at_once = max(1, DRAWN_AT_ONCE // len(counts))
        means = []
        for first in range(0, resamples, at_once):
            drawn = rng.multinomial(many, shares, size=min(at_once, resamples - first))
            sums = drawn @ kinds.T
            means.append(sums[:, 0] / sums[:, 1])
        return np.concatenate(means)
    at_once = max(1, DRAWN_AT_ONCE // many)
    equal = bool((sizes == sizes[0]).all())
    means = []
    for first in range(0, resamples, at_once):
        rows = rng.integers(many, size=(min(at_once, resamples - first), many))
        weight = sizes[0] * many if equal else sizes[rows].sum(axis=1)
        means.append(totals[rows].sum(axis=1) / weight)
    return np.concatenate(means)


def _check_alternative(alternative: str) -> None:
    choices = get_args(Alternative)
    if alternative not in choices:
        raise ValueError(f"alternative={alternative!r}: choose from {', '.join(choices)}")


# Which differences a test of this size can show: standard errors over items, and a sentence.
#
# A benchmark of 400 items cannot distinguish two models that differ by a point. The standard error
# is that of the mean over items like these, sampled in clusters; it does not include training
# seeds.
#
# ``scipy.stats.sem`` gives the same for independent items; it has no clusters.


def standard_error(
    values: Sequence[float] | np.ndarray, clusters: Sequence[Any] | np.ndarray | None = None
) -> float:
    """Return the standard error of a mean over items that were sampled in clusters.

    With one item per cluster it is the sample standard deviation over sqrt(n): sqrt(p (1 - p) / (n
    - 1)) for right and wrong answers, and for the differences of two models sqrt((b + c - (b - c)^2
    / n) / (n (n - 1))), where b and c are the items that only the one or the other gets right.
    Clusters of unequal size count by their number of items (the linearised ratio: Cochran, 1977,
    section 6.3).

    Args:
        values: one value per item, (n,): right or wrong, any other value, or a difference of two
            models.
        clusters: the cluster each item was sampled in, any comparable values, (n,); ``None`` treats
            items as independent.

    Returns:
        The standard error, in the values' unit; ``nan`` with a single cluster.

    Raises:
        ValueError: if there is no value, one is NaN or infinite, or lengths differ.

    >>> winoground = np.arange(400) < 35  # 8.75 % of 400, as CLIP ViT-B/32 has
    >>> round(standard_error(winoground), 4)
    0.0141
    >>> round(standard_error([1, 1, 0, 0, 1, 1], ["a", "a", "b", "b", "c", "c"]), 4)
    0.3333
    """
    array = require_finite(values)
    names = np.arange(len(array)) if clusters is None else np.asarray(clusters)
    if len(names) != len(array):
        raise ValueError(f"{len(array)} values and {len(names)} clusters: lengths must be equal")
    _, codes = np.unique(names, return_inverse=True)
    residuals = np.bincount(codes.reshape(-1), array - array.mean())
    many = len(residuals)
    if many < 2:
        return math.nan
    return math.sqrt(many / (many - 1) * float((residuals**2).sum())) / len(array)


def least_visible(error: float, clusters: int, level: float = 0.95) -> float:
    """Return the smallest difference that a two-sided test would call significant.

    A true difference of this size is found in half of all tests; for eight of ten it must be 1.4
    times as large.

    Args:
        clusters: number of clusters, or of items where each is its own cluster.
        level: one minus the significance level of the test.

    Returns:
        The difference in the standard error's unit; ``nan`` with fewer than two clusters.

    >>> round(least_visible(0.0141, 400), 3)
    0.028
    """
    if clusters < 2 or math.isnan(error):
        return math.nan
    from scipy.special import stdtrit

    return float(stdtrit(clusters - 1, (1 + level) / 2)) * error


def describe_resolution(
    error: float, items: int, clusters: int, *, factor: float = 100, unit: str = "points"
) -> str:
    """Return a sentence on how large a difference has to be to be visible on a set of this size.

    Args:
        factor: factor that multiplies printed values, 100 for fractions.

    >>> describe_resolution(standard_error(np.arange(400) < 35), 400, 400)
    '400 items: standard error 1.4 points; a difference below 2.8 points cannot be seen on this set'
    >>> describe_resolution(0.0043, 7512, 1561)[:53]
    '7,512 items in 1,561 clusters: standard error 0.43 po'
    """
    about = f"{items:,} item{'s' * (items != 1)}"
    if clusters != items:
        about += f" in {clusters:,} cluster{'s' * (clusters != 1)}"
    if math.isnan(error):
        return f"{about}: too few for a standard error"
    if error == 0:
        return f"{about}: no spread, so no standard error"
    least = least_visible(error, clusters)
    return (
        f"{about}: standard error {_two_digits(factor * error)} {unit}; a difference below "
        f"{_two_digits(factor * least)} {unit} cannot be seen on this set"
    )


def _two_digits(value: float) -> str:
    """Return at least two digits: 0.43, 1.4, 12.3."""
    return f"{value:.2g}" if value < 1 else f"{value:,.1f}"
