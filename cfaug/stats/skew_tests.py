"""MaxSkew@K and NDKL by chance: is a ranking above it, and how certain is that?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cfaug.stats.skew_metrics import count_top, discount, max_skew, relative_share

# Sets are the sampled units: images of a counterfactual set share everything but the label, so a
# set that suits the prompt brings all its labels to the top together, and one that does not, none.
#
# * **Test.** If a model does not see the labels, those of a set could be assigned to its images in
#   any other order, whatever the scores: permuting labels *within sets* is the exact null
#   hypothesis of matched sets, and the default of the benchmark. Permuting over the whole pool
#   treats all images as exchangeable, which images of different sets are not; where sets differ it
#   expects more skew than matched sets can show, and so it finds less.
# * **Interval.** A bootstrap draws whole sets.
#
# Only the first K places matter: a permutation draws as many labels of a set as the set has images
# there. ``scipy.stats.permutation_test`` cannot permute within sets, and ``bootstrap`` would rank
# every resample of sets anew, while one ranking serves all resamples here.

AT_ONCE = 2**22
"""Numbers held in memory at a time."""
LEVEL = 0.05
"""Nominal level; ``PermutationTest.level`` is the actual one."""


@dataclass(frozen=True)
class RankedPool:
    """The images among which a prompt retrieves, the best first.

    Attributes:
        labels: index of each image's label, int64 (images,); every index from 0 occurs.
        sets: index of each image's set, int64 (images,); every index from 0 occurs.
    """

    labels: NDArray[np.int64]
    sets: NDArray[np.int64]

    @property
    def pool(self) -> NDArray[np.int64]:
        """How often each label is in the pool, (labels,)."""
        return np.bincount(self.labels)

    def top(self, k: int) -> NDArray[np.int64]:
        """Return how often each label is among the first k, (labels,)."""
        counts: NDArray[np.int64] = count_top(self.labels, len(self.pool), [k])[0]
        return counts


@dataclass(frozen=True)
class PermutationTest:
    """A permutation test of MaxSkew@K against labels that do not matter.

    Attributes:
        p: share of permutations with at least the observed MaxSkew, the observed one included.
        expected: mean MaxSkew over permutations.
        high: 95 % quantile of MaxSkew over permutations.
        level: share of permutations that would have p <= 0.05 themselves: the expected rate of
            false alarms. Below 0.05, because MaxSkew takes few values.
    """

    p: float
    expected: float
    high: float
    level: float
    permutations: int


def permutation_test(
    ranked: RankedPool, k: int, rng: np.random.Generator, permutations: int = 10_000
) -> PermutationTest:
    """Test MaxSkew@K against labels permuted within sets: exact for matched sets.

    Args:
        ranked: the pool, with the best image first.
        k: number of retrieved images, from 1 to the number of images.

    Raises:
        ValueError: if k is out of range or ``permutations`` below 1.

    >>> one_set = RankedPool(np.array([0, 1, 2]), np.array([0, 0, 0]))
    >>> test = permutation_test(one_set, 3, np.random.default_rng(0), 99)
    >>> test.p, test.expected  # the whole set is retrieved, whatever its labels
    (1.0, 0.0)
    """
    if permutations < 1:
        raise ValueError(f"permutations={permutations} should be 1 or more")
    observed = float(max_skew(ranked.top(k), ranked.pool))
    at_once = max(1, AT_ONCE // max(len(ranked.pool), k))
    drawn = np.concatenate(
        [
            max_skew(permute_within_sets(ranked, k, rng, min(at_once, permutations - done)),
                     ranked.pool)
            for done in range(0, permutations, at_once)
        ]
    )  # fmt: skip
    values, counts = np.unique(drawn, return_counts=True)
    tails = counts[::-1].cumsum()[::-1]  # number of draws at or above each value
    at = int(np.searchsorted(values, observed - 1e-9))
    beyond = int(tails[at]) if at < len(values) else 0
    alarms = tails[(tails + 1) / (permutations + 1) <= LEVEL]
    high = values[int(np.searchsorted(counts.cumsum(), (1 - LEVEL) * permutations))]
    return PermutationTest(
        p=(1 + beyond) / (permutations + 1),
        expected=float(drawn.mean()),
        high=float(high),
        level=float(alarms.max(initial=0)) / permutations,
        permutations=permutations,
    )


def permute_within_sets(
    ranked: RankedPool, k: int, rng: np.random.Generator, permutations: int
) -> np.ndarray:
    """Return the counts of labels among the first k images with labels permuted within sets.

    Args:
        ranked: the pool, with the best image first.
        k: number of retrieved images, from 1 to the number of images.

    Returns:
        int64 (permutations, labels); every row sums to k.
    """
    labels = len(ranked.pool)
    in_top = np.bincount(ranked.sets[:k], minlength=int(ranked.sets.max()) + 1)
    size = np.bincount(ranked.sets)
    by_set = np.argsort(ranked.sets, kind="stable")
    first = np.cumsum(size) - size
    fixed = np.zeros(labels, np.int64)
    row = np.arange(permutations, dtype=np.int64) * labels
    places = [np.zeros((permutations, 0), np.int64)]
    taken_out = [np.zeros((permutations, 0), np.int64)]
    touched = np.flatnonzero(in_top)
    kinds = np.unique(np.stack([size[touched], in_top[touched]]), axis=1).T
    for n, t in kinds.tolist():
        alike = touched[(size[touched] == n) & (in_top[touched] == t)]
        members = ranked.labels[by_set[first[alike][:, None] + np.arange(n)]]  # (sets, n)
        few = min(t, n - t)  # if most of a set is drawn, draw the rest of it instead
        drawn = _draw_without_replacement(rng, permutations, len(alike), n, few)
        dealt = members[np.arange(len(alike))[:, None], drawn].reshape(permutations, -1)
        if few < t:
            fixed += np.bincount(members.reshape(-1), minlength=labels)
        (places if few == t else taken_out).append(dealt)
    return fixed + _count_rows(places, row, labels) - _count_rows(taken_out, row, labels)


def _draw_without_replacement(
    rng: np.random.Generator, rows: int, sets: int, n: int, few: int
) -> np.ndarray:
    """Return ``few`` different numbers below n, in random order, for each row and set.

    Returns:
        integers (rows, sets, few).
    """
    if few == 0:
        return np.zeros((rows, sets, 0), np.int64)
    if few == 1:
        return rng.integers(n, size=(rows, sets, 1))
    # Fisher and Yates' shuffle, stopped after the first places.
    cards = np.tile(np.arange(n, dtype=np.int32), rows * sets)
    base = np.arange(rows * sets) * n
    drawn = np.empty((rows * sets, few), np.int32)
    for position in range(few):
        other = base + rng.integers(position, n, size=rows * sets)
        drawn[:, position] = cards[other]
        cards[other] = cards[base + position]
    return drawn.reshape(rows, sets, few)


def _count_rows(places: Sequence[np.ndarray], row: np.ndarray, labels: int) -> np.ndarray:
    """Return how often each label occurs in each row, int64 (rows, labels)."""
    dealt = np.concatenate(places, axis=1) + row[:, None]
    return np.bincount(dealt.reshape(-1), minlength=len(row) * labels).reshape(-1, labels)


def draw_sets(sets: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Return how often each set is in each bootstrap resample, float32 (resamples, sets)."""
    return rng.multinomial(sets, np.full(sets, 1 / sets), size=resamples).astype(np.float32)


