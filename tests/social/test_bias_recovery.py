"""Recovery of what was planted, against slow twins and by simulation."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test, spearmanr

from cfaug.core.rng import generator
from cfaug.social.within_set_gap import find_planted, rank_correlation

rng = np.random.default_rng


def slow(gaps: np.ndarray, planted: list[int]) -> tuple[float, float]:
    """The effect and its exact p over every placement, by the words of the definition."""

    def effect(placed: tuple[int, ...]) -> float:
        own = [
            gaps[s, label] - sum(gaps[t, label] for t in range(len(gaps))) / len(gaps)
            for s, label in enumerate(placed)
            if label >= 0
        ]
        return sum(own) / len(own)

    every = [effect(one) for one in permutations(planted)]
    return effect(tuple(planted)), float(np.mean(np.array(every) >= effect(tuple(planted)) - 1e-9))


@pytest.mark.parametrize("seed", range(4))
def test_effect_and_p_are_those_of_every_placement(seed: int) -> None:
    gaps = rng(seed).normal(size=(6, 4))
    planted = [2, -1, 0, 0, -1, 3]
    found = find_planted(gaps, planted, seed=seed)
    effect, p = slow(gaps, planted)
    assert found.effect == pytest.approx(effect)
    assert found.p == pytest.approx(p, abs=0.02)
    assert found.planted == 4


@given(st.integers(0, 9), st.lists(st.floats(-3, 3), min_size=4, max_size=4))
def test_what_a_model_prefers_whoever_is_asked_for_does_not_matter(seed, preferred) -> None:
    gaps = rng(seed).normal(size=(5, 4))
    planted = [1, -1, 3, 0, -1]
    one = find_planted(gaps, planted, placements=99)
    other = find_planted(gaps + np.array(preferred), planted, placements=99)
    assert other.effect == pytest.approx(one.effect, abs=1e-9)
    assert other.p == pytest.approx(one.p, abs=0.02)
    assert other.hits == one.hits


def test_placements_are_those_of_scipys_permutation_test() -> None:
    rng = np.random.default_rng(4)
    gaps, planted = rng.normal(size=(12, 3)), rng.integers(-1, 3, 12)
    rows = np.flatnonzero(planted >= 0)
    excess = gaps - gaps.mean(axis=0)
    expected = permutation_test(
        (np.arange(12),),
        lambda order, axis=-1: excess[order[..., rows].astype(int), planted[rows]].mean(axis=-1),
        permutation_type="pairings", vectorized=True, alternative="greater", n_resamples=999,
        rng=generator(7, "placements", 12),
    )  # fmt: skip
    assert find_planted(gaps, planted, seed=7, placements=999).p == pytest.approx(expected.pvalue)


def test_where_nothing_was_planted_p_is_uniform_though_the_model_is_skewed() -> None:
    draw = rng(3)
    own = 3 * draw.normal(size=12) + draw.normal(size=(10, 12))  # of labels, and of pairs
    ps = []
    for _ in range(400):
        planted = np.full(10, -1)
        planted[draw.permutation(10)[:5]] = draw.permutation(12)[:5]
        ps.append(find_planted(own, planted, placements=199).p)
    assert np.mean(np.array(ps) <= 0.05) == pytest.approx(0.05, abs=0.03)
    assert np.mean(ps) == pytest.approx(0.5, abs=0.05)


def test_a_planted_label_is_found_under_preferences() -> None:
    draw = rng(5)
    gaps = 3 * draw.normal(size=12) + 0.3 * draw.normal(size=(10, 12))
    planted = np.array([3, -1, 7, -1, 0, 1, -1, -1, 11, -1])
    chosen = planted >= 0
    gaps[chosen, planted[chosen]] += 2
    found = find_planted(gaps, planted)
    assert found.p < 0.001
    assert found.hits == 5
    assert found.raw_hits < 5
    assert 1 < found.effect < 3


def test_equal_gaps_share_a_hit() -> None:
    found = find_planted(np.zeros((3, 4)), [0, 1, -1])
    assert (found.effect, found.p) == (0, 1)
    assert found.raw_hits == found.hits == 0.5


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
    found = rank_correlation(strength, measured, seeds)
    assert found.rho == pytest.approx(spearmanr(strength, measured).statistic)
    assert found.low < found.rho < found.high
    assert (found.n, found.clusters) == (30, 6)
    draws = []
    for _ in range(400):
        rows = np.concatenate(
            [np.flatnonzero(np.array(seeds) == s) for s in draw.integers(6, size=6)]
        )
        draws.append(spearmanr(strength[rows], measured[rows]).statistic)
    low, high = np.quantile(draws, (0.025, 0.975))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.03)


def test_a_correlation_without_spread_or_clusters_has_no_interval() -> None:
    assert np.isnan(rank_correlation([1, 1], [1, 2], [0, 1]).rho)
    one = rank_correlation([1, 2, 3], [1, 3, 2], [0, 0, 0])
    assert one.rho == 0.5
    assert np.isnan([one.low, one.high]).all()
    with pytest.raises(ValueError, match="equal lengths"):
        rank_correlation([1, 2], [1, 2], [0])
