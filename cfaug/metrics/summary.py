"""Wilson's interval for a share.

``scipy.stats.binomtest(...).proportion_ci(method="wilson")`` gives the same interval for whole
counts. Here an image sorted by several people counts in fractions, which scipy does not accept.
"""

from __future__ import annotations

import math
from statistics import NormalDist


def wilson_interval(count: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval for a share (Wilson, 1927); ``nan`` if n is 0.

    Unlike the normal approximation it stays within [0, 1] and is not empty at 0 and 1.

    Args:
        count: number of items that have the property, a fraction where an item counts in part.
        n: number of items.
        level: nominal coverage, between 0 and 1.

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
