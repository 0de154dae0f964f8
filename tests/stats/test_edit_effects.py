"""How far groups of edits move a classifier, against a slow twin; few photos prove little."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.stats.edit_effects import (
    compare_factors,
    discover_factors,
    group_effects,
    precision_at,
    shrink_means,
)
from cfaug.stats.significance import holm
from tests.properties import examples


def slow_p(excess: list[float], photos: list[str]) -> float:
    """Exchange every photo's edit and reconstruction in every way."""
    means = [
        sum(e for e, p in zip(excess, photos, strict=True) if p == photo) / photos.count(photo)
        for photo in dict.fromkeys(photos)
    ]
    sums = [sum(s * m for s, m in zip(signs, means, strict=True))
            for signs in product((1, -1), repeat=len(means))]  # fmt: skip
    return sum(total >= sum(means) - 1e-9 for total in sums) / len(sums)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_effects_are_those_of_a_slow_twin(data):
    n = data.draw(st.integers(1, 12))
    share = st.integers(0, 100).map(lambda x: x / 100)
    delta = data.draw(st.lists(share, min_size=n, max_size=n))
    control = data.draw(st.lists(st.one_of(share, st.just(math.nan)), min_size=n, max_size=n))
    photos = data.draw(st.lists(st.sampled_from("pqrs"), min_size=n, max_size=n))
    groups = data.draw(st.lists(st.sampled_from(["hue", "snow"]), min_size=n, max_size=n))
    effects = {effect.group: effect for effect in group_effects(delta, control, photos, groups)}
    assert list(effects) == sorted(dict.fromkeys(groups), key=lambda g: -effects[g].mean)
    for group, effect in effects.items():
        rows = [i for i in range(n) if groups[i] == group]
        assert sorted(effect.rows.tolist()) == rows
        assert len(effect) == len(rows)
        assert [delta[i] for i in effect.rows] == sorted((delta[i] for i in rows), reverse=True)
        assert effect.mean == pytest.approx(sum(delta[i] for i in rows) / len(rows))
        assert effect.photos == len({photos[i] for i in rows})
        known = [i for i in rows if not math.isnan(control[i])]
        if not known:
            assert math.isnan(effect.excess)
            assert math.isnan(effect.p)
            continue
        excess = [delta[i] - control[i] for i in known]
        assert effect.excess == pytest.approx(sum(excess) / len(excess))
        assert effect.p == pytest.approx(slow_p(excess, [photos[i] for i in known]))
    p = [effect.p for effect in effects.values()]
    assert [effect.p_holm for effect in effects.values()] == pytest.approx(
        holm(p).tolist(), nan_ok=True
    )


def test_one_photo_has_no_interval():
    (effect,) = group_effects([0.4], [0.1], ["a"], ["x"])
    assert math.isnan(effect.low)
    assert effect.p == 0.5


def test_intervals_cover_the_mean_and_repeat():
    rng = np.random.default_rng(1)
    delta = rng.random(60)
    photos = np.repeat(np.arange(20), 3)
    first, again = (
        group_effects(delta, np.zeros(60), photos, np.arange(60) % 2, seed=3) for _ in range(2)
    )
    assert [(o.low, o.high) for o in first] == [(o.low, o.high) for o in again]
    for effect in first:
        assert effect.low < effect.mean < effect.high


@pytest.mark.parametrize(
    ("delta", "control", "said"),
    [
        ([], [], "row of finite values"),
        ([math.nan], [0.0], "row of finite values"),
        ([0.1], [], "lengths must be equal"),
        ([0.1], [math.inf], "infinite"),
    ],
)
def test_what_cannot_be_measured(delta, control, said):
    with pytest.raises(ValueError, match=said):
        group_effects(delta, control, ["a"] * len(delta), ["x"] * len(delta))


# Discovery against slow twins, and classifiers whose planted factor is known.

FACTORS = ("background", "adjective", "domain")
SETS = st.lists(st.sets(st.sampled_from(FACTORS)), min_size=1, max_size=8)


