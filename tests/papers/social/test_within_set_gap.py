"""Paired gaps within sets: against scipy, and against every permutation of labels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import permutation_test, spearmanr

from cfaug.core.rng import generator
from cfaug.papers.social.within_set_gap import (
    _normal_range,
    chance_range,
    find_planted,
    friedman,
    gaps_by_set,
    label_gaps,
    rank_correlation,
    rank_within,
    resample_range,
)
from cfaug.stats.effects import t_interval
from cfaug.stats.significance import paired_t
from tests.properties import examples


def grid(sets, labels, seed=0, bonus=0.0, ties=False):
    """Scores, labels and sets of whole sets in mixed order; label 0 scores ``bonus`` more."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(sets, labels)) + 3 * rng.normal(size=(sets, 1))
    scores[:, 0] += bonus
    scores = np.round(scores) if ties else scores
    label, group = np.tile(np.arange(labels), sets), np.repeat(np.arange(sets), labels)
    order = rng.permutation(len(group))
    return scores, scores.reshape(-1)[order], label[order], group[order]


def test_gaps_are_paired_t_tests_over_sets():
    scores, values, labels, sets = grid(7, 4, bonus=1.0)
    gaps = label_gaps(values, labels, sets, 0.95)
    for label in range(4):
        differences = scores[:, label] - scores.mean(axis=1)
        assert gaps.mean[label] == pytest.approx(differences.mean())
        assert gaps.p[label] == pytest.approx(paired_t(differences, "two-sided"))
        assert (gaps.low[label], gaps.high[label]) == pytest.approx(t_interval(differences))
    assert gaps.range == pytest.approx(gaps.mean.max() - gaps.mean.min())
    assert gaps.mean.sum() == pytest.approx(0, abs=1e-12)


def test_gaps_are_those_of_scipy_where_sets_lack_labels():
    _, values, labels, sets = grid(12, 4, seed=2)
    kept = np.random.default_rng(0).random(len(values)) < 0.8
    tested = label_gaps(values[kept], labels[kept], sets[kept])
    gaps = gaps_by_set(values[kept], labels[kept], sets[kept])
    assert np.isnan(gaps).any()
    expected = stats.ttest_1samp(gaps, 0, nan_policy="omit")
    assert tested.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert tested.low == pytest.approx(interval.low)
    assert tested.high == pytest.approx(interval.high)


@pytest.mark.parametrize("ties", [False, True])
def test_places_within_sets_are_scipys_and_the_test_of_them_is_friedmans(ties):
    scores, values, labels, sets = grid(15, 5, seed=4, bonus=0.8, ties=ties)
    places = rank_within(values, sets)
    ranks = np.array([stats.rankdata(row) for row in scores])
    for at, place in enumerate(places):
        assert place == pytest.approx((ranks[sets[at], labels[at]] - 1) / 4)
    assert friedman(places, labels, sets) == pytest.approx(
        stats.friedmanchisquare(*scores.T).pvalue
    )


def test_the_covariance_is_that_of_every_permutation():
    """Two small sets of labels that occur several times: moments over all ways to deal them."""
    values = np.array([0.1, 0.9, 0.4, 0.3, 0.7, 0.2])
    labels, sets = np.array([0, 0, 1, 2, 1, 0]), np.array([0, 0, 0, 0, 1, 1])
    sums = []
    for first in itertools.permutations([0, 0, 1, 2]):
        for second in itertools.permutations([1, 0]):
            dealt = np.array([*first, *second])
            sums.append(np.bincount(dealt, values, 3))
    sums = np.array(sums)
    observed = np.bincount(labels, values, 3) - sums.mean(axis=0)
    covariance = np.cov(sums.T, bias=True)
    statistic = observed @ np.linalg.pinv(covariance, rcond=1e-9) @ observed
    assert friedman(values, labels, sets) == pytest.approx(stats.chi2.sf(statistic, 2))


