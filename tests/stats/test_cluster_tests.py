"""Means over clusters against all patterns of signs, scipy, a jackknife by hand, and properties."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks import few_clusters
from cfaug.stats import cluster_tests
from cfaug.stats.cluster_tests import cluster_mean, standard_error, student_reach
from cfaug.stats.item_tests import mcnemar
from tests.properties import examples

# Rounded, so that no sum lies just at what counts as 0.
VALUES = st.floats(-5, 5).map(lambda value: round(value, 6))


def rows(clusters: int, values: st.SearchStrategy[float] = VALUES):
    """Items, each a value and the number of its cluster."""
    return st.lists(st.tuples(values, st.integers(0, clusters - 1)), min_size=1, max_size=40)


def apart(pairs):
    """The values and the clusters of items."""
    values, clusters = zip(*pairs, strict=True)
    return np.array(values), list(clusters)


def slow(values, clusters, level=0.95):
    """Every pattern of signs: p above and below 0, and the means of all subsets but the empty one.

    A mean within 1e-9 of 0 counts as 0.
    """
    names = sorted(set(clusters))
    sums = {
        name: sum(v for v, c in zip(values, clusters, strict=True) if c == name) for name in names
    }
    sizes = {name: clusters.count(name) for name in names}
    total, above, below, means, patterns = sum(sums.values()), 0, 0, [], 0
    for signs in product((1, -1), repeat=len(names)):
        flipped = sum(sign * sums[name] for sign, name in zip(signs, names, strict=True))
        above += flipped >= total - 1e-9
        below += flipped <= total + 1e-9
        patterns += 1
        kept = [name for sign, name in zip(signs, names, strict=True) if sign > 0]
        if kept:
            means.append(sum(sums[n] for n in kept) / sum(sizes[n] for n in kept))
    means.sort()
    cut = int((1 - level) / 2 * patterns + 1e-9)
    ends = (means[cut - 1], means[-cut]) if cut >= 3 else None
    return above / patterns, below / patterns, ends


@settings(max_examples=examples(40), deadline=None)
@given(rows(9), st.sampled_from([0.9, 0.95]))
@example([(0.0, 0), (0.0, 1)], 0.95)  # nothing differs: p is 1
@example([(1.0, name) for name in range(7)], 0.95)  # all differ alike
def test_it_is_the_share_of_all_patterns_of_signs(pairs, level):
    values, clusters = apart(pairs)
    mean = cluster_mean(values, clusters, level=level)
    many = len(set(clusters))
    assert mean.mean == pytest.approx(values.mean(), abs=1e-12)
    assert (mean.items, mean.clusters) == (len(pairs), many)
    if many == 1:
        assert all(map(math.isnan, (mean.low, mean.high, mean.p_greater, mean.p_less, mean.p)))
        return
    above, below, ends = slow(values.tolist(), clusters, level)
    assert (mean.p_greater, mean.p_less) == (above, below)
    assert mean.p == min(1, 2 * min(above, below))
    assert mean.p >= 2.0 ** (1 - many)
    if ends is None:
        totals = np.array(
            [values[np.array(clusters) == name].sum() for name in sorted(set(clusters))]
        )
        sizes = np.array([float(clusters.count(name)) for name in sorted(set(clusters))])
        reach = student_reach(totals, sizes, level)
        ends = (mean.mean - reach, mean.mean + reach)
    assert (mean.low, mean.high) == pytest.approx(ends, abs=1e-9)


@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
def test_p_is_scipys_permutation_test_of_the_clusters_sums(alternative):
    from scipy.stats import permutation_test

    rng = np.random.default_rng(4)
    values, clusters = rng.normal(0.3, 1, 40), rng.integers(0, 9, 40)
    mean = cluster_mean(values, clusters)
    expected = permutation_test(
        (np.bincount(clusters, values),), lambda x, axis: x.sum(axis), permutation_type="samples",
        vectorized=True, n_resamples=np.inf, alternative=alternative,
    )  # fmt: skip
    p = {"greater": mean.p_greater, "less": mean.p_less, "two-sided": mean.p}[alternative]
    assert p == pytest.approx(expected.pvalue, abs=1e-12)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(-6, 6), min_size=17, max_size=60), st.sampled_from([1.0, 1 / 3, 0.2]))
def test_sums_with_a_common_unit_are_tested_exactly(sums, unit):
    """The distribution of the flipped sums, added up cluster by cluster."""
    totals = np.array(sums) * unit
    shares = {0: 1.0}
    for size in sums:
        wider: dict[int, float] = {}
        for value, share in shares.items():
            for flipped in (value + size, value - size):
                wider[flipped] = wider.get(flipped, 0.0) + share / 2
        shares = wider
    mean = cluster_mean(totals, range(len(sums)))
    assert mean.p_greater == pytest.approx(
        sum(share for value, share in shares.items() if value >= sum(sums)), rel=1e-9
    )
    assert mean.p_less == pytest.approx(
        sum(share for value, share in shares.items() if value <= sum(sums)), rel=1e-9
    )


@given(st.integers(0, 60), st.integers(0, 60))
def test_of_items_that_are_each_a_cluster_it_is_mcnemars_exact_test(better, worse):
    values = [1.0] * better + [-1.0] * worse + [0.0] * 20
    mean = cluster_mean(values, range(len(values)))
    assert mean.p == pytest.approx(mcnemar(better, worse), rel=1e-9)
    assert mean.p_greater == pytest.approx(mcnemar(better, worse, "greater"), rel=1e-9)


@settings(max_examples=examples(25), deadline=None)
@given(rows(24), st.randoms(use_true_random=False))
def test_neither_the_order_of_items_nor_the_names_of_clusters_count(pairs, random):
    values, clusters = apart(pairs)
    mean = cluster_mean(values, clusters)
    names = [*range(24)]
    random.shuffle(names)
    again = [(value, f"c{names[cluster]}") for value, cluster in pairs]
    random.shuffle(again)
    other = cluster_mean(*apart(again))
    for name in ("mean", "low", "high", "p_greater", "p_less"):
        assert getattr(other, name) == pytest.approx(getattr(mean, name), abs=1e-9, nan_ok=True)


@settings(max_examples=examples(25), deadline=None)
@given(rows(12))
def test_the_other_model_first_is_the_mirror_image(pairs):
    values, clusters = apart(pairs)
    mean, mirror = cluster_mean(values, clusters), cluster_mean(-values, clusters)
    assert (mirror.p_greater, mirror.p_less) == pytest.approx(
        (mean.p_less, mean.p_greater), nan_ok=True
    )
    assert (-mirror.high, -mirror.low) == pytest.approx(
        (mean.low, mean.high), abs=1e-9, nan_ok=True
    )


@settings(max_examples=examples(25), deadline=None)
@given(rows(14))
def test_interval_and_p_of_seven_clusters_or_more_agree(pairs):
    values, clusters = apart(pairs)
    mean = cluster_mean(values, clusters)
    if mean.clusters >= 7 and abs(mean.low) > 1e-9 < abs(mean.high):
        assert (mean.low > 0) == (mean.p_greater <= 0.025)
        assert (mean.high < 0) == (mean.p_less <= 0.025)


def test_random_subsets_are_about_what_all_of_them_are(monkeypatch):
    rng = np.random.default_rng(5)
    values, clusters = rng.normal(0.4, 1, 60), rng.integers(0, 14, 60)
    exact = cluster_mean(values, clusters)
    monkeypatch.setattr(cluster_tests, "EXACT_UP_TO", 10)
    drawn = cluster_mean(values, clusters)
    assert (drawn.low, drawn.high) == pytest.approx((exact.low, exact.high), abs=0.03)
    assert drawn.p_greater == pytest.approx(exact.p_greater, abs=0.01)
    monkeypatch.setattr(cluster_tests, "DRAWN_AT_ONCE", 100)
    assert cluster_mean(values, clusters) == drawn  # in pieces
    assert drawn.p_greater >= 1 / (cluster_tests.SUBSETS + 1)


def test_kinds_of_clusters_and_clusters_are_drawn_from_one_distribution(monkeypatch):
    rng = np.random.default_rng(5)
    totals, sizes = rng.choice([-1.0, 0.0, 2.0], 300), rng.choice([1.0, 2.0], 300)
    fast = cluster_tests._subsets(totals, sizes)
    monkeypatch.setattr(cluster_tests, "FEW_KINDS", 10**9)
    every = cluster_tests._subsets(totals, sizes)
    shares = np.linspace(0.01, 0.99, 25)
    for some, others in zip(fast, every, strict=True):
        spread = others.std()
        assert np.quantile(some, shares) == pytest.approx(
            np.quantile(others, shares), abs=0.15 * spread
        )


@pytest.mark.parametrize("sizes", [[5, 5, 5], [1, 2, 30], [4, 9, 2, 2, 7], [3, 8]])
def test_students_degrees_are_bell_and_mccaffreys(sizes):
    """Moments of the variance CR2 of drawn items, which the degrees of freedom summarise."""
    from scipy.special import stdtrit

    rng = np.random.default_rng(1)
    sizes = np.array(sizes, float)
    totals = rng.normal(0, 1, (40_000, len(sizes))) * np.sqrt(sizes)
    share = sizes / sizes.sum()
    residuals = totals - totals.sum(axis=1, keepdims=True) * share
    variances = (residuals**2 / (1 - share)).sum(axis=1) / sizes.sum() ** 2
    assert variances.mean() == pytest.approx(1 / sizes.sum(), rel=0.03)
    degrees = 2 * variances.mean() ** 2 / variances.var()
    reach = student_reach(totals[0], sizes, 0.95) / math.sqrt(variances[0])
    assert reach == pytest.approx(stdtrit(degrees, 0.975), rel=0.1)


def test_of_equal_sizes_it_is_students_interval_of_the_clusters_means():
    from scipy.stats import t, ttest_1samp

    values = np.random.default_rng(3).normal(0.5, 1, 20)
    mean = cluster_mean(values, np.arange(20) % 5)
    groups = values.reshape(4, 5).mean(axis=0)
    expected = ttest_1samp(groups, 0).confidence_interval(0.95)
    assert (mean.low, mean.high) == pytest.approx((expected.low, expected.high))
    reach = t.ppf(0.975, 4) * standard_error(values, np.arange(20) % 5)
    assert mean.high - mean.mean == pytest.approx(reach)


def test_one_cluster_gives_neither_p_nor_interval_and_two_give_little():
    single = cluster_mean([1.0, 2.0], ["a", "a"])
    assert (single.mean, single.clusters) == (1.5, 1)
    assert all(map(math.isnan, (single.low, single.high, single.p)))
    pair = cluster_mean([1.0, 2.0], ["a", "b"])
    assert pair.p == 0.5
    assert pair.low < 0 < 3 < pair.high


def test_an_interval_of_a_share_stays_between_0_and_1():
    """Student's of three photos reached from -54 to 105 %."""
    share = cluster_mean([1, 0, 0, 0.0], [*"aabc"], bounds=(0.0, 1.0))
    free = cluster_mean([1, 0, 0, 0.0], [*"aabc"])
    assert free.low < 0 == share.low
    assert share.high == min(free.high, 1.0)