def effects_of(planted: str | None, strength: float = 0.5):
    """Edits of 12 photos by each factor; the planted one moves the classifier."""
    rng = np.random.default_rng(len(planted or ""))
    rows = [(photo, factor) for photo in range(12) for factor in FACTORS]
    delta = [strength * (factor == planted) + 0.02 * rng.random() for _, factor in rows]
    control = np.repeat(0.02 * rng.random(12), len(FACTORS))
    return group_effects(delta, control, [p for p, _ in rows], [f for _, f in rows])


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
    effects = group_effects(delta, control, [*range(8), *range(8)], names)
    assert [effect.group for effect in effects] == ["a", "b"]
    assert discover_factors(effects) == ["b", "a"]


@settings(max_examples=examples(50), deadline=None)
@given(SETS, st.data())
def test_precision_and_recall_are_those_of_a_slow_twin(discovered, data):
    planted = data.draw(st.lists(st.sets(st.sampled_from(FACTORS)), min_size=len(discovered),
                                 max_size=len(discovered)))  # fmt: skip
    got = compare_factors(discovered, planted)
    right = n_found = n_planted = 0
    for number, factor in [(i, f) for i in range(len(discovered)) for f in FACTORS]:
        n_found += factor in discovered[number]
        n_planted += factor in planted[number]
        right += factor in discovered[number] and factor in planted[number]
    assert (got.right, got.found, got.planted) == (right, n_found, n_planted)
    assert got.precision == pytest.approx(right / n_found if n_found else math.nan, nan_ok=True)
    assert got.recall == pytest.approx(right / n_planted if n_planted else math.nan, nan_ok=True)


@given(st.permutations(range(8)), st.sets(st.integers(0, 12)), st.integers(1, 12))
def test_precision_at_k_is_that_of_a_slow_twin(members, planted, k):
    hits = 0
    for place in range(k):
        if place < len(members) and members[place] in planted:
            hits += 1
    assert precision_at(members, planted, k) == hits / k


# Shrinkage against a slow twin that follows the formula group by group.


def slow_shrink(samples):
    sizes = [len(sample) for sample in samples]
    means = [sum(sample) / len(sample) for sample in samples]
    k, total = len(samples), sum(sizes)
    if k < 2 or total == k:
        return means
    within = sum((x - m) ** 2 for sample, m in zip(samples, means, strict=True) for x in sample)
    within /= total - k
    grand = sum(x for sample in samples for x in sample) / total
    between = sum(n * (m - grand) ** 2 for n, m in zip(sizes, means, strict=True)) / (k - 1)
    spread = max(0.0, (between - within) / ((total - sum(n * n for n in sizes) / total) / (k - 1)))
    if spread == within == 0:
        return means
    weights = [1 / (spread + within / n) for n in sizes]
    centre = sum(w * m for w, m in zip(weights, means, strict=True)) / sum(weights)
    return [centre + spread * w * (m - centre) for w, m in zip(weights, means, strict=True)]


SAMPLES = st.lists(
    st.lists(st.integers(-20, 20).map(lambda x: x / 20), min_size=1, max_size=6),
    min_size=1,
    max_size=6,
)


@given(SAMPLES)
def test_means_are_shrunk_towards_the_common_mean_and_never_beyond_it(samples):
    shrunk = shrink_means(samples)
    assert shrunk.tolist() == pytest.approx(slow_shrink(samples), abs=1e-9)
    means = [sum(sample) / len(sample) for sample in samples]
    assert min(means) - 1e-9 <= shrunk.min() <= shrunk.max() <= max(means) + 1e-9
    order = np.argsort(means, kind="stable")
    same_size = len({len(sample) for sample in samples}) == 1
    if same_size:  # then all are shrunk by the same factor, which keeps their order
        assert (np.diff(shrunk[order]) >= -1e-9).all()
        assert np.ptp(shrunk) <= np.ptp(means) + 1e-9


def test_what_cannot_be_compared_or_shrunk():
    with pytest.raises(ValueError, match="k=0"):
        precision_at([1], {1}, 0)
    with pytest.raises(ValueError, match="duplicated"):
        precision_at([1, 1], {1})
    with pytest.raises(ValueError, match="zip"):
        compare_factors([set()], [])
    with pytest.raises(ValueError, match="finite"):
        shrink_means([[0.1], []])
