"""Permutations and bootstrap of MaxSkew@K, against sets shuffled one by one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from cfaug.stats import skew_tests
from cfaug.stats.skew_metrics import count_top, max_skew, ndkl
from cfaug.stats.skew_tests import (
    RankedPool,
    bootstrap_max_skew,
    chance_ndkl,
    chance_skew,
    draw_sets,
    permutation_test,
)


def ranked_pool(sets, labels, effect=0.0, seed=0, bonus=0.0):
    """Images of whole sets by score: sets differ by ``effect``, label 0 scores ``bonus`` more."""
    rng = np.random.default_rng(seed)
    label, group = np.tile(np.arange(labels), sets), np.repeat(np.arange(sets), labels)
    scores = (
        rng.normal(size=len(group)) + effect * rng.normal(size=sets)[group] + bonus * (label == 0)
    )
    order = np.argsort(-scores)
    return RankedPool(label[order], group[order])


def every_permutation(ranked, k):
    """Return MaxSkew@K of every way to deal each set's labels to its images."""
    places = [np.flatnonzero(ranked.sets == number) for number in range(ranked.sets.max() + 1)]
    dealt = [list(itertools.permutations(ranked.labels[rows].tolist())) for rows in places]
    skews = []
    for chosen in itertools.product(*dealt):
        labels = ranked.labels.copy()
        for rows, some in zip(places, chosen, strict=True):
            labels[rows] = some
        skews.append(float(max_skew(count_top(labels, len(ranked.pool), [k])[0], ranked.pool)))
    return np.array(skews)


SMALL = [
    RankedPool(np.array(labels), np.array(sets))
    for labels, sets in (
        ([0, 1, 2, 0, 1, 2], [0, 0, 1, 1, 0, 1]),
        ([0, 0, 1, 1, 1, 0, 1, 0], [0, 0, 0, 0, 1, 1, 1, 1]),  # a marginal label
        ([2, 0, 1, 1, 0, 1, 2, 0], [0, 1, 0, 0, 1, 2, 2, 2]),  # sets of different size
    )
]


@pytest.mark.parametrize("ranked", SMALL)
@pytest.mark.parametrize("k", [1, 3, 5])
def test_permutations_are_those_of_every_way_to_deal_labels(ranked, k):
    every = every_permutation(ranked, k)
    tested = permutation_test(ranked, k, np.random.default_rng(0), 20_000)
    observed = float(max_skew(ranked.top(k), ranked.pool))
    assert tested.p == pytest.approx(float((every >= observed - 1e-9).mean()), abs=0.015)
    assert tested.expected == pytest.approx(float(every.mean()), abs=0.01)
    p = np.array([(every >= value - 1e-9).mean() for value in every])
    assert tested.level == pytest.approx(float((p <= 0.05).mean()), abs=0.01)
    assert tested.high == pytest.approx(np.quantile(every, 0.95, method="inverted_cdf"))


def slow_bootstrap(ranked, k, drawn):
    """Return MaxSkew@K of a pool in which sets stand as often as they were drawn."""
    labels = np.repeat(ranked.labels, drawn[ranked.sets].astype(int))
    pool = np.bincount(labels, minlength=len(ranked.pool))
    there = np.flatnonzero(pool)
    new = np.searchsorted(there, labels)
    return float(max_skew(count_top(new, len(there), [min(k, len(new))])[0], pool[there]))


