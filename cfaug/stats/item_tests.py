"""Is one model better than another, over the items of a test? Exact tests and their intervals.

Two checkpoints have no spread over seeds, but they answered the same questions. ``mcnemar`` and
``sign_test`` treat items as independent. Items that were sampled together (the captions of one
image, the members of one set) are not: ``cluster_mean`` flips the signs of whole clusters, which is
right for few of them too, and ``nested_bootstrap`` draws clusters and items within them.
``compare_answers`` chooses; ``WHICH_TEST`` is its table.

NaN and infinite values are a ``ValueError``: leave out the items that do not count first. scipy
takes long to import, so it is imported where it is used.

``scipy.stats.binomtest`` finds the p of ``mcnemar`` and takes 60 times as long (0.3 ms).
``statsmodels`` has no interval of a paired difference of shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, get_args

import numpy as np

from cfaug.stats.cluster_tests import (
    DRAWN_AT_ONCE,
    ROUNDING,
    SIGN_FLIPS,
    MeanDifference,
    cluster_mean,
)
from cfaug.stats.significance import Alternative, require_finite, smallest_exact_p

ALPHA = 0.05
RESAMPLES = 10_000

MCNEMAR = "McNemar, exact, over items"
TANGO = "Tango's score interval"
SUBSET_MEANS = "means of subsets of clusters"
STUDENT = "Student's t over clusters"
WHICH_TEST: Sequence[tuple[str, str, str]] = (
    ("right or wrong, each item sampled by itself", MCNEMAR, TANGO),
    (
        "anything else, in 7 clusters or more (or items, if each is sampled by itself)",
        SIGN_FLIPS,
        SUBSET_MEANS,
    ),
    ("the same in 2 to 6 clusters", SIGN_FLIPS, STUDENT),
    ("one cluster", "none", "none"),
)
"""What two models' answers to the same items are, the test behind p, and that behind the 95 %
interval. docs/statistics.md prints it."""


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
    choices = get_args(Alternative)
    if alternative not in choices:
        raise ValueError(f"alternative={alternative!r}: choose from {', '.join(choices)}")
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


def compare_answers(
    first: Sequence[float] | np.ndarray,
    second: Sequence[float] | np.ndarray,
    clusters: Sequence[Any] | np.ndarray,
) -> MeanDifference:
    """Compare two models' answers to the same items: the difference, its 95 % interval and p.

    Args:
        first: the first model's value of each item, (n,).
        second: the second model's, which is subtracted.
        clusters: the cluster each item was sampled in, any comparable values, (n,).

    Raises:
        ValueError: if there is no item, a value is NaN or infinite, or lengths differ.

    >>> pair = compare_answers([1, 1, 1, 0], [0, 0, 1, 1], [*"abcd"])
    >>> pair.mean, round(pair.low, 2), round(pair.high, 2), pair.p, pair.test
    (0.25, -0.5, 0.78, 1.0, 'McNemar, exact, over items')
    """
    ours, theirs = require_finite(first), require_finite(second)
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} and {len(theirs)} answers: lengths must be equal")
    if not np.isin([ours, theirs], (0.0, 1.0)).all():
        return cluster_mean(ours - theirs, clusters)
    if len(np.unique(np.asarray(clusters))) < len(ours):
        return cluster_mean(ours - theirs, clusters, bounds=(-1.0, 1.0))
    better, worse = int((ours > theirs).sum()), int((ours < theirs).sum())
    return MeanDifference(
        (better - worse) / len(ours),
        *tango_interval(better, worse, len(ours)),
        p_greater=mcnemar(better, worse, "greater"),
        p_less=mcnemar(better, worse, "less"),
        items=len(ours),
        clusters=len(ours),
        test=MCNEMAR,
    )


def tango_interval(better: int, worse: int, items: int, level: float = 0.95) -> tuple[float, float]:
    """Return the score interval of the difference of two shares of the same items (Tango, 1998).

    It holds the differences that a score test does not reject, is not empty where the models
    differ on no item, and stays within -1 and 1. McNemar's exact p is larger than that test's, so
    an interval that only just leaves out 0 may stand beside a p just above .05.

    Args:
        better: number of items that only the first model answers right.
        worse: number of items that only the second model answers right.
        items: number of all items, at least ``better + worse``.

    Raises:
        ValueError: if a count is negative or there are fewer items.

    >>> low, high = tango_interval(12, 2, 50)
    >>> round(low, 3), round(high, 3)
    (0.061, 0.345)
    """
    if min(better, worse) < 0 or items < max(better + worse, 1) or not 0 < level < 1:
        raise ValueError(f"{better} and {worse} of {items} items, level={level}: out of range")
    from scipy.optimize import brentq
    from scipy.special import ndtri

    reach = float(ndtri((1 + level) / 2))

    def excess(sign: int, difference: float) -> float:
        # The share of items that only the second answers right, given the difference.
        b = (2 * items - better + worse) * difference - better - worse
        c = -worse * difference * (1 - difference)
        share = (math.sqrt(max(b * b - 8 * items * c, 0.0)) - b) / (4 * items)
        variance = items * max(2 * share + difference * (1 - difference), 0.0)
        return sign * (better - worse - items * difference) - reach * math.sqrt(variance)

    mean, near = (better - worse) / items, 1e-12  # at the mean itself the score may be 0 / 0
    # Where no difference is rejected up to the end of the scale, the end is the limit.
    low = -1.0 if excess(1, -1.0) <= 0 else brentq(partial(excess, 1), -1.0, mean - near)
    high = 1.0 if excess(-1, 1.0) <= 0 else brentq(partial(excess, -1), mean + near, 1.0)
    return float(low), float(high)


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
    more here, so the interval is wider than one over clusters alone for the same values: a
    difference whose interval excludes 0 depends neither on the choice of clusters nor on that of
    items.

    Args:
        values_G: the statistic of each cluster, (clusters,).
        resampled_GB: the statistic of each cluster's own resamples, (clusters, resamples of items).
        rng: generator that draws clusters and resamples; the same state gives the same answer.

    Returns:
        The mean, the percentile interval and p, which inverts it: one-sided, the share of resamples
        whose mean is zero or on the other side of it, with the observed data counted as one more.
        Interval and p are ``nan`` with a single cluster. ``items`` and
        ``clusters`` are both the number of clusters.

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


# Which differences a test of this size can show: standard errors over items, and a sentence.
#
# A benchmark of 400 items cannot distinguish two models that differ by a point. The standard error
# is that of the mean over items like these, sampled in clusters; it does not include training
# seeds.
#
# ``scipy.stats.sem`` gives the same for independent items; it has no clusters.


def least_visible(error: float, clusters: int, level: float = 0.95, power: float = 0.8) -> float:
    """Return the smallest true difference that most two-sided tests would call significant.

    With many clusters it is 2.8 standard errors: a difference of 1.96 is found in half of all
    tests.

    Args:
        clusters: number of clusters, or of items where each is its own cluster.
        level: one minus the significance level of the test.
        power: share of tests that find it.

    Returns:
        The difference in the standard error's unit; ``nan`` with fewer than two clusters.

    >>> round(least_visible(0.0141, 400), 3)
    0.04
    """
    if clusters < 2 or math.isnan(error):
        return math.nan
    from scipy.special import stdtrit

    return float(stdtrit(clusters - 1, (1 + level) / 2) + stdtrit(clusters - 1, power)) * error


def describe_resolution(
    error: float, items: int, clusters: int, *, factor: float = 100, unit: str = "points"
) -> str:
    """Return a sentence on how large a difference has to be to be found on a set of this size.

    Args:
        factor: factor that multiplies printed values, 100 for fractions.

    >>> describe_resolution(0.0141, 400, 400)[11:]
    'standard error 1.4 points; a difference of 4.0 points is found in 80 % of such tests'
    >>> describe_resolution(0.05, 40, 5)[39:]
    '5.0 points; with 5 clusters no p can be below 0.062'
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
    known = f"{about}: standard error {_two_digits(factor * error)} {unit}"
    lowest = smallest_exact_p(clusters, "two-sided")
    if lowest > ALPHA:
        units = "items" if clusters == items else "clusters"
        return f"{known}; with {clusters} {units} no p can be below {_two_digits(lowest)}"
    least = _two_digits(factor * least_visible(error, clusters))
    return f"{known}; a difference of {least} {unit} is found in 80 % of such tests"


def _two_digits(value: float) -> str:
    """Return at least two digits: 0.43, 1.4, 12.3."""
    return f"{value:.2g}" if value < 1 else f"{value:,.1f}"
