"""Both kinds of chance at once, and their parts: against loops, and what was put in."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.seeds_and_items import WITHOUT_DIFFERENCE, Design, cover, false_alarms
from cfaug.stats.seeds_and_items import (
    FEW_SEEDS,
    ITEMS,
    SEEDS,
    OneTest,
    OwnTests,
    bootstrap_arms,
    decompose,
    resample_rows,
)
from tests.properties import examples


def slow_bootstrap(asked: OneTest, resamples: int, seed: int) -> np.ndarray:
    """Draw clusters and seeds one by one, items in full, and take the mean of what was drawn."""
    at, differences = rng(seed), []
    names = sorted(set(asked.clusters))
    of = {
        name: [i for i, cluster in enumerate(asked.clusters) if cluster == name] for name in names
    }
    for _ in range(resamples):
        items = [i for _ in names for i in of[names[at.integers(len(names))]]]
        ours = [at.integers(len(asked.arm)) for _ in asked.arm]
        theirs = ours
        if not asked.paired:
            theirs = [at.integers(len(asked.baseline)) for _ in asked.baseline]
        arm = [asked.arm[s, i] for s in ours for i in items]
        baseline = [asked.baseline[s, i] for s in theirs for i in items]
        differences.append(sum(arm) / len(arm) - sum(baseline) / len(baseline))
    return np.array(differences)


@pytest.mark.parametrize("paired", [True, False])
def test_it_draws_what_a_loop_draws(paired):
    at = rng(3)
    arm = (at.random((4, 30)) < [[0.8], [0.7], [0.9], [0.8]]).astype(float)
    baseline = (at.random((4 if paired else 3, 30)) < 0.6).astype(float)
    asked = OneTest(arm, baseline, [i // 4 for i in range(30)], paired)
    difference = bootstrap_arms(asked, rng(), resamples=20_000)
    slow = slow_bootstrap(asked, 3000, 1)
    low, high = np.quantile(slow, [0.025, 0.975])
    assert difference.mean == pytest.approx(arm.mean() - baseline.mean())
    assert difference.low == pytest.approx(low, abs=0.02)
    assert difference.high == pytest.approx(high, abs=0.02)
    assert difference.p_less == pytest.approx(np.mean(slow >= 0), abs=0.02)
    assert (difference.seeds, difference.baseline_seeds) == (4, len(baseline))
    assert (difference.items, difference.clusters) == (30, 8)


def test_resampled_rows_share_their_draws_and_count_by_items():
    values = rng().random((2, 9))
    values = np.stack([values[0], values[0] + 1, values[1]])
    clusters = ["a"] * 5 + ["b"] * 3 + ["c"]
    means = resample_rows(values, clusters, rng(), 500)
    assert means.shape == (3, 500)
    assert means[1] == pytest.approx(means[0] + 1)
    members = [[0, 1, 2, 3, 4], [5, 6, 7], [8]]
    possible = {
        round(float(values[0, [i for cluster in drawn for i in cluster]].mean()), 9)
        for drawn in itertools.product(members, repeat=3)
    }
    assert {round(float(mean), 9) for mean in means[0]} == possible


def test_tests_of_their_own_are_drawn_within_seeds():
    values = layout(seed=0.5, item=0.5, shape=(6, 40))
    asked = OwnTests(list(values), [range(40)] * 6)
    difference = bootstrap_arms(asked, rng())
    assert difference.mean == pytest.approx(values.mean())
    assert (difference.seeds, difference.items, difference.clusters) == (6, 240, 240)
    assert difference.low < values.mean() < difference.high
    ragged = OwnTests([[1.0, 0.0], [1.0, 1.0, 0.0, 0.0, 1.0]], [["a", "b"], [*"aabbc"]])
    assert bootstrap_arms(ragged, rng()).mean == pytest.approx((0.5 + 0.6) / 2)


def test_too_few_to_draw_from_have_no_interval():
    one_seed = bootstrap_arms(crossed(layout(item=1.0, shape=(1, 20))), rng())
    one_cluster = bootstrap_arms(crossed(layout(item=1.0, shape=(3, 20)), [0] * 20), rng())
    one_own_test = bootstrap_arms(OwnTests([[1.0, 2.0]], [[0, 1]]), rng())
    for difference in (one_seed, one_cluster, one_own_test):
        assert all(map(math.isnan, (difference.low, difference.high, difference.p)))
    # A checkpoint before training has one seed; its arms have several.
    arm, before = layout(seed=0.2, item=1.0), np.zeros((1, 80))
    assert bootstrap_arms(OneTest(arm, before, range(80), paired=False), rng()).low < 0.3


@pytest.mark.parametrize(
    ("arm", "baseline", "clusters", "says"),
    [
        ([[1.0, np.inf]], [[0.0, 0.0]], [0, 1], "finite"),
        ([1.0, 2.0], [[0.0, 0.0]], [0, 1], "finite"),
        ([[1.0, 2.0]], [[1.0, 0.0]], [0], "shapes"),
        ([[1.0, 2.0]] * 2, [[1.0, 0.0]], [0, 1], "shapes"),
    ],
)
def test_what_cannot_be_compared_is_refused(arm, baseline, clusters, says):
    with pytest.raises(ValueError, match=says):
        OneTest(arm, baseline, clusters)


def test_lengths_and_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="lengths"):
        OwnTests([[1.0, 2.0]], [[0]])
    for wrong in ({"level": 1.0}, {"resamples": 0}):
        with pytest.raises(ValueError, match="above 0"):
            bootstrap_arms(crossed(layout(item=1.0)), rng(), **wrong)


def test_intervals_hold_the_true_difference():
    """What benchmarks/seeds_and_items.py prints at length."""
    design = Design(seeds=5, items=60, trials=120, resamples=200)
    over_seeds, over_items, both, parts = cover(design, (1 / 3, 1 / 3, 1 / 3))
    assert max(over_seeds, over_items) < min(both, parts)
    assert min(both, parts) > 0.9
    alone = cover(design, (1.0, 0.0, 0.0))
    assert alone[1] < 0.1  # over items alone nothing is known of seeds
    assert alone[2] < 0.93 < alone[3]  # five seeds are too few to draw from, as is documented


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 4])
def test_false_alarms_of_few_seeds_are_as_the_caution_says(seeds):
    """The caution's rates, simulated again: none is exceeded, and the highest is reached."""
    trials = 400
    design = Design(seeds, items=200, trials=trials, resamples=1)
    rates = np.array([false_alarms(design, world) for world in WITHOUT_DIFFERENCE])
    cautioned = np.array(FEW_SEEDS.get(seeds, (0.055, 0.06)))
    spread = np.sqrt(cautioned * (1 - cautioned) / trials)
    # Of 17 worlds, the highest rate may lie above its own by chance: 3.5 standard errors.
    assert (rates.max(axis=0) <= cautioned + 3.5 * spread).all()
    assert (rates.max(axis=0) >= cautioned - 2.5 * spread).all()
    assert (rates[0] <= 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / trials)).all()  # seeds alone


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