@pytest.mark.parametrize(
    "ranked", [*SMALL, ranked_pool(9, 4, 2.0), ranked_pool(3, 12, 9.0), ranked_pool(30, 2)]
)
def test_the_bootstrap_draws_whole_sets(ranked):
    ks = [5, 1, len(ranked.labels) // 2]
    drawn = draw_sets(int(ranked.sets.max()) + 1, 64, np.random.default_rng(3))
    assert (drawn.sum(axis=1) == drawn.shape[1]).all()
    intervals = bootstrap_max_skew(ranked, ks, drawn, 0.9)
    for k, interval in zip(ks, intervals, strict=True):
        slow = [slow_bootstrap(ranked, k, counts) for counts in drawn]
        assert interval == pytest.approx(np.quantile(slow, [0.05, 0.95]).tolist(), abs=1e-6)


def test_the_same_stream_gives_the_same_answer_and_what_is_invalid_is_refused():
    ranked = ranked_pool(6, 4)
    first, second = (permutation_test(ranked, 4, np.random.default_rng(5), 50) for _ in range(2))
    assert first == second
    planted = permutation_test(ranked_pool(20, 6, bonus=3.0), 12, np.random.default_rng(0), 999)
    assert (planted.p, planted.permutations) == (1 / 1000, 999), "never zero"
    drawn = draw_sets(1, 10, np.random.default_rng(0))
    assert np.isnan(bootstrap_max_skew(ranked_pool(1, 4), [2], drawn)[0]).all()
    with pytest.raises(ValueError, match="k=25 should be 1 to 24"):
        permutation_test(ranked, 25, np.random.default_rng(0))
    with pytest.raises(ValueError, match="permutations=0"):
        permutation_test(ranked, 4, np.random.default_rng(0), 0)


# What chance gives, against every ranking there is.

POOLS = [
    ([2, 2, 2], 3),
    ([3, 3], 2),
    ([1, 2, 3], 3),
    ([4, 1, 1], 6),
    ([1, 1, 1, 1, 1], 2),
    ([3], 2),
]


def every_ranking(pool):
    labels = [label for label, count in enumerate(pool) for _ in range(count)]
    return np.array(list(itertools.permutations(labels)))


@pytest.mark.parametrize(("pool", "k"), POOLS)
def test_the_distribution_is_that_of_every_ranking(pool, k):
    rankings = every_ranking(pool)
    every = np.array(
        [max_skew(count_top(ranking, len(pool), [k])[0], pool) for ranking in rankings]
    )
    values, counts = np.unique(np.round(every, 12), return_counts=True)
    chance = chance_skew(pool, k)
    there = chance.p > 1e-15
    assert chance.exact
    assert chance.values[there].tolist() == pytest.approx(values.tolist(), abs=1e-9)
    assert chance.p[there].tolist() == pytest.approx((counts / len(every)).tolist())
    assert chance.mean == pytest.approx(float(np.mean(every)), abs=1e-12)
    for value in values.tolist():
        assert chance.tail(value) == pytest.approx(float(np.mean(every >= value - 1e-9)))
    assert chance.tail(99) == 0
    assert chance.quantile(0.5) == pytest.approx(np.quantile(every, 0.5, method="inverted_cdf"))
    for alpha in (0.05, 0.3, 0.6):
        p = np.array([chance.tail(value) for value in every])
        assert chance.level(alpha) == pytest.approx(float((p <= alpha + 1e-12).mean()))
    slow = np.mean([ndkl(ranking, pool) for ranking in rankings])
    assert chance_ndkl(pool) == pytest.approx(float(slow), abs=1e-12)
    short = np.mean([ndkl(ranking, pool, k) for ranking in rankings])
    assert chance_ndkl(pool, k) == pytest.approx(float(short), abs=1e-12)


def test_what_would_take_too_long_is_drawn_and_always_alike(monkeypatch):
    pool = list(range(20, 26))
    exact = chance_skew(pool, 8)
    monkeypatch.setattr(skew_tests, "WORK", 0)
    skew_tests._chance_skew.cache_clear()
    drawn = chance_skew(pool, 8)
    assert not drawn.exact
    assert drawn.mean == pytest.approx(exact.mean, abs=0.01)
    skew_tests._chance_skew.cache_clear()
    again = chance_skew(pool[::-1], 8)
    assert (again.values == drawn.values).all()
    assert (again.p == drawn.p).all()
    skew_tests._chance_skew.cache_clear()


def test_large_pools_neither_overflow_nor_lose_their_sum():
    chance = chance_skew([14_236] * 12, 600)
    assert chance.exact
    # A count is about normal; the largest of 12 is expected 1.63 standard deviations up.
    sd = math.sqrt(600 / 12 * 11 / 12)
    assert chance.mean == pytest.approx(math.log(1 + 1.63 * sd / 50), abs=0.015)
    assert chance_ndkl([300] * 12) == pytest.approx(0.0333, abs=0.01)


@pytest.mark.parametrize(
    "call",
    [lambda: chance_skew([], 1), lambda: chance_skew([1, 0], 1), lambda: chance_skew([1, 1], 3),
     lambda: chance_skew([1], 0), lambda: chance_ndkl([]), lambda: chance_ndkl([2, 2], 5)],
)  # fmt: skip
def test_an_empty_pool_or_a_k_beyond_it_is_refused(call):
    with pytest.raises(ValueError, match="should be 1 or more"):
        call()
