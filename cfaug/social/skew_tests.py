"""Is the MaxSkew@K of a ranking above chance, and how certain is it? Sets are the sampled units.

Images of a counterfactual set share everything but the label, so a set that suits the prompt
brings all its labels to the top together, and a set that does not brings none of them.

* **Test.** If a model does not see the labels, the labels of a set could be assigned to its images
  in any other order, whatever the scores: permuting labels *within sets* is the exact null
  hypothesis of matched sets, and the default of the benchmark. Permuting over the whole pool treats
  all images as exchangeable, which images of different sets are not; where sets differ it expects
  more skew than matched sets can show, and so it finds less.
* **Interval.** A bootstrap draws whole sets.

Only the first K places matter: a permutation draws as many labels of a set as the set has images
there.

``scipy.stats.permutation_test`` cannot permute within sets, and ``bootstrap`` would rank every
resample of sets anew, while one ranking serves all resamples here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfaug.social.skew_metrics import count_top, max_skew, relative_share

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
        found: NDArray[np.int64] = count_top(self.labels, len(self.pool), [k])[0]
        return found


@dataclass(frozen=True)
class PermutationTest:
    """A permutation test of MaxSkew@K against labels that do not matter.

    Attributes:
        p: share of permutations with at least the observed MaxSkew, the observed one included.
        expected: mean MaxSkew over permutations.
        high: 95 % quantile of MaxSkew over permutations.
        level: share of permutations that would have p <= 0.05 themselves: the expected rate of
            false alarms. Below 0.05, because MaxSkew takes few values.
        permutations: number of permutations drawn.
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
        rng: generator that draws the permutations.
        permutations: number of permutations.

    Raises:
        ValueError: if k is out of range or ``permutations`` below 1.

    >>> one_set = RankedPool(np.array([0, 1, 2]), np.array([0, 0, 0]))
    >>> found = permutation_test(one_set, 3, np.random.default_rng(0), 99)
    >>> found.p, found.expected  # the whole set is retrieved, whatever its labels
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
    return _judge(observed, drawn)


def permute_within_sets(
    ranked: RankedPool, k: int, rng: np.random.Generator, permutations: int
) -> np.ndarray:
    """Return the counts of labels among the first k images with labels permuted within sets.

    Args:
        ranked: the pool, with the best image first.
        k: number of retrieved images, from 1 to the number of images.
        rng: generator that draws the permutations.
        permutations: number of permutations.

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
        own = touched[(size[touched] == n) & (in_top[touched] == t)]
        members = ranked.labels[by_set[first[own][:, None] + np.arange(n)]]  # (sets, n)
        few = min(t, n - t)  # if most of a set is drawn, draw the rest of it instead
        drawn = _draw_without_replacement(rng, permutations, len(own), n, few)
        dealt = members[np.arange(len(own))[:, None], drawn].reshape(permutations, -1)
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
    found = np.empty((rows * sets, few), np.int32)
    for place in range(few):
        other = base + rng.integers(place, n, size=rows * sets)
        found[:, place] = cards[other]
        cards[other] = cards[base + place]
    return found.reshape(rows, sets, few)


def _count_rows(places: Sequence[np.ndarray], row: np.ndarray, labels: int) -> np.ndarray:
    """Return how often each label occurs in each row, int64 (rows, labels)."""
    dealt = np.concatenate(places, axis=1) + row[:, None]
    return np.bincount(dealt.reshape(-1), minlength=len(row) * labels).reshape(-1, labels)


def _judge(observed: float, drawn: np.ndarray) -> PermutationTest:
    """Compare the observed value with those of the permutations."""
    count = len(drawn)
    values, counts = np.unique(drawn, return_counts=True)
    tails = counts[::-1].cumsum()[::-1]  # number of draws at or above each value
    at = int(np.searchsorted(values, observed - 1e-9))
    beyond = int(tails[at]) if at < len(values) else 0
    alarms = tails[(tails + 1) / (count + 1) <= LEVEL]
    high = values[int(np.searchsorted(counts.cumsum(), (1 - LEVEL) * count))]
    return PermutationTest(
        p=(1 + beyond) / (count + 1),
        expected=float(drawn.mean()),
        high=float(high),
        level=float(alarms.max(initial=0)) / count,
        permutations=count,
    )


def draw_sets(sets: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Return how often each set is in each bootstrap resample, float32 (resamples, sets).

    Args:
        sets: number of sets, and of draws with replacement in each resample.
        resamples: number of resamples.
        rng: generator that draws the resamples.
    """
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
    ends = [np.quantile(one, tails).tolist() for one in resample_max_skew(ranked, ks, drawn_BS)]
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
    found: list[list[np.ndarray]] = [[] for _ in ks]
    at_once = max(1, AT_ONCE // len(ranked.labels))
    for start in range(0, len(drawn_BS), at_once):
        drawn = drawn_BS[start : start + at_once]
        pools = drawn @ member.reshape(sets, labels).astype(np.float32)
        for one, counts in zip(found, _top_of_resamples(ranked, ks, drawn), strict=True):
            one.append(np.log(relative_share(counts, pools).max(axis=1)))
    return [np.concatenate(one) for one in found]


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