def test_what_does_not_differ_has_p_1_and_one_set_no_test():
    same = label_gaps([0.5] * 6, np.tile([0, 1, 2], 2), np.repeat([0, 1], 3))
    assert same.mean.tolist() == [0, 0, 0]
    assert same.p.tolist() == [1, 1, 1]
    assert friedman([0.5] * 6, np.tile([0, 1, 2], 2), np.repeat([0, 1], 3)) == 1
    single = label_gaps([0.1, 0.4], np.array([0, 1]), np.array([0, 0]))
    assert np.isnan([*single.p, *single.low, *single.high]).all()
    assert single.mean.tolist() == pytest.approx([-0.15, 0.15])
    constant = label_gaps([1.0, 0.0, 2.0, 1.0], np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
    assert np.isnan(constant.p).all(), "without spread a t-test has no yardstick"
    assert friedman([0.3, 0.1], np.array([0, 0]), np.array([0, 0])) == 1


def test_a_label_that_sets_lack_counts_where_it_is():
    values, labels, sets = [0.4, 0.2, 0.9, 0.1, 0.5], np.array([0, 1, 0, 1, 2]), [0, 0, 1, 1, 1]
    gaps = label_gaps(values, labels, np.array(sets))
    assert gaps.mean.tolist() == pytest.approx([(0.1 + 0.4) / 2, (-0.1 - 0.4) / 2, 0])
    assert np.isnan(gaps.p[2])


@pytest.mark.parametrize(
    ("values", "labels", "said"),
    [
        ([], [], "above 0"),
        ([0.1, np.nan], [0, 1], "NaN"),
        ([0.1], [0, 1], "lengths should be equal"),
    ],
)
def test_what_is_no_grid_is_refused(values, labels, said):
    with pytest.raises(ValueError, match=said):
        label_gaps(values, np.array(labels, int), np.zeros(len(labels), int))


@pytest.mark.parametrize(("sets", "labels", "merged"), [(40, 6, 6), (15, 12, 12), (30, 6, 2)])
def test_the_expected_range_is_that_of_shuffled_labels(sets, labels, merged):
    _, values, label, group = grid(sets, labels, seed=3)
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(300):
        order = np.lexsort((rng.random(len(group)), group))  # images shuffled within sets
        drawn.append(
            label_gaps(values[order], label[np.argsort(group)] % merged, group[order]).range
        )
    assert chance_range(values, label % merged, group) == pytest.approx(np.mean(drawn), rel=0.1)


def test_the_range_of_normal_values_is_the_known_one():
    """Tippett's d2 of control charts, over the spread of one value in one set of two."""
    for many, d2 in ((2, 1.128), (6, 2.534), (12, 3.258)):
        assert _normal_range(many) == pytest.approx(d2, abs=5e-4)
    assert chance_range([0.2, 0.4], np.array([0, 0]), np.array([0, 0])) == 0


def test_pairs_are_tested_exactly():
    rng = np.random.default_rng(0)
    places = np.concatenate([rng.permutation([1.0, 0.0]) for _ in range(40)])
    expected = stats.binomtest(int(places[::2].sum()), 40).pvalue
    order = rng.permutation(80)
    labels, sets = np.tile([0, 1], 40)[order], np.repeat(range(40), 2)[order]
    assert friedman(places[order], labels, sets) == pytest.approx(expected)
    scores = rng.normal(size=12)
    differences = scores[::2] - scores[1::2]
    signs = np.array(list(itertools.product([-1, 1], repeat=6)))
    expected = (np.abs(signs @ differences) >= abs(differences.sum()) - 1e-12).mean()
    p = friedman(scores, np.tile([0, 1], 6), np.repeat(range(6), 2))
    assert p == pytest.approx(expected)
    assert friedman(np.ones(4), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])) == 1
    assert friedman([0.5, 0.1, 0.3], np.array([0, 1, 1]), np.array([0, 0, 1])) > 0.1


def test_the_range_of_resamples_is_that_of_sets_laid_out_as_often_as_they_were_drawn():
    """Sets of different labels among them, one label twice, and a label that a draw lacks."""
    rng = np.random.default_rng(4)
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 0, 1, 3, 1, 2])
    sets = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])
    values = rng.normal(size=12)
    drawn = rng.multinomial(4, [0.25] * 4, size=30)
    ranges = resample_range(gaps_by_set(values, labels, sets), drawn)
    for counts, actual in zip(drawn, ranges, strict=True):
        rows = [np.flatnonzero(sets == s) for s, n in enumerate(counts) for _ in range(n)]
        laid = np.repeat(np.arange(4), [len(members) for members in rows])
        places = np.concatenate(rows)
        there, codes = np.unique(labels[places], return_inverse=True)
        expected = label_gaps(values[places], codes, laid)
        assert len(expected.mean) == len(there)
        assert actual == pytest.approx(expected.range)


