"""Tests on what a paper prints: means, standard deviations and counts, rounded.

``cfaug.metrics.significance.welch`` is the papers' one-tailed test; here are its twin for equal
spread, what rounding leaves open, equivalence, and tests of counts.

scipy.stats takes seconds to import, so it is imported where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from statistics import NormalDist

from cfaug.metrics.item_tests import mcnemar
from cfaug.metrics.significance import Alternative, Summary, welch

Test = Callable[[Summary, Summary, Alternative], float]


def pooled(arm: Summary, baseline: Summary, alternative: Alternative = "greater") -> float:
    """Return p of Student's t-test for independent arms of equal spread.

    It answers what ``welch`` answers, and where there is no spread, the same.

    >>> round(pooled(Summary(78.28, 0.4, 25), Summary(77.90, 0.4, 25)), 5)  # Table 3, 60 %, TR@1
    0.00077
    """
    if min(arm.n, baseline.n) < 2 or not (arm.has_spread or baseline.has_spread):
        return welch(arm, baseline, alternative)
    from scipy.stats import ttest_ind_from_stats

    found = ttest_ind_from_stats(
        arm.mean, arm.sd, arm.n, baseline.mean, baseline.sd, baseline.n, alternative=alternative
    )
    return float(found.pvalue)


def rounding_range(
    arm: Summary,
    baseline: Summary,
    *,
    mean_step: float = 0.01,
    sd_step: float = 0.1,
    alternative: Alternative = "greater",
    test: Test = welch,
) -> tuple[float, float]:
    """Return the smallest and the largest p that the unrounded numbers may have had.

    A printed 0.2 stands for anything from 0.15 to 0.25, so a p near 0.05 may lie on either side.
    Taken over the corners of what rounding allows, and over no difference where that is among them.

    Args:
        arm: as printed.
        baseline: as printed.
        mean_step: the unit of the last printed digit of the means; the papers' tables have 0.01.
        sd_step: the same of the standard deviations; 0.1 there.
        alternative: as in ``welch``.
        test: ``welch`` or ``pooled``.

    >>> low, high = rounding_range(Summary(96.79, 0.2, 25), Summary(96.69, 0.2, 25))
    >>> round(low, 3), round(high, 2)  # Table 3, 67 %, IR@10
    (0.006, 0.1)
    """
    gap = arm.mean - baseline.mean
    gaps = [gap - mean_step, gap + mean_step]
    if gaps[0] < 0 < gaps[1]:
        gaps.append(0.0)
    spreads = [(max(0.0, s.sd - sd_step / 2), s.sd + sd_step / 2) for s in (arm, baseline)]
    found = [
        test(Summary(one, a, arm.n), Summary(0.0, b, baseline.n), alternative)
        for one, a, b in product(gaps, *spreads)
    ]
    known = [p for p in found if not math.isnan(p)]
    return (min(known), max(known)) if known else (math.nan, math.nan)


def difference_interval(
    arm: Summary, baseline: Summary, level: float = 0.95
) -> tuple[float, float]:
    """Return Welch's interval for the difference of two independent means.

    ``nan`` both for n below 2, or if neither has spread: no width is no certainty.

    >>> low, high = difference_interval(Summary(4.12, 0.37, 50), Summary(4.07, 0.33, 50), 0.9)
    >>> round(low, 2), round(high, 2)  # XMAI, human quality
    (-0.07, 0.17)
    """
    gap = arm.mean - baseline.mean
    if min(arm.n, baseline.n) < 2 or not (arm.has_spread or baseline.has_spread):
        return math.nan, math.nan
    a, b = arm.sd**2 / arm.n, baseline.sd**2 / baseline.n
    from scipy.special import stdtrit

    degrees = (a + b) ** 2 / (a**2 / (arm.n - 1) + b**2 / (baseline.n - 1))
    reach = float(stdtrit(degrees, (1 + level) / 2)) * math.sqrt(a + b)
    return gap - reach, gap + reach


def tost(arm: Summary, baseline: Summary, margin: float) -> float:
    """Return p of two one-sided Welch tests: the means differ by less than the margin.

    That a difference was not found is not evidence that there is none; this is (Schuirmann, 1987).
    It is below 5 % exactly if the 90 % interval of the difference lies within the margin.

    Args:
        arm: one of the two.
        baseline: the other.
        margin: the smallest difference that would matter, above 0.

    Raises:
        ValueError: if the margin is not above 0.

    >>> quality = Summary(4.12, 0.37, 50), Summary(4.07, 0.33, 50)  # XMAI, human quality
    >>> tost(*quality, margin=0.2) < 0.05 < tost(*quality, margin=0.1)
    True
    """
    if not margin > 0:
        raise ValueError(f"margin={margin} should be above 0")
    above = welch(replace(arm, mean=arm.mean + margin), baseline, "greater")
    below = welch(replace(arm, mean=arm.mean - margin), baseline, "less")
    return max(above, below)


def sign_test(wins: int, losses: int, alternative: Alternative = "two-sided") -> float:
    """Return p of the exact sign test: of the decided comparisons, half would go either way.

    ``nan`` if none was decided; otherwise McNemar's exact test, which is the same question.

    >>> f"{sign_test(63, 26):.1e}"  # XMAI, preferences
    '1.1e-04'
    """
    if wins + losses == 0:
        return math.nan
    return mcnemar(wins, losses, alternative)


def wilson_interval(count: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval for a share (Wilson, 1927); ``nan`` if n is 0.

    Unlike the normal approximation's it stays within [0, 1] and is not empty at the ends.

    >>> low, high = wilson_interval(0, 10)
    >>> round(low, 3), round(high, 3)
    (0.0, 0.278)
    """
    if n == 0:
        return math.nan, math.nan
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = count / n
    middle = share + z**2 / (2 * n)
    reach = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    low, high = ((middle + sign * reach) / (1 + z**2 / n) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)
