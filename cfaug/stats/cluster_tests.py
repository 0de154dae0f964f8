"""A mean over items that were sampled in clusters: p, interval and standard error for few too.

A bootstrap that draws clusters calls a difference significant in a fifth of all tests without one
where there are three clusters. Here p comes from the signs of the clusters' sums, and the interval
from what that test would not reject.

``scipy.stats.permutation_test`` finds the p of the sums of up to 16 clusters; it has no interval.
scipy takes long to import, so it is imported where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfaug.core.rng import generator
from cfaug.stats.significance import EXACT_UP_TO, require_finite

DRAWN_AT_ONCE = 2**18
"""Clusters drawn at once: 2 MB of indices, which fit a processor's cache."""
FEW_KINDS = 10
"""Clusters per kind (equal sum and size) from which drawing kinds is faster than clusters."""
SUBSETS = 9_999
"""Random subsets of clusters where all 2**k would be too many."""
CUT_AT_LEAST = 3
"""Subset means that an interval leaves out at each end, at least: at 95 % there are 3 from 7
clusters on. With fewer, one more or less moves the coverage by several points."""
LARGEST_UNIT = 64
"""Sums are looked for as multiples of 1/1 to 1/64: right and wrong, averaged over seeds."""
STEPS = 10**8
"""Additions up to which the distribution of flipped sums is computed rather than drawn."""
ROUNDING = 1e-12
"""A sum below this share of the absolute values is rounding error, that is, zero."""

SIGN_FLIPS = "sign flips of clusters of items"


@dataclass(frozen=True)
class MeanDifference:
    """A mean over items with its interval and p.

    Attributes:
        low: lower end of the interval.
        high: upper end of the interval.
        p_greater: one-sided p for a mean above zero, see ``cluster_mean``.
        test: the test behind p; empty for a bootstrap.
    """

    mean: float
    low: float
    high: float
    p_greater: float
    p_less: float
    items: int
    clusters: int
    test: str = field(default="", kw_only=True)

    @property
    def p(self) -> float:
        """The two-sided p: twice the smaller one-sided p, at most 1; ``nan`` if both are."""
        return min(2 * min(self.p_greater, self.p_less), 1.0)


