"""What chance gives, against every ranking there is."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from cfaug.social import skew_tests
from cfaug.social.skew_metrics import count_top, max_skew, ndkl
from cfaug.social.skew_tests import chance_ndkl, chance_skew, simulate_chance

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
    every = np.array([max_skew(count_top(one, len(pool), [k])[0], pool) for one in rankings])
    values, counts = np.unique(np.round(every, 12), return_counts=True)
    found = chance_skew(pool, k)
    there = found.p > 1e-15
    assert found.exact
    assert found.values[there].tolist() == pytest.approx(values.tolist(), abs=1e-9)
    assert found.p[there].tolist() == pytest.approx((counts / len(every)).tolist())
    assert found.mean == pytest.approx(float(np.mean(every)), abs=1e-12)
    for value in values.tolist():
        assert found.tail(value) == pytest.approx(float(np.mean(every >= value - 1e-9)))
    assert found.tail(99) == 0
    assert found.quantile(0.5) == pytest.approx(np.quantile(every, 0.5, method="inverted_cdf"))
    for alpha in (0.05, 0.3, 0.6):
        p = np.array([found.tail(value) for value in every])
        assert found.level(alpha) == pytest.approx(float((p <= alpha + 1e-12).mean()))
    slow = np.mean([ndkl(one, pool) for one in rankings])
    assert chance_ndkl(pool) == pytest.approx(float(slow), abs=1e-12)
    short = np.mean([ndkl(one, pool, k) for one in rankings])
    assert chance_ndkl(pool, k) == pytest.approx(float(short), abs=1e-12)


@pytest.mark.parametrize(
    ("labels", "k", "mean"),
    [(12, 12, 1.01), (2, 2, 0.34), (2, 12, 0.18), (6, 6, 0.84), (28, 28, 1.20), (84, 84, 1.38),
     (12, 120, 0.385)],
)  # fmt: skip
def test_known_levels_of_fifty_images_a_label(labels, k, mean):
    """The issue's 4,000 simulations gave 0.85 for six labels; all rankings give 0.841."""
    found = chance_skew([50] * labels, k)
    assert found.mean == pytest.approx(mean, abs=0.006)
    assert found.p.sum() == pytest.approx(1)
    if (labels, k) == (12, 12):
        assert found.quantile(0.95) == pytest.approx(math.log(4))


@pytest.mark.parametrize(("pool", "k"), [([50] * 12, 12), ([13, 40, 22], 12), ([7, 9, 30, 2], 20)])
def test_simulation_agrees(pool, k):
    exact = chance_skew(pool, k)
    drawn = simulate_chance(pool, k, np.random.default_rng(0), 20_000)
    assert exact.exact
    assert not drawn.exact
    assert drawn.mean == pytest.approx(exact.mean, abs=0.01)
    assert drawn.tail(exact.mean) == pytest.approx(exact.tail(exact.mean), abs=0.012)


def test_what_would_take_too_long_is_drawn_and_always_alike(monkeypatch):
    pool = list(range(20, 26))
    exact = chance_skew(pool, 8)
    monkeypatch.setattr(skew_tests, "WORK", 0)
    skew_tests._chance_skew.cache_clear()
    found = chance_skew(pool, 8)
    assert not found.exact
    assert found.mean == pytest.approx(exact.mean, abs=0.01)
    skew_tests._chance_skew.cache_clear()
    again = chance_skew(pool[::-1], 8)
    assert (again.values == found.values).all()
    assert (again.p == found.p).all()
    skew_tests._chance_skew.cache_clear()


def test_large_pools_neither_overflow_nor_lose_their_sum():
    found = chance_skew([14_236] * 12, 600)
    assert found.exact
    # A count is about normal; the largest of 12 is expected 1.63 standard deviations up.
    sd = math.sqrt(600 / 12 * 11 / 12)
    assert found.mean == pytest.approx(math.log(1 + 1.63 * sd / 50), abs=0.015)
    assert chance_ndkl([300] * 12) == pytest.approx(0.0333, abs=0.01)


@pytest.mark.parametrize(
    "call",
    [lambda: chance_skew([], 1), lambda: chance_skew([1, 0], 1), lambda: chance_skew([1, 1], 3),
     lambda: chance_skew([1], 0), lambda: chance_ndkl([]), lambda: chance_ndkl([2, 2], 5)],
)  # fmt: skip
def test_an_empty_pool_or_a_k_beyond_it_is_refused(call):
    with pytest.raises(ValueError, match="should be 1 or more"):
        call()
