"""Tests over items against scipy, slow twins, and known answers; what a set of items can show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.stats.cluster_tests import SIGN_FLIPS
from cfaug.stats.item_tests import (
    MCNEMAR,
    compare_answers,
    describe_resolution,
    least_visible,
    mcnemar,
    nested_bootstrap,
    sign_test,
    tango_interval,
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


def test_invalid_arguments_are_named():
    with pytest.raises(ValueError, match="0 or more"):
        mcnemar(-1, 2)
    with pytest.raises(ValueError, match="larger"):
        mcnemar(1, 2, "larger")
    with pytest.raises(ValueError, match="lengths"):
        compare_answers([1, 0], [1], ["a", "b"])
    for counts in ((-1, 2, 5), (3, 3, 5), (0, 0, 0)):
        with pytest.raises(ValueError, match="out of range"):
            tango_interval(*counts)


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


@pytest.mark.parametrize("count", [20, 400])
def test_the_visible_difference_is_found_in_eight_of_ten_tests(count):
    from scipy.stats import ttest_1samp

    rng = np.random.default_rng(1)
    least = least_visible(1 / math.sqrt(count), count)
    assert least * math.sqrt(count) == pytest.approx(2.8, abs=0.02 + 3 / count)
    values = rng.normal(least, 1, (2000, count))
    power = (ttest_1samp(values, 0, axis=1).pvalue < 0.05).mean()
    assert power == pytest.approx(0.8, abs=0.03)


def test_sentences():
    assert describe_resolution(0.014, 1, 1).startswith("1 item: standard error 1.4 points")
    assert describe_resolution(math.nan, 3, 1) == (
        "3 items in 1 cluster: too few for a standard error"
    )
    assert describe_resolution(0.0, 3, 3) == "3 items: no spread, so no standard error"
    nats = describe_resolution(0.25, 100, 100, factor=1, unit="nats")
    assert nats == (
        "100 items: standard error 0.25 nats; a difference of 0.71 nats is found in 80 % of such "
        "tests"
    )
    assert describe_resolution(0.1, 30, 5).endswith("; with 5 clusters no p can be below 0.062")
    assert "no p can" not in describe_resolution(0.1, 30, 6)
    assert math.isnan(least_visible(0.1, 1))


def slow_tango(better: int, worse: int, items: int, step: float) -> tuple[float, float]:
    """Every difference on a grid is tested by the score, with the likelihood searched for."""
    from scipy.optimize import minimize_scalar
    from scipy.special import xlogy

    kept = []
    for difference in np.arange(-1 + step, 1, step):

        def unlikely(share: float, by: float = difference) -> float:
            both = items - better - worse
            return -(
                xlogy(better, share + by) + xlogy(worse, share) + xlogy(both, 1 - 2 * share - by)
            )

        ends = (max(0.0, -difference), (1 - difference) / 2)
        share = minimize_scalar(unlikely, bounds=ends, method="bounded", options={"xatol": 1e-11}).x
        variance = items * (2 * share + difference * (1 - difference))
        if (better - worse - items * difference) ** 2 <= 1.959964**2 * variance:
            kept.append(difference)
    return min(kept), max(kept)


@pytest.mark.parametrize(
    ("better", "worse", "items"),
    [(12, 2, 50), (0, 0, 10), (10, 0, 10), (0, 10, 10), (5, 5, 10), (3, 1, 4), (1, 0, 44)],
)
def test_tangos_interval_is_what_a_score_test_does_not_reject(better, worse, items):
    interval = tango_interval(better, worse, items)
    assert interval == pytest.approx(slow_tango(better, worse, items, 0.01), abs=0.0101)
    low, high = tango_interval(worse, better, items)
    assert (-high, -low) == pytest.approx(interval, abs=1e-9)


def test_tangos_interval_without_a_difference_is_that_of_one_share():
    """No item, or every one, tells the models apart: Wilson's algebra gives the ends."""
    z2 = 1.959963984540054**2
    for items in (1, 10, 400):
        end = z2 / (items + z2)
        assert tango_interval(0, 0, items) == pytest.approx((-end, end), abs=1e-9)
        low, high = tango_interval(items, 0, items)
        assert (low, high) == (pytest.approx((items - z2) / (items + z2), abs=1e-9), 1.0)


def test_right_and_wrong_answers_sampled_one_by_one_get_mcnemar_and_tango():
    first, second = np.array([1, 1, 1, 0, 1, 0.0]), np.array([0, 0, 1, 0, 0, 1.0])
    compared = compare_answers(first, second, range(6))
    assert (compared.test, compared.p, compared.mean) == (MCNEMAR, mcnemar(3, 1), 2 / 6)
    assert (compared.low, compared.high) == tango_interval(3, 1, 6)
    assert compare_answers(first, second, [0, 0, 1, 2, 3, 4]).test == SIGN_FLIPS
    assert compare_answers(first / 2, second, range(6)).test == SIGN_FLIPS
