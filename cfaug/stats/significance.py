"""Is one arm better than another, over training seeds? One-tailed tests, exact where possible.

``alternative="greater"`` tests whether the arm is better than its baseline. Where a test has no
answer, it returns:

* fewer than two values: ``nan``;
* no spread at all (every value, or every paired difference, is the same): 1 if there is no
  difference either, else ``nan``, because a t-test needs spread. The sign-flip permutation still
  gives an answer then.
* a NaN or infinite value: ``ValueError``.

scipy.stats takes half a second to import, so it is imported where it is used. ``sign_flip`` finds
the p of ``scipy.stats.permutation_test`` 1,000 times as fast with 16 pairs (0.2 ms; a table has
hundreds), and its random signs are keyed; scipy has no Holm correction (``false_discovery_control``
is Benjamini and Hochberg's), and from summaries alone neither an interval nor an equivalence test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from cfaug.core.rng import generator

Alternative = Literal["greater", "less", "two-sided"]

EXACT_UP_TO = 16
"""Largest number of pairs with all 2**n sign flips enumerated (65,536 at 16)."""

FLIPS = 10_000
"""Random sign flips drawn for more pairs than that."""

NO_SPREAD = 1e-12
"""A standard deviation below this share of the values is rounding error, not spread."""


@dataclass(frozen=True)
class SeedSummary:
    """Mean, sample standard deviation (n - 1) and number of seeds, as in a paper's table."""

    mean: float
    sd: float
    n: int

    @property
    def has_spread(self) -> bool:
        """Whether the standard deviation is more than rounding error."""
        return self.sd > NO_SPREAD * max(abs(self.mean), 1.0)


def require_finite(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the values as float64 (n,).

    Raises:
        ValueError: if there are no values, they are not one-dimensional, or one is NaN or infinite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array) or not np.isfinite(array).all():
        raise ValueError(f"a test needs a row of finite values, not {values!r}")
    return array


def summarise(values: Sequence[float] | np.ndarray) -> SeedSummary:
    """Return mean, sample standard deviation (``nan`` for one value) and count.

    >>> summarise([1.0, 2.0, 3.0])
    SeedSummary(mean=2.0, sd=1.0, n=3)
    """
    array = require_finite(values)
    sd = float(array.std(ddof=1)) if len(array) > 1 else math.nan
    return SeedSummary(float(array.mean()), sd, len(array))


def welch(arm: SeedSummary, baseline: SeedSummary, alternative: Alternative = "greater") -> float:
    """Return p of Welch's t-test for independent arms: the test behind the papers' underlining.

    The pooled test agrees in all 63 cells of the COCO-Counterfactuals tables, so the tables do not
    show which was used; Welch's does not assume equal spread.

    Args:
        alternative: ``"greater"`` (the arm's mean is larger), ``"less"`` or ``"two-sided"``.

    >>> ours, theirs = SeedSummary(78.28, 0.4, 25), SeedSummary(77.90, 0.4, 25)
    >>> round(welch(ours, theirs), 5)  # Table 3, 60 %, TR@1
    0.00077
    """
    if min(arm.n, baseline.n) < 2:
        return math.nan
    if not (arm.has_spread or baseline.has_spread):
        return _without_spread(arm.mean - baseline.mean, max(abs(arm.mean), abs(baseline.mean)))
    from scipy.stats import ttest_ind_from_stats

    result = ttest_ind_from_stats(
        arm.mean, arm.sd, arm.n, baseline.mean, baseline.sd, baseline.n,
        equal_var=False, alternative=alternative,
    )  # fmt: skip
    return float(result.pvalue)


@dataclass(frozen=True)
class Equivalence:
    """Whether two means differ by less than a margin: two one-sided tests (TOST).

    Attributes:
        difference: first mean minus the second.
        low: lower end of the confidence interval at level ``1 - 2 alpha``, 90 % for alpha 0.05.
        high: upper end of the confidence interval.
        p: the larger p of the two tests; at most alpha where the interval is within the margin.
        t: Welch's statistic of the difference from zero.
        p_different: two-sided p of a difference from zero; a large one does not show equality.
    """

    difference: float
    low: float
    high: float
    p: float
    t: float
    p_different: float


def equivalence(
    first: SeedSummary, second: SeedSummary, margin: float, alpha: float = 0.05
) -> Equivalence:
    """Test whether two independent means are equivalent (Schuirmann, 1987), by Welch's t.

    Args:
        margin: smallest difference at which the two are no longer called equal, above 0.
        alpha: level of each of the two one-sided tests.

    Returns:
        The result; all of it except the difference is ``nan`` if one arm has fewer than two values
        or neither has any spread.

    Raises:
        ValueError: if the margin is not above 0, or alpha not between 0 and 1/2.

    >>> first, second = SeedSummary(4.12, 0.37, 50), SeedSummary(4.07, 0.33, 50)  # XMAI, 5.1
    >>> test = equivalence(first, second, 0.2)
    >>> round(test.low, 2), round(test.high, 2), round(test.t, 3), round(test.p_different, 3)
    (-0.07, 0.17, 0.713, 0.477)
    >>> round(test.p, 3)
    0.017
    """
    if not 0 < margin < math.inf or not 0 < alpha < 0.5:
        raise ValueError(f"margin={margin} should be above 0, and alpha={alpha} below 0.5")
    difference, nan = first.mean - second.mean, math.nan
    if min(first.n, second.n) < 2 or not (first.has_spread or second.has_spread):
        return Equivalence(difference, nan, nan, nan, nan, nan)
    from scipy.stats import t as student

    parts = [summary.sd**2 / summary.n for summary in (first, second)]
    error = math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(
        part**2 / (summary.n - 1) for part, summary in zip(parts, (first, second), strict=True)
    )
    reach = float(student.ppf(1 - alpha, freedom)) * error
    tails = [float(student.sf((margin + sign * difference) / error, freedom)) for sign in (1, -1)]
    statistic = difference / error
    return Equivalence(
        difference=difference,
        low=difference - reach,
        high=difference + reach,
        p=max(tails),
        t=statistic,
        p_different=2 * float(student.sf(abs(statistic), freedom)),
    )