def test_a_part_below_zero_is_cut_and_named():
    values = np.array([[1.0, -1.0, 1.0, -1.0], [-1.0, 1.0, -1.0, 1.0]])
    parts = decompose(crossed(values))
    assert parts.truncated == (SEEDS, ITEMS)
    assert (parts.seeds, parts.items) == (0.0, 0.0)
    assert parts.share(parts.rest) == 1.0
    assert decompose(crossed(layout(0.5, 0.5, 0.1))).truncated == ()


def test_no_spread_is_no_certainty():
    parts = decompose(crossed(np.full((3, 4), 0.25)))
    assert parts.total == 0
    assert math.isnan(parts.share(parts.seeds))
    assert all(map(math.isnan, parts.interval(0.25)))
    assert math.isnan(parts.p_greater(0.25))
    assert parts.p_greater(0.0) == 1.0
    nested = decompose(OwnTests([[1.0, 1.0]] * 3, [[0, 1]] * 3))
    assert nested.total == 0


def test_tests_of_their_own_are_told_apart_by_their_items():
    shape, drawn_parts = (5, 40), []
    for draw in range(300):
        values = layout(0.9, rest=2.0, shape=shape, draw=draw)
        drawn_parts.append(decompose(OwnTests(list(values), [range(40)] * 5)))
    assert np.mean([parts.seeds for parts in drawn_parts]) == pytest.approx(0.81 / 5, rel=0.1)
    assert np.mean([parts.items for parts in drawn_parts]) == pytest.approx(4 / 200, rel=0.05)
    assert all(math.isnan(parts.rest) for parts in drawn_parts)
    over_seeds = np.var(layout(0.9, rest=2.0, shape=shape).mean(axis=1), ddof=1) / 5
    assert drawn_parts[0].total == pytest.approx(max(over_seeds, drawn_parts[0].items))


