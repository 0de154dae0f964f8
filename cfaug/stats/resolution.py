"""Which differences a test of this size can show: standard errors over items, and a sentence.

A benchmark of 400 items cannot distinguish two models that differ by a point. The standard error is
that of the mean over items like these, sampled in clusters; it does not include training seeds.

``scipy.stats.sem`` gives the same for independent items; it has no clusters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cfaug.stats.significance import require_finite


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
    _, place = np.unique(names, return_inverse=True)
    residuals = np.bincount(place.reshape(-1), array - array.mean())
    many = len(residuals)
    if many < 2:
        return math.nan
    return math.sqrt(many / (many - 1) * float((residuals**2).sum())) / len(array)


def least_visible(error: float, clusters: int, level: float = 0.95) -> float:
    """Return the smallest difference that a two-sided test would call significant.

    A true difference of this size is found in half of all tests; for eight of ten it must be 1.4
    times as large.

    Args:
        error: the standard error of the difference.
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
        error: the standard error, of a score or of a difference of two.
        items: number of items that count.
        clusters: number of clusters that the items are in.
        factor: factor that multiplies printed values, 100 for fractions.
        unit: unit of printed values.

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
