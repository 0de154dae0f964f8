"""The parts of a spread: against a textbook's layout, cell by cell, and against what was put in."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cfaug.stats.seeds_and_items import ITEMS, SEEDS, OneTest, OwnTests, decompose
from tests.properties import examples
from tests.stats.arms import crossed, layout, rng


def slow_parts(values: np.ndarray) -> tuple[float, float, float]:
    """The two-way layout of a textbook, one cell after the other."""
    count, many = values.shape
    mean = sum(values[s, c] for s in range(count) for c in range(many)) / (count * many)
    rows = [sum(values[s]) / many for s in range(count)]
    columns = [sum(values[:, c]) / count for c in range(many)]
    ms_seed = many * sum((row - mean) ** 2 for row in rows) / (count - 1)
    ms_item = count * sum((column - mean) ** 2 for column in columns) / (many - 1)
    left = [
        (values[s, c] - rows[s] - columns[c] + mean) ** 2
        for s in range(count) for c in range(many)
    ]  # fmt: skip
    ms_rest = sum(left) / (count - 1) / (many - 1)
    return (
        max((ms_seed - ms_rest) / many, 0) / count,
        max((ms_item - ms_rest) / count, 0) / many,
        ms_rest / count / many,
    )


tables = arrays(
    np.float64,
    st.tuples(st.integers(2, 5), st.integers(2, 7)),
    elements=st.floats(-3, 3).map(lambda x: round(x, 3)),
)


@settings(max_examples=examples(60), deadline=None)
@given(tables)
def test_the_parts_are_those_of_a_two_way_layout(values):
    found = decompose(crossed(values))
    slow = slow_parts(values)
    assert (found.seeds, found.items, found.rest) == pytest.approx(slow, abs=1e-12)
    assert min(found.seeds, found.items, found.rest) >= 0
    assert found.total == pytest.approx(sum(slow), abs=1e-12)


@settings(max_examples=examples(60), deadline=None)
@given(tables, st.integers(0, 99))
def test_parts_are_of_a_difference_whatever_it_is_called(values, draw):
    """Swapping arms, orders, equal additions and splits of an item change nothing."""
    at = rng(draw)
    base = at.normal(0, 1, values.shape)
    count, many = values.shape
    found = decompose(OneTest(values, base, range(many)))
    order, places = at.permutation(count), at.permutation(many)
    others = [
        decompose(OneTest(base, values, range(many))),
        decompose(OneTest(values[order][:, places], base[order][:, places], range(many))),
        decompose(OneTest(values + 7, base, range(many))),
        decompose(OneTest(*(v.repeat(2, 1) for v in (values, base)), np.arange(2 * many) // 2)),
    ]  # fmt: skip
    for other in others:
        assert [other.seeds, other.items, other.rest] == pytest.approx(
            [found.seeds, found.items, found.rest], abs=1e-9
        )


@pytest.mark.parametrize("paired", [True, False])
def test_what_was_put_in_is_found(paired):
    """Averaged over many tables, the parts are what the difference was drawn with."""
    shape, sd = (4, 30), (0.5, 1.5, 2.0)
    found = []
    for draw in range(400):
        at = rng(draw)
        by_item = at.normal(0, sd[1], shape[1])
        arm, base = (
            at.normal(0, sd[0], (shape[0], 1)) + at.normal(0, sd[2], shape) for _ in range(2)
        )
        found.append(decompose(OneTest(arm + by_item, base, range(shape[1]), paired)))
    expected = 2 * 0.25 / 4, 2.25 / 30, 2 * 4.0 / 120
    means = [np.mean([getattr(one, name) for one in found]) for name in ("seeds", "items", "rest")]
    assert means == pytest.approx(expected, rel=0.12)


def test_a_part_below_zero_is_cut_and_named():
    values = np.array([[1.0, -1.0, 1.0, -1.0], [-1.0, 1.0, -1.0, 1.0]])
    found = decompose(crossed(values))
    assert found.truncated == (SEEDS, ITEMS)
    assert (found.seeds, found.items) == (0.0, 0.0)
    assert found.share(found.rest) == 1.0
    assert decompose(crossed(layout(0.5, 0.5, 0.1))).truncated == ()


def test_no_spread_is_no_certainty():
    found = decompose(crossed(np.full((3, 4), 0.25)))
    assert found.total == 0
    assert math.isnan(found.share(found.seeds))
    assert all(map(math.isnan, found.interval(0.25)))
    assert math.isnan(found.p_greater(0.25))
    assert found.p_greater(0.0) == 1.0
    own = decompose(OwnTests([[1.0, 1.0]] * 3, [[0, 1]] * 3))
    assert own.total == 0


def test_equal_items_leave_the_t_test_over_seeds():
    from scipy.stats import ttest_1samp

    values = np.repeat(rng().normal(0.3, 1, (5, 1)), 50, axis=1)
    found = decompose(crossed(values))
    test = ttest_1samp(values[:, 0], 0)
    low, high = test.confidence_interval()
    assert found.interval(values.mean()) == pytest.approx((low, high))
    assert found.p_greater(values.mean()) == pytest.approx(
        ttest_1samp(values[:, 0], 0, alternative="greater").pvalue
    )
    assert found.degrees == pytest.approx(4)


def test_tests_of_their_own_are_told_apart_by_their_items():
    shape, found = (5, 40), []
    for draw in range(300):
        values = layout(0.9, rest=2.0, shape=shape, draw=draw)
        found.append(decompose(OwnTests(list(values), [range(40)] * 5)))
    assert np.mean([one.seeds for one in found]) == pytest.approx(0.81 / 5, rel=0.1)
    assert np.mean([one.items for one in found]) == pytest.approx(4 / 200, rel=0.05)
    assert all(math.isnan(one.rest) for one in found)
    over_seeds = np.var(layout(0.9, rest=2.0, shape=shape).mean(axis=1), ddof=1) / 5
    assert found[0].total == pytest.approx(max(over_seeds, found[0].items))


def test_too_few_are_refused():
    with pytest.raises(ValueError, match="two seeds"):
        decompose(crossed(np.ones((1, 4))))
    with pytest.raises(ValueError, match="two clusters"):
        decompose(crossed(np.ones((3, 4)), [0] * 4))
    with pytest.raises(ValueError, match="two clusters"):
        decompose(OwnTests([[1.0], [0.0]], [[0], [0]]))