def test_too_few_are_refused():
    with pytest.raises(ValueError, match="two seeds"):
        decompose(crossed(np.ones((1, 4))))
    with pytest.raises(ValueError, match="two clusters"):
        decompose(crossed(np.ones((3, 4)), [0] * 4))
    with pytest.raises(ValueError, match="two clusters"):
        decompose(OwnTests([[1.0], [0.0]], [[0], [0]]))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def layout(seed=0.0, item=0.0, rest=0.0, shape=(5, 80), draw=0) -> np.ndarray:
    """Differences with these standard deviations of seeds, items and their interaction."""
    at = rng(draw)
    return (
        0.3 + at.normal(0, seed, (shape[0], 1)) + at.normal(0, item, (1, shape[1]))
        + at.normal(0, rest, shape)
    )  # fmt: skip


def crossed(values: np.ndarray, clusters=None) -> OneTest:
    names = range(values.shape[1]) if clusters is None else clusters
    return OneTest(values, np.zeros_like(values), names)


@settings(max_examples=examples(60), deadline=None)
@given(tables, st.integers(0, 99))
def test_the_parts_are_those_of_a_two_way_layout_of_the_difference(values, draw):
    """Whatever both arms have in common, and if items are split into two of one cluster."""
    base = rng(draw).normal(0, 1, values.shape)
    slow = slow_parts(values)
    parts = decompose(crossed(values))
    assert (parts.seeds, parts.items, parts.rest) == pytest.approx(slow, abs=1e-12)
    assert parts.total == pytest.approx(sum(slow), abs=1e-12)
    halves = np.arange(2 * values.shape[1]) // 2
    split = decompose(OneTest((base - values).repeat(2, 1), base.repeat(2, 1), halves))
    assert [split.seeds, split.items, split.rest] == pytest.approx(slow, abs=1e-9)


def test_what_was_put_in_is_found_in_arms_of_other_seeds():
    """Averaged over many tables, the parts are what the difference was drawn with."""
    shape, sd = (4, 30), (0.5, 1.5, 2.0)
    drawn_parts = []
    for draw in range(400):
        at = rng(draw)
        by_item = at.normal(0, sd[1], shape[1])
        arm, base = (
            at.normal(0, sd[0], (shape[0], 1)) + at.normal(0, sd[2], shape) for _ in range(2)
        )
        drawn_parts.append(decompose(OneTest(arm + by_item, base, range(shape[1]), paired=False)))
    expected = 2 * 0.25 / 4, 2.25 / 30, 2 * 4.0 / 120
    means = [
        np.mean([getattr(parts, name) for parts in drawn_parts])
        for name in ("seeds", "items", "rest")
    ]
    assert means == pytest.approx(expected, rel=0.12)


@pytest.mark.parametrize("axis", [0, 1])
def test_equal_seeds_or_items_leave_the_t_test_over_the_others(axis):
    from scipy.stats import ttest_1samp

    drawn = rng().normal(0.3, 1, 5)
    values = np.broadcast_to(np.expand_dims(drawn, axis), (8, 5) if axis == 0 else (5, 50))
    parts = decompose(crossed(values))
    low, high = ttest_1samp(drawn, 0).confidence_interval()
    assert parts.interval(drawn.mean()) == pytest.approx((low, high))
    p = ttest_1samp(drawn, 0, alternative="greater").pvalue
    assert parts.p_greater(drawn.mean()) == pytest.approx(p)
    assert parts.degrees == pytest.approx(4)
