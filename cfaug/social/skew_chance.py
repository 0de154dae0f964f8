"""MaxSkew@K and NDKL of a random ranking: never 0, and larger for more labels.

A model that knows nothing about the labels still retrieves some more often than others: with 12
labels and K = 12 the expected MaxSkew is 1.01, with 84 and 84 it is 1.38. So a raw MaxSkew says
little, and values for grids of different size are not comparable.

The counts of K images drawn from a pool without replacement are multivariate hypergeometric: that
is, independent binomial counts of each label, given that they sum to K. So the chance that no
label exceeds its limit is one coefficient of a product of polynomials, one per label; all terms are
positive, so nothing cancels.

``scipy.stats.multivariate_hypergeom`` has the probability of one vector of counts, and there are
1.35 million vectors for 12 labels and K = 12; it has no distribution of their maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cfaug.social.skew_metrics import discount, max_skew

WORK = 2e9
"""Multiplications beyond which the distribution is simulated instead of computed."""

DRAWS = 20_000
"""Random rankings drawn in a simulation: the mean is known to about 0.003."""

SURE = 1 - 1e-13
"""Cumulative probability beyond which larger values are neglected."""

WIDE = 12.0
"""Standard deviations beyond which a count of the hypergeometric distribution is neglected."""


@dataclass(frozen=True)
class ChanceSkew:
    """The distribution of MaxSkew@K of a random ranking.

    Attributes:
        values: possible values, ascending, float64 (values,).
        p: probability of each value, (values,); they sum to one.
        exact: whether the probabilities were computed exactly; otherwise they are shares of
            simulated random rankings.
    """

    values: NDArray[np.float64]
    p: NDArray[np.float64]
    exact: bool

    @property
    def mean(self) -> float:
        """The expected value for a random ranking."""
        return float(self.values @ self.p)

    def quantile(self, level: float) -> float:
        """Return the smallest value not exceeded with a probability of at least ``level``.

        Args:
            level: probability, between 0 and 1.
        """
        at = int(np.searchsorted(np.cumsum(self.p), level - 1e-12))
        return float(self.values[min(at, len(self.values) - 1)])

    def tail(self, value: float) -> float:
        """Return the probability of a MaxSkew of at least ``value``: an exact p.

        Args:
            value: a value of MaxSkew@K.
        """
        at = int(np.searchsorted(self.values, value - 1e-9))
        return float(min(1.0, self.p[at:].sum()))

    def level(self, alpha: float) -> float:
        """Return the probability of a p of at most alpha: below alpha, as values are discrete.

        Args:
            alpha: nominal level of the test, between 0 and 1.
        """
        tails = np.cumsum(self.p[::-1])
        at = int(np.searchsorted(tails, alpha, side="right"))
        return float(tails[at - 1]) if at else 0.0


def chance_skew(pool_A: Sequence[int], k: int) -> ChanceSkew:
    """Return the distribution of MaxSkew@K when K images are drawn from a pool at random.

    Exact, except for large pools of many labels of different sizes: those are simulated, always
    with the same random numbers.

    Args:
        pool_A: number of the pool's images with each label, above 0, (labels,); the desired shares
            are the pool's.
        k: number of drawn images, from 1 to the size of the pool.

    Raises:
        ValueError: if a count is not above 0, or k is out of range.

    >>> round(chance_skew([50] * 12, 12).mean, 2), round(chance_skew([50, 50], 2).mean, 2)
    (1.01, 0.34)
    """
    counts = tuple(sorted(int(count) for count in pool_A))
    if not counts or counts[0] < 1 or not 1 <= k <= sum(counts):
        raise ValueError(
            f"k={k} and the pool {list(pool_A)} should be 1 or more, k at most its sum"
        )
    return _chance_skew(counts, int(k))


@lru_cache(maxsize=4096)
def _chance_skew(pool: tuple[int, ...], k: int) -> ChanceSkew:
    sizes, many = np.unique(pool, return_counts=True)
    if _work(sizes, many, k) > WORK:
        return simulate_chance(pool, k, np.random.default_rng(0))
    weights = [_weights(int(n), k, sum(pool)) for n in sizes]
    # For each size, the ratio of every count to its desired share, as in ``relative_share``.
    ratios = [np.arange(len(w)) * float(sum(pool)) / (k * float(n))
              for w, n in zip(weights, sizes, strict=True)]  # fmt: skip
    whole = _coefficient(weights, many, k)
    values, cumulated = [], []
    for limit in np.unique(np.concatenate(ratios)).tolist():
        caps = [int(np.searchsorted(own, limit, side="right")) for own in ratios]
        if sum((cap - 1) * n for cap, n in zip(caps, many.tolist(), strict=True)) < k:
            continue
        cut = [w[:cap] for w, cap in zip(weights, caps, strict=True)]
        values.append(math.log(limit))
        cumulated.append(_coefficient(cut, many, k) / whole)
        if cumulated[-1] >= SURE:
            break
    p = np.diff(np.minimum(cumulated, 1.0), prepend=0.0)
    return ChanceSkew(np.array(values), np.maximum(p, 0) / np.maximum(p, 0).sum(), exact=True)


def _work(sizes: np.ndarray, many: np.ndarray, k: int) -> float:
    """Estimate the multiplications: products of polynomials for each limit that matters."""
    usual = k * sizes / (sizes @ many)
    limits = np.minimum(10 * np.sqrt(usual) + 20, np.minimum(sizes, k)).sum()
    products = (2 * np.log2(many) + 1).sum()
    return float(limits * products * k * k / 2)


def _weights(n: int, k: int, whole: int) -> np.ndarray:
    """Return weights proportional to C(n, c) odds**c for counts 0 to min(n, k), summing to one."""
    p = (k + 0.5) / (whole + 1)
    c = np.arange(min(n, k))
    logs = np.r_[0.0, np.cumsum(np.log((n - c) / (c + 1) * (p / (1 - p))))]
    raised = np.exp(logs - logs.max())
    found: np.ndarray = raised / raised.sum()
    return found


def _coefficient(polynomials: Sequence[np.ndarray], powers: np.ndarray, degree: int) -> float:
    """Return the coefficient of one degree in a product of powers of polynomials."""
    product = np.ones(1)
    for one, power in zip(polynomials, powers.tolist(), strict=True):
        square, left = one, power
        while left:
            if left & 1:
                product = np.convolve(product, square)[: degree + 1]
            left >>= 1
            if left:
                square = np.convolve(square, square)[: degree + 1]
    return float(product[degree]) if len(product) > degree else 0.0


def simulate_chance(
    pool_A: Sequence[int], k: int, rng: np.random.Generator, draws: int = DRAWS
) -> ChanceSkew:
    """Return the distribution of MaxSkew@K over simulated random rankings.

    Args:
        pool_A: number of the pool's images with each label, above 0, (labels,).
        k: number of retrieved images, from 1 to the size of the pool.
        rng: generator that draws the rankings.
        draws: number of rankings.
    """
    at_once = max(1, 2**22 // len(pool_A))
    found = [
        max_skew(rng.multivariate_hypergeometric(pool_A, k, min(at_once, draws - done)), pool_A)
        for done in range(0, draws, at_once)
    ]
    values, counts = np.unique(np.concatenate(found), return_counts=True)
    return ChanceSkew(values, counts / draws, exact=False)


def chance_ndkl(pool_A: Sequence[int], at: int | None = None) -> float:
    """Return the expected NDKL of a random ranking, exactly.

    The divergence of a prefix is a sum over labels, each of whose counts is hypergeometric.

    Args:
        pool_A: number of the pool's images with each label, above 0, (labels,); the desired shares
            are the pool's.
        at: length of the longest prefix; ``None`` is the whole ranking.

    Raises:
        ValueError: if a count is not above 0, or ``at`` is out of range.

    >>> round(chance_ndkl([1, 1]), 4)  # one image of two labels comes first, whatever the order
    0.425
    """
    counts = tuple(sorted(int(count) for count in pool_A))
    n = sum(counts)
    if not counts or counts[0] < 1 or not 1 <= (n if at is None else at) <= n:
        raise ValueError(
            f"at={at} and the pool {list(pool_A)} should be 1 or more, at most its sum"
        )
    return _chance_ndkl(counts, n if at is None else int(at))


@lru_cache(maxsize=4096)
def _chance_ndkl(pool: tuple[int, ...], at: int) -> float:
    sizes, many = np.unique(pool, return_counts=True)
    expected = np.zeros(at)
    for own, labels in zip(sizes.tolist(), many.tolist(), strict=True):
        expected += labels * _expected_terms(own, sum(pool), at)
    return float(expected @ discount(at))


def _expected_terms(own: int, n: int, at: int) -> np.ndarray:
    """Return the expected divergence that a label adds to each prefix, float64 (at,).

    Args:
        own: number of the label's images in the pool.
        n: number of images in the pool.
        at: length of the longest prefix.
    """
    from scipy.special import gammaln

    share = own / n
    log_factorial = gammaln(np.arange(n + 1) + 1.0)

    def log_choose(total: int | np.ndarray, chosen: np.ndarray) -> np.ndarray:
        found: np.ndarray = (
            log_factorial[total] - log_factorial[chosen] - log_factorial[total - chosen]
        )
        return found

    found = np.empty(at)
    for i in range(1, at + 1):
        spread = math.sqrt(i * share * (1 - share) * (n - i) / max(n - 1, 1))
        reach = WIDE * spread + WIDE
        low = max(0, i - (n - own), math.floor(i * share - reach))
        c = np.arange(max(low, 0), min(own, i, math.ceil(i * share + reach)) + 1)
        p = np.exp(log_choose(own, c) + log_choose(n - own, i - c)
                   - log_choose(n, np.array([i])))  # fmt: skip
        ratio = c / (i * share)
        found[i - 1] = (p * (c / i) * np.log(np.where(c > 0, ratio, 1.0))).sum()
    return found