@pytest.mark.parametrize(
    ("values", "clusters", "level", "says"),
    [
        ([1.0, 2.0], [1], 0.95, "lengths"), ([1.0, 2.0], [1, 2], 1.0, "level"),
        ([1.0, math.inf], [1, 2], 0.95, "finite"), ([], [], 0.95, "finite"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_named(values, clusters, level, says):
    with pytest.raises(ValueError, match=says):
        cluster_mean(values, clusters, level=level)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30))
def test_of_independent_items_it_is_scipys(values):
    from scipy.stats import sem

    assert standard_error(values) == pytest.approx(sem(values), abs=1e-12)


def slow_error(values, clusters):
    """Cochran's linearised ratio, cluster by cluster, each by the weight that the others have."""
    mean = sum(values) / len(values)
    names = sorted(set(clusters))
    squares = 0.0
    for name in names:
        members = [v for v, c in zip(values, clusters, strict=True) if c == name]
        others = 1 - len(members) / len(values)
        squares += (sum(members) - mean * len(members)) ** 2 / others
    return math.sqrt(squares) / len(values)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.integers(0, 5)), min_size=2, max_size=40))
def test_clusters_count_by_their_items(pairs):
    values, clusters = zip(*pairs, strict=True)
    error = standard_error(values, clusters)
    if len(set(clusters)) == 1:
        assert math.isnan(error)
    else:
        assert error == pytest.approx(slow_error(values, clusters), abs=1e-12)


