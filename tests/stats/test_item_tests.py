"""Tests over items against scipy, slow twins, and known answers; what a set of items can show."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
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


def test_a_published_example_of_mcnemar():
    """Fagerland et al. (2013), Table 1 (Bentur et al.): 1 against 7."""
    assert round(mcnemar(1, 7), 4) == 0.0703


def test_the_sign_test_leaves_out_ties():
    values = [0.5, -0.1, 0.0, 0.2, 0.0, 3.0, 0.1]
    assert sign_test(values, "greater") == mcnemar(4, 1, "greater")
    assert sign_test([0.0, 0.0]) == 1.0
    with pytest.raises(ValueError, match="finite"):
        sign_test([0.1, math.nan])


CLUSTERED = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from([-1.0, 0.0, 0.25, 1.0])),
    min_size=2, max_size=20,
)  # fmt: skip


def all_means(values, clusters, weights):
    """Return the mean of every resample there is, walking over the items of the drawn clusters."""
    names = sorted(set(clusters))
    means = []
    for drawn in product(names, repeat=len(names)):
        total = weight = 0.0
        for name in drawn:
            for value, cluster, one in zip(values, clusters, weights, strict=True):
                if cluster == name:
                    total, weight = total + value * one, weight + one
        means.append(total / weight)
    return np.array(means)


@settings(max_examples=examples(40), deadline=None)
@given(CLUSTERED, st.booleans(), st.integers(0, 99))
def test_the_bootstrap_draws_from_all_resamples(pairs, weighted, seed):
    clusters, values = [c for c, _ in pairs], [v for _, v in pairs]
    weights = [1.0 + i % 3 for i in range(len(pairs))] if weighted else [1.0] * len(pairs)
    found = cluster_bootstrap(
        values, clusters, generator(seed, "x"), weights=weights if weighted else None
    )
    assert found.mean == pytest.approx(np.average(values, weights=weights))
    assert (found.items, found.clusters) == (len(pairs), len(set(clusters)))
    if found.clusters < 2:
        assert all(map(math.isnan, (found.low, found.high, found.p_greater, found.p)))
        return
    means = all_means(values, clusters, weights)
    # 10,000 draws: five standard errors of a share are at most 0.025.
    assert found.p_greater == pytest.approx((means <= 1e-9).mean(), abs=0.026)
    assert found.p_less == pytest.approx((means >= -1e-9).mean(), abs=0.026)
    for end, share in ((found.low, 0.025), (found.high, 0.975)):
        assert (means < end - 1e-9).mean() <= share + 0.01
        assert (means <= end + 1e-9).mean() >= share - 0.01


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 6)), min_size=2, max_size=40))
def test_the_bootstrap_of_clusters_is_scipys_of_their_sums_and_sizes(pairs):
    from scipy.stats import bootstrap

    values, clusters = zip(*pairs, strict=True)
    names, place = np.unique(clusters, return_inverse=True)
    if len(names) < 2:
        return
    expected = bootstrap(
        (np.bincount(place, values), np.bincount(place).astype(float)),
        lambda totals, sizes, axis: totals.sum(axis) / sizes.sum(axis),
        paired=True, method="percentile", n_resamples=500, rng=np.random.default_rng(3),
    ).confidence_interval  # fmt: skip
    found = cluster_bootstrap(values, clusters, np.random.default_rng(3), resamples=500)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


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


def test_items_of_one_cluster_are_not_taken_for_independent():
    """Five copies of every item say no more than one: the interval must not narrow."""
    values = np.random.default_rng(3).normal(0.1, 1.0, 200)
    once = cluster_bootstrap(values, range(200), generator(1, "x"))
    copied = cluster_bootstrap(np.repeat(values, 5), np.repeat(range(200), 5), generator(1, "x"))
    naive = cluster_bootstrap(np.repeat(values, 5), range(1000), generator(1, "x"))
    assert copied.high - copied.low == pytest.approx(once.high - once.low, rel=0.01)
    assert naive.high - naive.low < 0.6 * (once.high - once.low)


def test_p_agrees_with_the_interval_and_with_direction():
    values = np.random.default_rng(4).normal(0.2, 1.0, 120)
    kinds = np.arange(120)
    found = cluster_bootstrap(values, kinds, generator(1, "x"))
    assert (found.p < 0.05) == (not found.low <= 0 <= found.high)
    assert found.p_greater < 0.5 < found.p_less
    assert found.p == 2 * found.p_greater
    assert cluster_bootstrap(-values, kinds, generator(1, "x")).p_less == found.p_greater
    assert cluster_bootstrap(np.ones(9), range(9), generator(1, "x")).p == 2 / 10_001
    assert cluster_bootstrap(np.zeros(9), range(9), generator(1, "x")).p == 1.0


def test_the_level_is_kept_where_there_is_no_difference():
    """Of 300 tests of clustered noise about one in twenty is below 0.05; unclustered, far more."""
    rng = np.random.default_rng(6)
    clusters = np.repeat(np.arange(60), 4)
    found = {"clusters": 0, "items": 0}
    for trial in range(300):
        values = rng.normal(size=60)[clusters] + 0.3 * rng.normal(size=240)
        for name, groups in (("clusters", clusters), ("items", np.arange(240))):
            drawn = cluster_bootstrap(values, groups, generator(trial, name), resamples=400)
            found[name] += drawn.p < 0.05
    assert 4 <= found["clusters"] <= 30
    assert found["items"] > 60


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
    found = nested_bootstrap(values, resampled, np.random.default_rng(8), resamples=500, level=0.9)
    stream = np.random.default_rng(8)
    clusters, inner = stream.integers(7, size=(500, 7)), stream.integers(30, size=(500, 7))
    means = []
    for drawn, own in zip(clusters.tolist(), inner.tolist(), strict=True):
        shifts = [values[c] - sum(resampled[c]) / 30 for c in drawn]
        parts = [resampled[c][b] + s for c, b, s in zip(drawn, own, shifts, strict=True)]
        means.append(sum(parts) / 7)
    assert found.mean == pytest.approx(sum(values) / 7)
    assert [found.low, found.high] == pytest.approx(np.quantile(means, [0.05, 0.95]))
    assert found.p_greater == (1 + sum(one <= 0 for one in means)) / 501
    assert found.p_less == (1 + sum(one >= 0 for one in means)) / 501


def test_the_nested_bootstrap_is_wider_than_that_of_clusters_alone_and_nothing_for_one_cluster():
    rng = np.random.default_rng(3)
    values = rng.normal(size=40)
    own = values[:, None] + rng.normal(size=(40, 200))
    nested = nested_bootstrap(values, own, np.random.default_rng(0))
    alone = cluster_bootstrap(values, np.arange(40), np.random.default_rng(0))
    ratio = (nested.high - nested.low) / (alone.high - alone.low)
    assert ratio == pytest.approx(math.sqrt(values.var() + 1) / values.std(), rel=0.06)
    still = nested_bootstrap(values, values[:, None], np.random.default_rng(0))
    assert still.high - still.low == pytest.approx(alone.high - alone.low, rel=0.05)
    one = nested_bootstrap([2.0], [[1.0, 3.0]], np.random.default_rng(0))
    assert (one.mean, one.clusters) == (2.0, 1)
    assert math.isnan(one.p)
    assert math.isnan(one.low)


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


def test_it_is_the_binomial_standard_error():
    right = np.arange(2933) < 1439  # BiVLC's group score of CLIP ViT-B/32, 49.06 %
    share = 1439 / 2933
    assert standard_error(right) == pytest.approx(math.sqrt(share * (1 - share) / 2932))


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30))
def test_of_independent_items_it_is_scipys(values):
    from scipy.stats import sem

    assert standard_error(values) == pytest.approx(sem(values), abs=1e-12)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 60))
def test_paired_it_is_that_of_the_discordant_items(better, worse, equal):
    n = better + worse + equal
    if n < 2:
        return
    differences = [1.0] * better + [-1.0] * worse + [0.0] * equal
    expected = math.sqrt((better + worse - (better - worse) ** 2 / n) / (n * (n - 1)))
    assert standard_error(differences) == pytest.approx(expected)


def slow_error(values, clusters):
    """Cochran's linearised ratio, cluster by cluster."""
    mean = sum(values) / len(values)
    names = sorted(set(clusters))
    squares = 0.0
    for name in names:
        own = [v for v, c in zip(values, clusters, strict=True) if c == name]
        squares += (sum(own) - mean * len(own)) ** 2
    return math.sqrt(len(names) / (len(names) - 1) * squares) / len(values)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.integers(0, 5)), min_size=2, max_size=40))
def test_clusters_count_by_their_items(pairs):
    values, clusters = zip(*pairs, strict=True)
    found = standard_error(values, clusters)
    if len(set(clusters)) == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(slow_error(values, clusters), abs=1e-12)


def test_clusters_that_agree_count_once():
    values = np.repeat(np.random.default_rng(0).random(50) < 0.4, 4)
    clustered = standard_error(values, np.arange(200) // 4)
    assert clustered == pytest.approx(standard_error(values[::4]))
    assert clustered > 1.9 * standard_error(values)


def test_what_differs_by_less_is_not_significant():
    from scipy.stats import ttest_1samp

    values = np.random.default_rng(1).normal(0, 1, 50)
    least = least_visible(standard_error(values), 50)
    for factor, found in ((0.999, False), (1.001, True)):
        moved = values - values.mean() + factor * least
        assert (ttest_1samp(moved, 0).pvalue < 0.05) == found


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
