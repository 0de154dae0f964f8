"""Discovery against slow twins, and classifiers whose planted factor is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.lance.edit_effects import group_effects
from cfaug.lance.stress_drops import (
    compare_factors,
    discover_factors,
    precision_at,
)

FACTORS = ("background", "adjective", "domain")
SETS = st.lists(st.sets(st.sampled_from(FACTORS)), min_size=1, max_size=8)


def effects_of(planted: str | None, strength: float = 0.5):
    """Edits of 12 photos by each factor; the planted one moves the classifier."""
    rng = np.random.default_rng(len(planted or ""))
    rows = [(photo, factor) for photo in range(12) for factor in FACTORS]
    delta = [strength * (factor == planted) + 0.02 * rng.random() for _, factor in rows]
    control = np.repeat(0.02 * rng.random(12), len(FACTORS))
    return group_effects(delta, control, [p for p, _ in rows], [f for _, f in rows], resamples=20)


@pytest.mark.parametrize("planted", [*FACTORS, None])
def test_the_planted_factor_is_found_and_no_other(planted):
    assert discover_factors(effects_of(planted)) == ([planted] if planted else [])


def test_an_effect_that_is_too_small_or_uncertain_is_none():
    assert discover_factors(effects_of("domain", 0.04)) == []
    assert discover_factors(effects_of("domain", 0.04), minimum=0.01) == ["domain"]
    assert discover_factors(effects_of("domain"), alpha=1e-6) == []
    without = group_effects([0.9] * 8, [math.nan] * 8, range(8), ["domain"] * 8)
    assert discover_factors(without) == [], "without a control nothing is known to be the edit's"


def test_factors_are_ranked_by_their_excess_over_the_reconstruction():
    delta, control, names = [0.9] * 8 + [0.8] * 8, [0.7] * 8 + [0.0] * 8, ["a"] * 8 + ["b"] * 8
    found = group_effects(delta, control, [*range(8), *range(8)], names)
    assert [one.group for one in found] == ["a", "b"]
    assert discover_factors(found) == ["b", "a"]


@given(SETS, st.data())
def test_precision_and_recall_are_those_of_a_slow_twin(found, data):
    planted = data.draw(st.lists(st.sets(st.sampled_from(FACTORS)), min_size=len(found),
                                 max_size=len(found)))  # fmt: skip
    got = compare_factors(found, planted)
    right = n_found = n_planted = 0
    for number, factor in [(i, f) for i in range(len(found)) for f in FACTORS]:
        n_found += factor in found[number]
        n_planted += factor in planted[number]
        right += factor in found[number] and factor in planted[number]
    assert (got.right, got.found, got.planted) == (right, n_found, n_planted)
    assert got.precision == pytest.approx(right / n_found if n_found else math.nan, nan_ok=True)
    assert got.recall == pytest.approx(right / n_planted if n_planted else math.nan, nan_ok=True)


def test_classifiers_must_be_as_many():
    with pytest.raises(ValueError, match="zip"):
        compare_factors([set()], [])


@given(st.permutations(range(8)), st.sets(st.integers(0, 12)), st.integers(1, 12))
def test_precision_at_k_is_that_of_a_slow_twin(members, planted, k):
    hits = 0
    for place in range(k):
        if place < len(members) and members[place] in planted:
            hits += 1
    assert precision_at(members, planted, k) == hits / k


def test_slices_that_cannot_be():
    with pytest.raises(ValueError, match="k=0"):
        precision_at([1], {1}, 0)
    with pytest.raises(ValueError, match="duplicated"):
        precision_at([1, 1], {1})