def paired_t(
    differences: Sequence[float] | np.ndarray, alternative: Alternative = "greater"
) -> float:
    """Return p of the paired t-test on differences by seed (arm - baseline).

    Args:
        differences: arm minus baseline for each seed, finite, (n,).
        alternative: ``"greater"`` (the mean difference is above 0), ``"less"`` or ``"two-sided"``.

    >>> round(paired_t([0.1, 0.2, 0.3]), 4), round(paired_t([0.1, 0.2, 0.3], "two-sided"), 4)
    (0.0371, 0.0742)
    """
    values = require_finite(differences)
    if len(values) < 2:
        return math.nan
    if not summarise(values).has_spread:
        return _without_spread(float(values.mean()), 1.0)
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(values, 0.0, alternative=alternative).pvalue)


def _without_spread(difference: float, scale: float) -> float:
    return 1.0 if abs(difference) <= NO_SPREAD * max(scale, 1.0) else math.nan


def wilcoxon(
    differences: Sequence[float] | np.ndarray, alternative: Alternative = "greater"
) -> float:
    """Return p of Wilcoxon's signed-rank test; zero differences are dropped, as Wilcoxon did.

    Exact up to 50 pairs without ties and up to 13 with ties (scipy's rule).

    Args:
        differences: arm minus baseline for each pair, finite, (n,).
        alternative: ``"greater"`` (differences are above 0), ``"less"`` or ``"two-sided"``.

    >>> wilcoxon([0.1, 0.2, 0.3])
    0.125
    """
    values = require_finite(differences)
    if not values.any():
        return 1.0
    from scipy.stats import wilcoxon as signed_rank

    return float(signed_rank(values, alternative=alternative).pvalue)


def sign_flip(
    differences: Sequence[float] | np.ndarray, alternative: Alternative = "greater", seed: int = 0
) -> float:
    """Return p of the sign-flip permutation test on the mean difference by seed.

    If the arm were no better, each difference could as well have had the other sign. Up to 16 pairs
    all 2**n signs are enumerated; above, 10,000 random ones are drawn from the stream ``seed``, and
    the observed one counts too.

    Args:
        differences: arm minus baseline for each seed, finite, (n,).
        alternative: ``"greater"`` (the mean difference is above 0), ``"less"`` or ``"two-sided"``.

    >>> sign_flip([0.1, 0.2, 0.3])
    0.125
    """
    values = require_finite(differences)
    if alternative == "less":
        values = -values
    observed = values.sum()
    # Equal sums that differ in the last bit must count as equal.
    slack = 1e-9 * np.abs(values).sum()
    if len(values) <= EXACT_UP_TO:
        sums = np.zeros(1)
        for value in values:
            sums = np.concatenate([sums + value, sums - value])
    else:
        sums = np.append(_signs(seed, len(values)) @ values, observed)
    if alternative == "two-sided":
        sums, observed = np.abs(sums), abs(observed)
    return float((sums >= observed - slack).mean())


@lru_cache(maxsize=4)
def _signs(seed: int, n: int) -> np.ndarray:
    """Return random signs; cached, as a table asks for the same ones again and again."""
    return generator(seed, "sign_flip", n).choice([-1.0, 1.0], (FLIPS, n))


def smallest_exact_p(n: int, alternative: Alternative = "greater") -> float:
    """Return the smallest p that any exact test on the signs of n paired differences can give.

    With 5 seeds nothing exact can be below 1/32, whatever the effect.

    Args:
        n: number of pairs, 1 or more.
        alternative: direction of the test: ``"two-sided"`` doubles p.

    >>> smallest_exact_p(5), smallest_exact_p(5, "two-sided")
    (0.03125, 0.0625)
    """
    if n < 1:
        raise ValueError(f"n should be at least 1, not {n}")
    return min(1.0, (2.0 if alternative == "two-sided" else 1.0) * 2.0**-n)


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return Holm's adjusted p, in the same order: reject where at most alpha.

    ``nan`` marks a comparison that was not made: it stays and is not counted.

    Args:
        p_values: p of each comparison, (n,); ``nan`` for one that was not made.

    >>> holm([0.01, 0.04, float("nan"), 0.03]).round(3).tolist()
    [0.03, 0.06, nan, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    made = np.flatnonzero(~np.isnan(p))
    order = made[np.argsort(p[made], kind="stable")]
    factor = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factor), 1.0)
    return adjusted


def cochran_q(effects: Sequence[float] | np.ndarray, errors: Sequence[float] | np.ndarray) -> float:
    """Return p of Cochran's Q: do effects differ among each other by more than their errors?

    Args:
        effects: an estimate for each study or task.
        errors: their standard errors, above 0.

    Returns:
        The share of the chi-squared distribution above Q; ``nan`` with fewer than two effects, or
        where an error is 0.

    >>> round(cochran_q([0.1, 0.1, 0.1], [0.02, 0.05, 0.03]), 2)
    1.0
    >>> round(cochran_q([0.2, -0.1], [0.1, 0.1]), 3)
    0.034
    """
    values, weights = require_finite(effects), np.asarray(errors, np.float64)
    if len(values) < 2 or not (weights > 0).all():
        return math.nan
    weights = 1 / weights**2
    mean = (weights * values).sum() / weights.sum()
    from scipy.special import chdtrc

    return float(chdtrc(len(values) - 1, (weights * (values - mean) ** 2).sum()))
