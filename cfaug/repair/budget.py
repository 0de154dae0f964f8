"""How a budget of images is divided among failures."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def allocate(
    weights: Sequence[float], total: int, *, least: int, limits: Sequence[int]
) -> list[int]:
    """Divide a total in proportion to weights, within bounds, by largest remainders.

    A failure that would get more than its upper bound gets that, one that would get fewer than
    ``least`` gets ``least``, and the rest is divided among the others (Ibaraki and Katoh, 1988, on
    bounded apportionment). If there is not enough for all, the heaviest are kept; equal weights
    keep their order. What cannot be placed is left over: ``total - sum(...)``.

    Args:
        weights: the weight of each; 0 or less gets nothing.
        least: the smallest number of each that gets anything.
        limits: the largest number of each; one that can take fewer than ``least`` gets nothing.

    >>> allocate([3, 1, 1], 100, least=8, limits=[50, 50, 50])
    [50, 25, 25]
    >>> allocate([3, 1, 1], 100, least=8, limits=[20, 50, 4])
    [20, 50, 0]
    """
    able = [i for i, weight in enumerate(weights) if weight > 0 and limits[i] >= max(least, 1)]
    if least > 0:
        able = sorted(able, key=lambda i: (-weights[i], i))[: total // least]
    counts = [0] * len(weights)
    left = min(total, sum(limits[i] for i in able))
    while able:
        whole = sum(Fraction(weights[i]) for i in able)
        quota = {i: left * Fraction(weights[i]) / whole for i in able}
        over = {i: limits[i] for i in able if quota[i] > limits[i]}
        under = {i: least for i in able if quota[i] < least}
        if not over and not under:
            break
        excess = sum(quota[i] - limits[i] for i in over)
        settled = over if excess >= sum(least - quota[i] for i in under) else under
        for i, count in settled.items():
            counts[i] = count
            left -= count
            able.remove(i)
    for i in able:
        counts[i] = int(quota[i])
    rest = left - sum(counts[i] for i in able)
    for i in sorted(able, key=lambda i: (counts[i] - quota[i], i))[:rest]:
        counts[i] += 1
    return counts
