"""Tests over items against scipy, slow twins, and known answers; what a set of items can show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cfaug.core.rng import generator
from cfaug.stats import item_tests
from cfaug.stats.item_tests import (
    cluster_bootstrap,
    describe_resolution,
    least_visible,
    mcnemar,
    nested_bootstrap,
    sign_test,
    standard_error,
)
from tests.properties import examples

ALTERNATIVES = ("greater", "less", "two-sided")
COUNTS = st.integers(0, 400)


@settings(max_examples=examples(60), deadline=None)
@given(COUNTS, COUNTS, st.sampled_from(ALTERNATIVES))
def test_mcnemar_is_the_binomial_test(better, worse, alternative):
    from scipy.stats import binomtest

    expected = binomtest(better, better + worse, alternative=alternative).pvalue \
        if better + worse else 1.0  # fmt: skip
    assert mcnemar(better, worse, alternative) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("alternative", ALTERNATIVES)
@pytest.mark.parametrize(
    ("better", "worse"), [(10**6, 995_000), (5 * 10**8, 5 * 10**8), (2**31, 2**31 + 100_000)]
)
def test_mcnemar_is_the_binomial_test_of_any_number_of_items(better, worse, alternative):
    from scipy.stats import binomtest

    expected = binomtest(better, better + worse, alternative=alternative).pvalue
    assert mcnemar(better, worse, alternative) == pytest.approx(expected, rel=1e-10)


def test_the_sign_test_leaves_out_ties():
    values = [0.5, -0.1, 0.0, 0.2, 0.0, 3.0, 0.1]
    assert sign_test(values, "greater") == mcnemar(4, 1, "greater")
    assert sign_test([0.0, 0.0]) == 1.0
    with pytest.raises(ValueError, match="finite"):
        sign_test([0.1, math.nan])


@settings(max_examples=examples(40), deadline=None)
@given(
    # Rounded, so that no mean lies just at what counts as 0.
    st.lists(
        st.tuples(st.floats(-5, 5).map(lambda value: round(value, 6)), st.integers(0, 6)),
        min_size=1, max_size=40,
    ),
    st.booleans(),
)  # fmt: skip
@example([(0.0, 0), (0.0, 1)], False)  # nothing differs: p is 1
def test_the_bootstrap_of_clusters_is_scipys_of_their_sums_and_sizes(pairs, weighted):
    from scipy.stats import bootstrap

    values, clusters = (np.array(column) for column in zip(*pairs, strict=True))
    weights = 1.0 + np.arange(len(pairs)) % 3 if weighted else np.ones(len(pairs))
    difference = cluster_bootstrap(
        values, clusters, np.random.default_rng(3), weights=weights if weighted else None,
        level=0.9, resamples=500,
    )  # fmt: skip
    names, place = np.unique(clusters, return_inverse=True)
    assert difference.mean == pytest.approx(np.average(values, weights=weights), abs=1e-12)
    assert (difference.items, difference.clusters) == (len(pairs), len(names))
    if len(names) < 2:
        assert all(
            map(math.isnan, (difference.low, difference.high, difference.p_greater, difference.p))
        )
        return
    expected = bootstrap(
        (np.bincount(place, values * weights), np.bincount(place, weights)),
        lambda totals, sizes, axis: totals.sum(axis) / sizes.sum(axis),
        paired=True, method="percentile", n_resamples=500, confidence_level=0.9,
        rng=np.random.default_rng(3),
    )  # fmt: skip
    ends = expected.confidence_interval
    assert (difference.low, difference.high) == pytest.approx((ends.low, ends.high), abs=1e-12)
    slack = 1e-9 * np.abs(values).mean()
    for p, below in (
        (difference.p_greater, expected.bootstrap_distribution <= slack),
        (difference.p_less, expected.bootstrap_distribution >= -slack),
    ):
        assert p == (1 + below.sum()) / 501
    assert difference.p == min(1, 2 * min(difference.p_greater, difference.p_less))


def test_kinds_and_clusters_are_drawn_from_one_distribution(monkeypatch):
    rng = np.random.default_rng(5)
    totals, sizes = rng.choice([-1.0, 0.0, 2.0], 300), rng.choice([1.0, 2.0], 300)
    fast = item_tests._resampled_means(totals, sizes, generator(1, "a"), 20_000)
    monkeypatch.setattr(item_tests, "FEW_KINDS", 10**9)
    slow = item_tests._resampled_means(totals, sizes, generator(1, "b"), 20_000)
    shares = np.linspace(0.01, 0.99, 25)
    assert np.quantile(fast, shares) == pytest.approx(np.quantile(slow, shares), abs=0.01)
    same = item_tests._resampled_means(totals, np.ones(300), generator(1, "c"), 2000)
    assert same.std() == pytest.approx(totals.std() / math.sqrt(300), rel=0.1)


def test_a_resample_does_not_depend_on_how_many_are_drawn_at_once(monkeypatch):
    values = np.random.default_rng(2).normal(size=50)
    whole = cluster_bootstrap(values, range(50), generator(1, "x"))
    monkeypatch.setattr(item_tests, "DRAWN_AT_ONCE", 120)
    assert cluster_bootstrap(values, range(50), generator(1, "x")) == whole
    few = np.sign(values)
    parts = cluster_bootstrap(few, range(50), generator(1, "x"))
    monkeypatch.undo()
    assert cluster_bootstrap(few, range(50), generator(1, "x")) == parts


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clusters": [1]}, "lengths"), ({"weights": [1, 1, 0]}, "above 0"),
        ({"level": 1.0}, "level"), ({"resamples": 0}, "resamples"),
        ({"differences": [1, 2, math.inf]}, "finite"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_named(change, says):
    arguments = {"differences": [1.0, 2.0, 3.0], "clusters": [1, 2, 3]} | change
    with pytest.raises(ValueError, match=says):
        cluster_bootstrap(**arguments, rng=generator(1, "x"))
    with pytest.raises(ValueError, match="0 or more"):
        mcnemar(-1, 2)
    with pytest.raises(ValueError, match="larger"):
        mcnemar(1, 2, "larger")


def test_the_nested_bootstrap_draws_clusters_and_one_of_the_resamples_of_each():
    rng = np.random.default_rng(2)
    values = rng.normal(0.4, 1.0, 7)
    resampled = values[:, None] + rng.normal(0.5, 0.3, (7, 30))  # larger than the data, on average
    difference = nested_bootstrap(
        values, resampled, np.random.default_rng(8), resamples=500, level=0.9
    )
    stream = np.random.default_rng(8)
    clusters, inner = stream.integers(7, size=(500, 7)), stream.integers(30, size=(500, 7))
    means = []
    for drawn, columns in zip(clusters.tolist(), inner.tolist(), strict=True):
        shifts = [values[c] - sum(resampled[c]) / 30 for c in drawn]
        parts = [resampled[c][b] + s for c, b, s in zip(drawn, columns, shifts, strict=True)]
        means.append(sum(parts) / 7)
    assert difference.mean == pytest.approx(sum(values) / 7)
    assert [difference.low, difference.high] == pytest.approx(np.quantile(means, [0.05, 0.95]))
    assert difference.p_greater == (1 + sum(mean <= 0 for mean in means)) / 501
    assert difference.p_less == (1 + sum(mean >= 0 for mean in means)) / 501
    single = nested_bootstrap([2.0], [[1.0, 3.0]], np.random.default_rng(0))
    assert (single.mean, single.clusters) == (2.0, 1)
    assert math.isnan(single.p)
    assert math.isnan(single.low)


@pytest.mark.parametrize(
    ("values", "resampled", "said"),
    [
        ([], np.zeros((0, 3)), "row of finite values"),
        ([1.0, 2.0], np.zeros((3, 4)), "shapes do not fit"),
        ([1.0, 2.0], np.zeros((2, 0)), "shapes do not fit"),
        ([1.0, 2.0], np.zeros(2), "shapes do not fit"),
        ([1.0, 2.0], np.full((2, 2), np.nan), "NaN or infinite"),
        ([1.0, math.inf], np.zeros((2, 2)), "row of finite values"),
    ],
)
def test_the_nested_bootstrap_refuses_what_it_cannot_draw_from(values, resampled, said):
    with pytest.raises(ValueError, match=said):
        nested_bootstrap(values, resampled, np.random.default_rng(0))


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30))
def test_of_independent_items_it_is_scipys(values):
    from scipy.stats import sem

    assert standard_error(values) == pytest.approx(sem(values), abs=1e-12)


def slow_error(values, clusters):
    """Cochran's linearised ratio, cluster by cluster."""
    mean = sum(values) / len(values)
    names = sorted(set(clusters))
    squares = 0.0
    for name in names:
        members = [v for v, c in zip(values, clusters, strict=True) if c == name]
        squares += (sum(members) - mean * len(members)) ** 2
    return math.sqrt(len(names) / (len(names) - 1) * squares) / len(values)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.integers(0, 5)), min_size=2, max_size=40))
