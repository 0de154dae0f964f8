"""The tests against scipy and slow twins, their policies, and the published tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.rng import generator
from cfaug.stats.effects import (
    bootstrap_interval,
    cohen_d_z,
    compare,
    hedges_g,
    t_interval,
    welch_interval,
)
from cfaug.stats.significance import (
    SeedSummary,
    equivalence,
    holm,
    paired_t,
    sign_flip,
    smallest_exact_p,
    summarise,
    welch,
    wilcoxon,
)
from tests.properties import examples

ALTERNATIVES = ("greater", "less", "two-sided")
VALUES = st.lists(st.floats(-5, 5).map(lambda x: round(x, 3)), min_size=3, max_size=9)


@settings(max_examples=examples(40), deadline=None)
@given(VALUES, VALUES)
def test_welch_and_paired_equal_scipy(a, b):
    from scipy import stats

    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return
    for alternative in ALTERNATIVES:
        expected = stats.ttest_ind(a, b, equal_var=False, alternative=alternative).pvalue
        assert welch(summarise(a), summarise(b), alternative) == pytest.approx(expected, rel=1e-6)
        expected = stats.ttest_1samp(a, 0, alternative=alternative).pvalue
        assert paired_t(a, alternative) == pytest.approx(expected, rel=1e-6)


@settings(max_examples=examples(40), deadline=None)
@given(VALUES, st.sampled_from(ALTERNATIVES))
def test_sign_flip_is_scipys_permutation_test(values, alternative):
    from scipy.stats import permutation_test

    expected = permutation_test(
        (np.round(np.multiply(values, 1000)),), np.sum, permutation_type="samples",
        n_resamples=np.inf, alternative=alternative,
    ).pvalue  # fmt: skip
    assert sign_flip(values, alternative) == pytest.approx(expected)


def test_sign_flip_by_chance_agrees_with_exact_and_is_keyed():
    rng = np.random.default_rng(0)
    values = rng.normal(0.3, 1, 17)
    drawn = sign_flip(values)
    assert drawn == sign_flip(values), "same key, same p"
    assert drawn != sign_flip(values, seed=1)
    half = np.zeros(1)
    for value in values:
        half = np.concatenate([half + value, half - value])
    assert drawn == pytest.approx((half >= values.sum()).mean(), abs=0.01)
    assert sign_flip(np.ones(20)) >= 1 / 10_001, "never 0: the observed signs count"
    for n in (1, 5, 10):
        for alternative in ("greater", "two-sided"):
            least = smallest_exact_p(n, alternative)
            assert sign_flip(np.arange(1.0, n + 1), alternative) == least
    with pytest.raises(ValueError, match="at least 1"):
        smallest_exact_p(0)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.floats(0, 1), min_size=0, max_size=8), st.floats(0.01, 0.2))
def test_holm_rejects_what_the_step_down_procedure_rejects(p, alpha):
    rejected = [False] * len(p)
    for step, i in enumerate(sorted(range(len(p)), key=lambda j: p[j])):
        if p[i] * (len(p) - step) > alpha:
            break
        rejected[i] = True
    assert [bool(x) for x in holm(p) <= alpha] == rejected
    *corrected, untested = holm([*p, math.nan])
    assert corrected == holm(p).tolist()
    assert math.isnan(untested)


def test_no_spread_has_a_stated_answer():
    flat, higher = SeedSummary(0.5, 0.0, 5), SeedSummary(0.6, 0.0, 5)
    assert welch(flat, flat) == 1.0
    assert math.isnan(welch(higher, flat)), "no spread, no yardstick"
    assert 0 < welch(higher, SeedSummary(0.5, 0.01, 5)) < 1e-4, "one arm's spread is enough"
    assert paired_t([0.0] * 5) == wilcoxon([0.0] * 5) == sign_flip([0.0] * 5) == 1.0
    steady = np.array([0.3, 0.4, 0.5]) - np.array([0.2, 0.3, 0.4])
    assert np.ptp(steady) > 0, "equal but for the last bit"
    assert math.isnan(paired_t(steady))
    assert sign_flip(steady) == 0.125
    assert math.isnan(hedges_g(higher, flat))
    assert hedges_g(flat, flat) == 0.0
    assert cohen_d_z([0.0, 0.0]) == 0.0
    flat_intervals = (*bootstrap_interval([2.0, 2.0]), *t_interval([2.0, 2.0]))
    assert all(map(math.isnan, flat_intervals)), "no width is no certainty"


def test_one_value_is_not_a_test():
    single = summarise([0.4])
    assert math.isnan(single.sd)
    assert math.isnan(welch(single, SeedSummary(0.3, 0.1, 5)))
    assert math.isnan(paired_t([0.1]))
    assert all(math.isnan(x) for x in (*bootstrap_interval([1.0]), *t_interval([1.0])))
    assert math.isnan(cohen_d_z([1.0]))


@pytest.mark.parametrize("values", [[], [0.1, math.nan], [math.inf], [[0.1]]])
def test_values_that_are_no_values_are_refused(values):
    for function in (summarise, paired_t, wilcoxon, sign_flip, bootstrap_interval):
        with pytest.raises(ValueError, match="finite"):
            function(values)


@settings(max_examples=examples(30), deadline=None)
@given(VALUES, st.sampled_from([0.9, 0.95]), st.integers(0, 3))
def test_intervals_are_those_of_scipy(values, level, seed):
    from scipy import stats

    if np.ptp(values) == 0:
        return
    for ours, theirs in (("bca", "BCa"), ("percentile", "percentile")):
        expected = stats.bootstrap(
            (values,), np.mean, n_resamples=999, method=theirs, confidence_level=level,
            rng=generator(seed, "bootstrap", len(values)),
        ).confidence_interval  # fmt: skip
        interval = bootstrap_interval(values, level, ours, resamples=999, seed=seed)
        assert interval == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-9)
    expected = stats.ttest_1samp(values, 0).confidence_interval(level)
    assert t_interval(values, level) == pytest.approx((expected.low, expected.high), rel=1e-9)
    other = [0.3, 0.1, 0.8]
    expected = stats.ttest_ind(values, other, equal_var=False).confidence_interval(level)
    interval = welch_interval(values, other, level)
    assert interval == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_compare_pairs_by_seed_not_by_position():
    arm = {3: 0.9, 1: 0.5, 2: 0.7}
    base = {1: 0.4, 2: 0.5, 3: 0.6}
    comparison = compare(arm, base)
    assert comparison.p_paired == pytest.approx(paired_t([0.1, 0.2, 0.3]))
    assert comparison.p_min == 0.125
    assert comparison.bca_low < comparison.diff < comparison.bca_high
    lonely = compare(arm, {7: 0.4, 8: 0.5})
    assert math.isnan(lonely.p_paired)
    assert math.isnan(lonely.p_min)
    assert lonely.p_welch == welch(summarise([0.9, 0.5, 0.7]), summarise([0.4, 0.5]))
    assert (lonely.t_low, lonely.t_high) == welch_interval([0.9, 0.5, 0.7], [0.4, 0.5])
    assert all(
        map(math.isnan, (*welch_interval([1.0], [1.0, 2.0]), *welch_interval([1, 1], [2, 2])))
    )


@settings(max_examples=examples(40), deadline=None)
@given(VALUES, VALUES, st.floats(0.05, 3))
def test_equivalence_equals_two_shifted_welch_tests_and_its_interval_decides(a, b, margin):
    from scipy import stats

    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return
    tested = equivalence(summarise(a), summarise(b), margin)
    above = stats.ttest_ind(np.array(a) + margin, b, equal_var=False, alternative="greater")
    below = stats.ttest_ind(np.array(a) - margin, b, equal_var=False, alternative="less")
    assert tested.p == pytest.approx(max(above.pvalue, below.pvalue), rel=1e-6, abs=1e-12)
    both = stats.ttest_ind(a, b, equal_var=False)
    assert tested.t == pytest.approx(both.statistic, rel=1e-6, abs=1e-9)
    assert tested.p_different == pytest.approx(both.pvalue, rel=1e-6)
    interval = both.confidence_interval(0.9)
    assert (tested.low, tested.high) == pytest.approx((interval.low, interval.high))
    if abs(tested.p - 0.05) > 1e-9:
        assert (tested.p < 0.05) == (-margin < tested.low and tested.high < margin)


def test_equivalence_of_the_published_ratings_and_what_cannot_be_tested():
    """XMAI, section 5.1: 4.12 (.37) and 4.07 (.33), 50 captions each; 50 as 250 ratings too."""
    original, changed = SeedSummary(4.12, 0.37, 50), SeedSummary(4.07, 0.33, 50)
    tested = equivalence(original, changed, 0.25)
    assert (round(tested.t, 3), round(tested.p_different, 3)) == (0.713, 0.477)
    assert (round(tested.low, 2), round(tested.high, 2)) == (-0.07, 0.17)
    assert tested.p < 0.05 < equivalence(original, changed, 0.15).p
    ratings = equivalence(SeedSummary(4.12, 0.37, 250), SeedSummary(4.07, 0.33, 250), 0.25)
    assert ratings.p_different == pytest.approx(0.111, abs=0.0005)
    for summary in (SeedSummary(4.0, math.nan, 1), SeedSummary(4.0, 0.0, 9)):
        assert math.isnan(equivalence(summary, summary, 0.2).p)
    for margin, alpha in ((0.0, 0.05), (-1.0, 0.05), (math.inf, 0.05), (0.2, 0.5)):
        with pytest.raises(ValueError, match="should be above 0"):
            equivalence(original, changed, margin, alpha)