def test_an_error_of_clusters_of_equal_size_is_a_jackknifes():
    values = np.random.default_rng(2).normal(size=24)
    clusters = np.arange(24) % 6
    without = [values[clusters != name].mean() for name in range(6)]
    expected = math.sqrt(5 / 6 * sum((mean - values.mean()) ** 2 for mean in without))
    assert standard_error(values, clusters) == pytest.approx(expected)
    with pytest.raises(ValueError, match="lengths"):
        standard_error([1.0, 0.0], ["a"])


@pytest.mark.parametrize("clusters", [3, 5, 8, 17])
@pytest.mark.parametrize("world", ["items independent", "right or wrong"])
def test_the_simulation_of_many_trials_is_of_these_tests(clusters, world):
    """benchmarks/few_clusters.py computes all trials at once."""
    rng = np.random.default_rng(2)
    sizes = few_clusters.lognormal_sizes(rng, 6, clusters)
    totals = few_clusters.WORLDS[world](rng, sizes)
    p, held = few_clusters.test_trials(totals, sizes)
    for row in range(6):
        names = np.repeat(np.arange(clusters), sizes[row].astype(int))
        mean = cluster_mean((totals[row] / sizes[row])[names], names)
        # Sums of right and wrong answers are tested exactly, by random patterns in the simulation.
        assert p[row] == pytest.approx(mean.p, abs=0.02 if clusters > 16 else 1e-9)
        assert held[row] == (mean.low <= 1e-9 and mean.high >= -1e-9)


def test_without_a_difference_few_clusters_are_no_more_often_significant():
    """A percentile bootstrap gave p <= .05 in 16 % of such tests with 5 clusters, 9 % with 8."""
    rng = np.random.default_rng(0)
    for clusters, most in ((5, 0.0), (8, 0.06)):
        sizes = few_clusters.lognormal_sizes(rng, 3000, clusters)
        p, _ = few_clusters.test_trials(few_clusters.normal(0.1)(rng, sizes), sizes)
        assert (p <= 0.05).mean() <= most