def cluster_mean(
    values: Sequence[float] | np.ndarray,
    clusters: Sequence[Any] | np.ndarray,
    *,
    level: float = 0.95,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> MeanDifference:
    """Return the mean of values over items that were sampled in clusters, its interval and p.

    The mean is that over items, so a cluster counts by its number of items.

    **p**: if there were no difference, the sum of each cluster could as well have had the other
    sign (Fisher, 1935). One-sided, p is the share of the 2**k patterns of signs whose mean is at
    least as large; so it is never below 2**-k. It is exact up to 16 clusters, and for any number
    where sums are multiples of a common unit, such as right and wrong answers; for other values
    9,999 random patterns are drawn and the observed one is counted as one more. With a cluster an
    item and values of -1, 0 and 1 it is McNemar's exact p.

    **Interval**: the values that this test would not reject. They lie between two of the means of
    all subsets of clusters (Hartigan, 1969), so sizes and variances of clusters may be as unequal
    as they like, if each is as likely to lie above the mean as below it. Fewer than 7 clusters
    have too few subsets at 95 %: there it is Student's, with the variance CR2 and the degrees of
    freedom of Bell and McCaffrey (2002) for independent items, and may leave out 0 where no p can
    be small. Rates are in docs/statistics.md (benchmarks/few_clusters.py).

    Args:
        values: one value per item, such as the first model minus the second, (n,).
        clusters: the cluster each item was sampled in, any comparable values, (n,).
        bounds: the values that the mean can have, such as (0, 1) for a share; the interval is cut
            there.

    Returns:
        The mean, interval and p; interval and p are ``nan`` with a single cluster. Where all
        clusters have the same mean, the interval is empty: no spread was seen.

    Raises:
        ValueError: if there is no value, one is NaN or infinite, lengths differ, or the level is
            not between 0 and 1.

    >>> mean = cluster_mean([1, 1, 0, 1], ["a", "a", "b", "c"])
    >>> mean.mean, mean.p, mean.items, mean.clusters
    (0.75, 0.5, 4, 3)
    """
    array = require_finite(values)
    if not 0 < level < 1:
        raise ValueError(f"level={level} must be between 0 and 1")
    totals, sizes = sum_clusters(array, clusters)
    many, mean = len(totals), float(array.mean())
    if many < 2:
        nan = math.nan
        return MeanDifference(mean, nan, nan, nan, nan, len(array), many)
    # In an order of its own, so that random subsets do not depend on the names of clusters.
    order = np.lexsort((totals, np.abs(totals), sizes))
    totals, sizes = totals[order], sizes[order]
    sums, weights = _subsets(totals, sizes)
    slack = ROUNDING * float(np.abs(array).sum())
    tails = _exact_tails(totals, slack) if many > EXACT_UP_TO else None
    if tails is None:
        patterns = len(sums) + 1
        at_most, at_least = ((1 + int((side <= slack).sum())) / patterns for side in (sums, -sums))
        tails = at_most, at_least
    cut = int((1 - level) / 2 * (len(sums) + 1) + 1e-9)
    if cut < CUT_AT_LEAST:
        reach = student_reach(totals, sizes, level)
        ends = mean - reach, mean + reach
    else:
        means = np.partition(sums / weights, (cut - 1, len(sums) - cut))
        ends = float(means[cut - 1]), float(means[-cut])
    low, high = max(ends[0], bounds[0]), min(ends[1], bounds[1])
    return MeanDifference(mean, low, high, *tails, len(array), many, test=SIGN_FLIPS)


def sum_clusters(
    values: np.ndarray, clusters: Sequence[Any] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum and the number of items of each cluster."""
    names = np.asarray(clusters)
    if len(names) != len(values):
        raise ValueError(f"{len(values)} values and {len(names)} clusters: lengths must be equal")
    codes = np.unique(names, return_inverse=True)[1].reshape(-1)
    return np.bincount(codes, values), np.bincount(codes).astype(np.float64)


def choose_subsets(many: int) -> Iterator[np.ndarray]:
    """Yield subsets of clusters, 1 for each that is in: all but the empty one, or random ones.

    Args:
        many: number of clusters.

    Returns:
        Pieces of 0 and 1, float64 (subsets, clusters); 2**k - 1 or ``SUBSETS`` rows in all.
    """
    whole = 2**many - 1 if many <= EXACT_UP_TO else SUBSETS
    rng, at_once = generator(0, "subsets of clusters", many), max(1, DRAWN_AT_ONCE // many)
    for first in range(0, whole, at_once):
        rows = min(at_once, whole - first)
        if many <= EXACT_UP_TO:
            words = np.arange(first + 1, first + rows + 1, dtype="<u8")[:, None]
        else:
            words = rng.integers(2**64, size=(rows, -(-many // 64)), dtype=np.uint64)
        bits = np.unpackbits(words.view(np.uint8), axis=1, count=many, bitorder="little")
        yield bits.astype(np.float64)


def _subsets(totals: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sums and sizes of the subsets of clusters, of which none is empty.

    Where there are few kinds of clusters (equal sum and size) only the number of each kind is
    drawn: the same distribution with far fewer draws.
    """
    many, both = len(totals), np.stack([totals, sizes], axis=1)
    kinds, counts = np.unique(both, axis=0, return_counts=True)
    if many > EXACT_UP_TO and FEW_KINDS * len(kinds) <= many:
        rng = generator(0, "kinds of clusters", many)
        drawn = rng.binomial(counts, 0.5, (SUBSETS, len(kinds))) @ kinds
    else:
        drawn = np.concatenate([bits @ both for bits in choose_subsets(many)])
    sums, weights = drawn.T
    return sums[weights > 0], weights[weights > 0]


def _exact_tails(totals: np.ndarray, slack: float) -> tuple[float, float] | None:
    """Return p above and p below 0 over all patterns of signs; ``None`` if too many are needed.

    Sums that are multiples of a unit have few different flipped sums, whose distribution is found
    kind by kind: the clusters of one absolute sum are binomial.
    """
    amounts = totals[np.abs(totals) > slack]
    for parts in range(1, LARGEST_UNIT + 1):
        units = np.rint(amounts * parts)
        if np.allclose(units, amounts * parts, rtol=1e-9, atol=0):
            break
    else:
        return None
    sizes, times = np.unique(np.abs(units).astype(np.int64), return_counts=True)
    largest = int(sizes @ times)
    if largest * int(times[1:].sum()) > STEPS:
        return None
    from scipy.special import gammaln

    shares = np.ones(1)  # of patterns, by the sum of the clusters that keep a positive sign
    for size, count in zip(sizes.tolist(), times.tolist(), strict=True):
        k = np.arange(count + 1)
        ways = gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1)
        kept = np.exp(ways - count * math.log(2))
        wider = np.zeros(len(shares) + size * count)
        for number, share in enumerate(kept.tolist()):
            wider[size * number : size * number + len(shares)] += share * shares
        shares = wider
    observed = (int(units.sum()) + largest) // 2
    above, below = shares[observed:].sum(), shares[: observed + 1].sum()
    return min(float(above), 1.0), min(float(below), 1.0)


def student_reach(totals: np.ndarray, sizes: np.ndarray, level: float) -> float:
    """Return half the length of Student's interval of the mean over items in few clusters.

    The variance is CR2, unbiased for independent items. So are the degrees of freedom
    (Satterthwaite's, of Bell and McCaffrey, 2002); with equal sizes they are clusters minus one.

    Args:
        totals: sum of each cluster, (clusters,).
        sizes: number of items of each cluster, (clusters,).
    """
    from scipy.special import stdtrit

    share = sizes / sizes.sum()
    centred = (np.eye(len(sizes)) - share[:, None]) / np.sqrt(1 - share)[:, None]
    spread = centred * sizes @ centred.T
    degrees = float(np.trace(spread)) ** 2 / float((spread**2).sum())
    return float(stdtrit(degrees, (1 + level) / 2)) * _error(totals, sizes)


def _error(totals: np.ndarray, sizes: np.ndarray) -> float:
    """Return the standard error CR2 of the mean over items, from sums and sizes of clusters."""
    share = sizes / sizes.sum()
    residuals = totals - totals.sum() * share
    return math.sqrt(float((residuals**2 / (1 - share)).sum())) / float(sizes.sum())


def standard_error(
    values: Sequence[float] | np.ndarray, clusters: Sequence[Any] | np.ndarray | None = None
) -> float:
    """Return the standard error of a mean over items that were sampled in clusters.

    With one item per cluster it is the sample standard deviation over sqrt(n): sqrt(p (1 - p) / (n
    - 1)) for right and wrong answers, and for the differences of two models sqrt((b + c - (b - c)^2
    / n) / (n (n - 1))), where b and c are the items that only the one or the other gets right.
    Clusters of unequal size count by their number of items (the linearised ratio: Cochran, 1977,
    section 6.3), and the residual of a large one, which pulls the mean to itself, by more (CR2:
    Bell and McCaffrey, 2002).

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
    totals, sizes = sum_clusters(array, np.arange(len(array)) if clusters is None else clusters)
    return _error(totals, sizes) if len(totals) > 1 else math.nan
