"""How many items a comparison of two models needs, from the answers of a pilot.

The differences of two models' answers vary between clusters (the photos, or the documents, that
several questions are about) and within them. A test of G clusters with m items each has the
standard error sqrt(between / G + within / (G m)): more questions about the same photos help only
with the second part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfaug.stats.item_tests import least_visible
from cfaug.stats.significance import require_finite

FEWEST = 6
"""Clusters below which no p of an exact two-sided test can be 0.05: see ``smallest_exact_p``."""
MOST = 2**40
"""Clusters beyond which a difference counts as out of reach."""


@dataclass(frozen=True)
class Components:
    """Variances of the differences of a pilot, between its clusters and within them.

    Attributes:
        per_cluster: mean number of items of a cluster.
        uneven: mean of the squared sizes of clusters over their squared mean, 1 for equal sizes: a
            large cluster makes the mean over items less certain than the number of clusters says.
    """

    between: float
    within: float
    clusters: int
    per_cluster: float
    uneven: float = 1.0

    @property
    def has_spread(self) -> bool:
        """Whether the differences of the pilot vary at all, by more than rounding."""
        return self.between + self.within > 1e-20

    def error(self, clusters: float) -> float:
        """Return the standard error of a test of so many clusters, of sizes as in the pilot."""
        within = self.within / self.per_cluster
        return math.sqrt((self.between * self.uneven + within) / clusters)

    def clusters_needed(self, difference: float) -> int | None:
        """Return the fewest clusters with which 80 % of tests find a true difference.

        Returns:
            ``None`` if no number that can be reached is enough, as for a difference of 0, or if
            the pilot has no spread, which says nothing of the spread of a larger test.

        >>> Components(0.0, 0.09, 400, 1.0).clusters_needed(0.04)
        444
        """
        if not difference or math.isnan(difference) or not self.has_spread:
            return None

        def enough(clusters: int) -> bool:
            if clusters < FEWEST:
                return False
            return least_visible(self.error(clusters), clusters) <= abs(difference)

        high = FEWEST
        while not enough(high):
            high *= 2
            if high > MOST:
                return None
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high


def variance_components(
    differences: Sequence[float] | np.ndarray, clusters: Sequence[object]
) -> Components:
    """Estimate the components from items by the analysis of variance of one factor.

    Args:
        differences: the first model's value minus the other's, (items,).
        clusters: the cluster of each item, (items,).

    Returns:
        Components that are at least 0. Where each item is its own cluster, all variance is within.

    Raises:
        ValueError: if there are fewer than two clusters, or a value is NaN or infinite.

    >>> pilot = variance_components([1, 1, 0, 0, -1, -1, 0, 1], list("aabbccdd"))
    >>> round(pilot.between, 3), pilot.within, pilot.clusters, pilot.per_cluster
    (0.667, 0.125, 4, 2.0)
    """
    values = require_finite(differences)
    names, group, sizes = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
    count, items = len(names), len(values)
    if count < 2:
        raise ValueError("components need two clusters or more")
    per_cluster = items / count
    if count == items:
        return Components(0.0, float(values.var(ddof=1)), count, 1.0)
    means = np.bincount(group, values) / sizes
    within = float(((values - means[group]) ** 2).sum() / (items - count))
    among = float((sizes * (means - values.mean()) ** 2).sum() / (count - 1))
    size = (items - (sizes**2).sum() / items) / (count - 1)
    between = max(0.0, float((among - within) / size))
    uneven = float((sizes**2).mean()) / per_cluster**2
    return Components(between, within, count, per_cluster, uneven)


def power_of(difference: float, error: float, clusters: int, level: float = 0.95) -> float:
    """Return the share of two-sided tests that find a true difference; see ``least_visible``.

    >>> round(power_of(0.04, 0.0141, 400), 2), round(power_of(0.0, 0.0141, 400), 3)
    (0.81, 0.025)
    """
    if clusters < 2 or math.isnan(error):
        return math.nan
    if error == 0:
        return float(difference != 0)
    from scipy.special import stdtr, stdtrit

    critical = stdtrit(clusters - 1, (1 + level) / 2)
    return float(stdtr(clusters - 1, abs(difference) / error - critical))