# Recovery of what was planted, against slow twins and by simulation.

rng = np.random.default_rng


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 9), st.lists(st.floats(-3, 3), min_size=4, max_size=4))
def test_what_a_model_prefers_whoever_is_asked_for_does_not_matter(seed, preferred) -> None:
    gaps = rng(seed).normal(size=(5, 4))
    planted = [1, -1, 3, 0, -1]
    plain = find_planted(gaps, planted, placements=99)
    shifted = find_planted(gaps + np.array(preferred), planted, placements=99)
    assert shifted.effect == pytest.approx(plain.effect, abs=1e-9)
    assert shifted.p == pytest.approx(plain.p, abs=0.02)
    assert shifted.hits == plain.hits


def test_placements_are_those_of_scipys_permutation_test() -> None:
    draw = rng(4)
    gaps, planted = draw.normal(size=(12, 3)), draw.integers(-1, 3, 12)
    rows = np.flatnonzero(planted >= 0)
    excess = gaps - gaps.mean(axis=0)
    expected = permutation_test(
        (np.arange(12),),
        lambda order, axis=-1: excess[order[..., rows].astype(int), planted[rows]].mean(axis=-1),
        permutation_type="pairings", vectorized=True, alternative="greater", n_resamples=999,
        rng=generator(7, "placements", 12),
    )  # fmt: skip
    recovered = find_planted(gaps, planted, seed=7, placements=999)
    assert (recovered.effect, recovered.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert recovered.planted == len(rows)


def test_a_planted_label_is_found_under_preferences() -> None:
    draw = rng(5)
    gaps = 3 * draw.normal(size=12) + 0.3 * draw.normal(size=(10, 12))
    planted = np.array([3, -1, 7, -1, 0, 1, -1, -1, 11, -1])
    chosen = planted >= 0
    gaps[chosen, planted[chosen]] += 2
    recovered = find_planted(gaps, planted)
    assert recovered.p < 0.001
    assert recovered.hits == 5
    assert recovered.raw_hits < 5
    assert 1 < recovered.effect < 3


def test_equal_gaps_share_a_hit() -> None:
    recovered = find_planted(np.zeros((3, 4)), [0, 1, -1])
    assert (recovered.effect, recovered.p) == (0, 1)
    assert recovered.raw_hits == recovered.hits == 0.5


@pytest.mark.parametrize(
    ("gaps", "planted"),
    [([[1, 2]], [0, 1]), ([[1, np.nan]], [0]), ([[1, 2]], [2]), ([[1, 2]], [-1]), ([1, 2], [0, 1])],
)
def test_invalid_gaps_and_labels(gaps: list, planted: list) -> None:
    with pytest.raises(ValueError, match="should be"):
        find_planted(gaps, planted)


def test_rank_correlation_is_spearmans_with_a_bootstrap_over_clusters() -> None:
    draw = rng(1)
    strength = np.tile([0, 0.25, 0.5, 0.75, 1], 6)
    measured = strength + 0.3 * draw.normal(size=30)
    seeds = np.repeat(np.arange(6), 5).tolist()
    correlation = rank_correlation(strength, measured, seeds)
    assert correlation.rho == pytest.approx(spearmanr(strength, measured).statistic)
    assert correlation.low < correlation.rho < correlation.high
    assert (correlation.n, correlation.clusters) == (30, 6)
    draws = []
    for _ in range(400):
        rows = np.concatenate(
            [np.flatnonzero(np.array(seeds) == s) for s in draw.integers(6, size=6)]
        )
        draws.append(spearmanr(strength[rows], measured[rows]).statistic)
    low, high = np.quantile(draws, (0.025, 0.975))
    assert (correlation.low, correlation.high) == pytest.approx((low, high), abs=0.03)


def test_a_correlation_without_spread_or_clusters_has_no_interval() -> None:
    assert np.isnan(rank_correlation([1, 1], [1, 2], [0, 1]).rho)
    correlation = rank_correlation([1, 2, 3], [1, 3, 2], [0, 0, 0])
    assert correlation.rho == 0.5
    assert np.isnan([correlation.low, correlation.high]).all()
    with pytest.raises(ValueError, match="equal lengths"):
        rank_correlation([1, 2], [1, 2], [0])