def test_clusters_count_by_their_items(pairs):
    values, clusters = zip(*pairs, strict=True)
    error = standard_error(values, clusters)
    if len(set(clusters)) == 1:
        assert math.isnan(error)
    else:
        assert error == pytest.approx(slow_error(values, clusters), abs=1e-12)


def test_what_differs_by_less_is_not_significant():
    from scipy.stats import ttest_1samp

    values = np.random.default_rng(1).normal(0, 1, 50)
    least = least_visible(standard_error(values), 50)
    for factor, significant in ((0.999, False), (1.001, True)):
        moved = values - values.mean() + factor * least
        assert (ttest_1samp(moved, 0).pvalue < 0.05) == significant


def test_sentences():
    assert describe_resolution(0.014, 1, 1).startswith("1 item: standard error 1.4 points")
    assert describe_resolution(math.nan, 3, 1) == (
        "3 items in 1 cluster: too few for a standard error"
    )
    assert describe_resolution(0.0, 3, 3) == "3 items: no spread, so no standard error"
    nats = describe_resolution(0.25, 100, 100, factor=1, unit="nats")
    assert nats == (
        "100 items: standard error 0.25 nats; a difference below 0.5 nats cannot be seen on this "
        "set"
    )
    with pytest.raises(ValueError, match="lengths"):
        standard_error([1.0, 0.0], ["a"])
    assert math.isnan(least_visible(0.1, 1))
