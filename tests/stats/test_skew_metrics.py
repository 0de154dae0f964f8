"""Skew@K and its kin against the formulas written down, one image at a time."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.rng import derive
from cfaug.stats.skew_metrics import (
    bias,
    count_top,
    max_skew,
    min_skew,
    ndkl,
    rank_images,
    relative_share,
    skew,
)
from tests.properties import examples

RANKINGS = st.lists(st.integers(0, 3), min_size=1, max_size=24).map(
    lambda labels: [sorted(set(labels)).index(label) for label in labels]
)
"""Rankings in which every label from 0 to the largest occurs."""


def slow_skew(ranking, k, label):
    """Skew@K as the paper writes it (equation 1)."""
    in_top = sum(1 for ranked in ranking[:k] if ranked == label) / k
    desired = sum(1 for ranked in ranking if ranked == label) / len(ranking)
    return math.log(in_top / desired) if in_top else -math.inf


def slow_ndkl(ranking, longest):
    """NDKL as Geyik et al. write it: one prefix, one label at a time."""
    desired = {label: n / len(ranking) for label, n in Counter(ranking).items()}
    total, weights = 0.0, 0.0
    for i in range(1, longest + 1):
        weight = 1 / math.log2(i + 1)
        weights += weight
        top = Counter(ranking[:i])
        total += weight * sum((n / i) * math.log((n / i) / desired[a]) for a, n in top.items())
    return total / weights


@given(RANKINGS, st.data())
@settings(max_examples=examples(100))
def test_every_metric_is_its_formula(ranking, data):
    k = data.draw(st.integers(1, len(ranking)))
    labels = max(ranking) + 1
    pool = np.bincount(ranking)
    counts, whole = count_top(np.array(ranking), labels, [k, len(ranking)])
    assert counts.tolist() == [ranking[:k].count(label) for label in range(labels)]
    assert float(max_skew(whole, pool)) == 0.0, "all images are retrieved"
    slow = [slow_skew(ranking, k, label) for label in range(labels)]
    assert skew(counts, pool).tolist() == pytest.approx(slow)
    assert skew(counts, pool / pool.sum()).tolist() == pytest.approx(slow), "shares or counts"
    assert float(max_skew(counts, pool)) == pytest.approx(max(slow), abs=1e-12)
    there = [value for value in slow if value > -math.inf]
    assert float(min_skew(counts, pool, "neg_inf")) == pytest.approx(min(slow))
    assert float(min_skew(counts, pool, "drop")) == pytest.approx(min(there), abs=1e-12)
    released = [value if value > -math.inf else 0.0 for value in slow]
    assert float(min_skew(counts, pool, "ref0")) == pytest.approx(min(released), abs=1e-12)
    # The released code's: the largest skew of the labels that were retrieved.
    assert float(max_skew(counts, pool)) == pytest.approx(max(released), abs=1e-12)
    smooth = [
        math.log((ranking[:k].count(a) + 0.25) / (k + 0.25 * labels) * len(ranking) / n)
        for a, n in enumerate(pool.tolist())
    ]
    assert float(min_skew(counts, pool, "smooth", 0.25)) == pytest.approx(min(smooth), abs=1e-12)
    assert ndkl(np.array(ranking), pool) == pytest.approx(slow_ndkl(ranking, len(ranking)))
    assert ndkl(np.array(ranking), pool, k) == pytest.approx(slow_ndkl(ranking, k), abs=1e-12)


def test_equal_scores_are_ordered_by_a_hash_of_the_id_whatever_the_order_of_reading():
    ids = [f"image-{n}" for n in range(12)]
    scores = np.array([0.5, 0.25, 0.5, 0.0] * 3, np.float32)
    ranked = [ids[at] for at in rank_images(scores, ids)]
    expected = sorted(ids, key=lambda name: (-scores[ids.index(name)], derive(0, "rank", name)))
    assert ranked == expected
    shuffled = np.random.default_rng(1).permutation(12)
    other = [ids[at] for at in shuffled]
    assert [other[at] for at in rank_images(scores[shuffled], other)] == ranked
    assert ranked != sorted(ranked, key=lambda name: (-scores[ids.index(name)], ids.index(name)))


def test_bias_at_k_is_of_labels_not_of_places():
    assert bias([[6, 0], [3, 3], [0, 6], [2, 4]]).tolist() == pytest.approx([1, 0, -1, -1 / 3])
    assert bias([5, 1, 3], first=2, second=1) == 0.5
    assert math.isnan(float(bias([0, 0, 4])))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: rank_images([0.1, math.nan], ["set-1_0", "set-1_1"]), "such as that of set-1_1"),
        (lambda: rank_images([0.1], []), "lengths must be equal"),
        (lambda: count_top(np.array([0, 1]), 2, [3]), "k=3 should be 1 to 2"),
        (lambda: count_top(np.array([0, 2]), 2, [1]), "outside 0 to 1"),
        (lambda: relative_share([0, 0], [1, 1]), "not all counts 0"),
        (lambda: relative_share([1, 1], [1, 0]), "no desired share"),
        (lambda: skew([1, 0], [1, 0]), "desired share above 0"),
        (lambda: skew([1, 0], [1, 1], "zero"), "choose from smooth, neg_inf, drop, ref0"),
        (lambda: min_skew([1, 0], [1, 1], "smooth", 0), "alpha=0 should be above 0"),
        (lambda: ndkl(np.array([], int), [1, 1]), "at=None should be 1 to 0"),
        (lambda: ndkl(np.array([0, 1]), [1, 1], 3), "at=3 should be 1 to 2"),
        (lambda: ndkl(np.array([0, 2]), [1, 1]), "outside 0 to 1"),
        (lambda: ndkl(np.array([0]), [1, math.nan]), "NaN or infinite"),
        (lambda: ndkl(np.array([0]), [1, 0]), "desired share above 0"),
    ],
)
def test_what_has_no_answer_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