def bootstrap_max_skew(
    ranked: RankedPool, ks: Sequence[int], drawn_BS: np.ndarray, level: float = 0.95
) -> list[tuple[float, float]]:
    """Return for each k the percentile interval of MaxSkew@K over sets drawn with replacement.

    A set that is drawn twice brings each of its images twice, so resamples have on average somewhat
    more skew than the data: the interval says how far MaxSkew depends on the choice of sets, not
    whether it is above chance; for that use the permutation test.

    Args:
        ranked: the pool, with the best image first.
        ks: cut-offs from 1 to the number of images.
        drawn_BS: number of times each resample has each set, from ``draw_sets``, (resamples, sets).
        level: nominal coverage of the intervals, between 0 and 1.

    Returns:
        (low, high) for each k; both are ``nan`` with a single set.
    """
    if drawn_BS.shape[1] < 2:
        return [(math.nan, math.nan)] * len(ks)
    tails = [(1 - level) / 2, (1 + level) / 2]
    ends = [
        np.quantile(values, tails).tolist() for values in resample_max_skew(ranked, ks, drawn_BS)
    ]
    return [(low, high) for low, high in ends]


def resample_max_skew(
    ranked: RankedPool, ks: Sequence[int], drawn_BS: np.ndarray
) -> list[NDArray[np.float32]]:
    """Return for each k MaxSkew@K of every resample of sets, float32 (resamples,).

    Args:
        ranked: the pool, with the best image first.
        ks: cut-offs from 1 to the number of images.
        drawn_BS: number of times each resample has each set, from ``draw_sets``, (resamples, sets).
    """
    sets, labels = drawn_BS.shape[1], len(ranked.pool)
    member = np.bincount(ranked.sets * labels + ranked.labels, minlength=sets * labels)
    skews: list[list[np.ndarray]] = [[] for _ in ks]
    at_once = max(1, AT_ONCE // len(ranked.labels))
    for start in range(0, len(drawn_BS), at_once):
        drawn = drawn_BS[start : start + at_once]
        pools = drawn @ member.reshape(sets, labels).astype(np.float32)
        for parts, counts in zip(skews, _top_of_resamples(ranked, ks, drawn), strict=True):
            parts.append(np.log(relative_share(counts, pools).max(axis=1)))
    return [np.concatenate(parts) for parts in skews]


def _top_of_resamples(
    ranked: RankedPool, ks: Sequence[int], drawn_BS: np.ndarray
) -> list[np.ndarray]:
    """Return for each k the counts of labels among the first k of each resample, (B, labels).

    Resamples that lack the sets of the first images are followed further down than the others.
    """
    n, labels = len(ranked.labels), len(ranked.pool)
    counted = [np.empty((len(drawn_BS), labels), np.float32) for _ in ks]
    left, length = np.arange(len(drawn_BS)), min(n, 2 * max(ks))
    while len(left):
        by_set = np.ascontiguousarray(drawn_BS[left].T)
        upto = np.cumsum(by_set[ranked.sets[:length]], axis=0)  # images down, resamples across
        full = (upto[-1] >= max(ks)) | (length == n)
        upto = upto[:, full]
        one_hot = np.eye(labels, dtype=np.float32)[:, ranked.labels[:length]]
        for k, counts in zip(ks, counted, strict=True):
            within = np.minimum(upto, np.float32(k))
            counts[left[full]] = (one_hot @ np.diff(within, axis=0, prepend=np.float32(0))).T
        left, length = left[~full], min(n, 2 * length)
    return counted


# MaxSkew@K and NDKL of a random ranking: never 0, and larger for more labels.
#
# A model that knows nothing about the labels still retrieves some more often than others: with 12
# labels and K = 12 the expected MaxSkew is 1.01, with 84 and 84 it is 1.38. So a raw MaxSkew says
# little, and values for grids of different size are not comparable.
#
# The counts of K images drawn from a pool without replacement are multivariate hypergeometric: that
# is, independent binomial counts of each label, given that they sum to K. So the chance that no
# label exceeds its limit is one coefficient of a product of polynomials, one per label; all terms
# are positive, so nothing cancels.
#
# ``scipy.stats.multivariate_hypergeom`` has the probability of one vector of counts, and there are
# 1.35 million vectors for 12 labels and K = 12; it has no distribution of their maximum.

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
        """Return the probability of a MaxSkew of at least ``value``: an exact p."""
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
    # The multiplications: products of polynomials for each limit that matters.
    usual = k * sizes / (sizes @ many)
    limits = np.minimum(10 * np.sqrt(usual) + 20, np.minimum(sizes, k)).sum()
    if float(limits * (2 * np.log2(many) + 1).sum() * k * k / 2) > WORK:
        return simulate_chance(pool, k, np.random.default_rng(0))
    weights = [_weights(int(n), k, sum(pool)) for n in sizes]
    # For each size, the ratio of every count to its desired share, as in ``relative_share``.
    ratios = [np.arange(len(w)) * float(sum(pool)) / (k * float(n))
              for w, n in zip(weights, sizes, strict=True)]  # fmt: skip
    whole = _coefficient(weights, many, k)
    values, cumulated = [], []
    for limit in np.unique(np.concatenate(ratios)).tolist():
        caps = [int(np.searchsorted(ratio, limit, side="right")) for ratio in ratios]
        if sum((cap - 1) * n for cap, n in zip(caps, many.tolist(), strict=True)) < k:
            continue
        cut = [w[:cap] for w, cap in zip(weights, caps, strict=True)]
        values.append(math.log(limit))
        cumulated.append(_coefficient(cut, many, k) / whole)
        if cumulated[-1] >= SURE:
            break
    p = np.diff(np.minimum(cumulated, 1.0), prepend=0.0)
    return ChanceSkew(np.array(values), np.maximum(p, 0) / np.maximum(p, 0).sum(), exact=True)


def _weights(n: int, k: int, whole: int) -> np.ndarray:
    """Return weights proportional to C(n, c) odds**c for counts 0 to min(n, k), summing to one."""
    p = (k + 0.5) / (whole + 1)
    c = np.arange(min(n, k))
    logs = np.r_[0.0, np.cumsum(np.log((n - c) / (c + 1) * (p / (1 - p))))]
    raised = np.exp(logs - logs.max())
    return np.asarray(raised / raised.sum())


def _coefficient(polynomials: Sequence[np.ndarray], powers: np.ndarray, degree: int) -> float:
    """Return the coefficient of one degree in a product of powers of polynomials."""
    product = np.ones(1)
    for polynomial, power in zip(polynomials, powers.tolist(), strict=True):
        square, left = polynomial, power
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
    """
    at_once = max(1, 2**22 // len(pool_A))
    simulated = [
        max_skew(rng.multivariate_hypergeometric(pool_A, k, min(at_once, draws - done)), pool_A)
        for done in range(0, draws, at_once)
    ]
    values, counts = np.unique(np.concatenate(simulated), return_counts=True)
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
    from scipy.special import gammaln

    n = sum(pool)
    log_factorial = gammaln(np.arange(n + 1) + 1.0)

    def log_choose(total: int | np.ndarray, chosen: np.ndarray) -> np.ndarray:
        logs: np.ndarray = (
            log_factorial[total] - log_factorial[chosen] - log_factorial[total - chosen]
        )
        return logs

    sizes, many = np.unique(pool, return_counts=True)
    expected = np.zeros(at)
    for size, labels in zip(sizes.tolist(), many.tolist(), strict=True):
        share = size / n
        terms = np.empty(at)  # the expected divergence that a label adds to each prefix
        for i in range(1, at + 1):
            spread = math.sqrt(i * share * (1 - share) * (n - i) / max(n - 1, 1))
            reach = WIDE * spread + WIDE
            low = max(0, i - (n - size), math.floor(i * share - reach))
            c = np.arange(low, min(size, i, math.ceil(i * share + reach)) + 1)
            p = np.exp(log_choose(size, c) + log_choose(n - size, i - c)
                       - log_choose(n, np.array([i])))  # fmt: skip
            ratio = c / (i * share)
            terms[i - 1] = (p * (c / i) * np.log(np.where(c > 0, ratio, 1.0))).sum()
        expected += labels * terms
    return float(expected @ discount(at))
