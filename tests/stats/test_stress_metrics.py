"""Probabilities and drops against plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cfaug.stats.effects import fisher, paired_drop, softmax, top_classes, truth_probability
from cfaug.stats.item_tests import mcnemar

LOGITS = arrays(
    np.float32, st.tuples(st.integers(1, 6), st.integers(1, 8)),
    elements=st.floats(-300, 300, width=32),
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(LOGITS, st.integers(1, 6), st.integers(0, 10**6))
def test_probabilities_are_those_of_plain_python(logits, top_k, seed):
    found = softmax(logits)
    labels = np.random.default_rng(seed).integers(logits.shape[1], size=len(logits))
    own = truth_probability(found, labels)
    best, best_p = top_classes(found, top_k)
    for row, values in enumerate(logits.astype(float).tolist()):
        most = max(values)
        raised = [math.exp(value - most) for value in values]
        p = [one / math.fsum(raised) for one in raised]
        assert found[row] == pytest.approx(p, abs=1e-12)
        assert own[row] == found[row, labels[row]]
        order = sorted(range(len(p)), key=lambda n: (-found[row, n], n))[:top_k]
        assert best[row].tolist() == order
        assert best_p[row].tolist() == [found[row, n] for n in order]


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_logit_that_is_no_number_is_refused(wrong):
    with pytest.raises(ValueError, match="logits hold NaN"):
        softmax([[0.0, wrong]])


def hypergeometric(right, n, right_other, n_other):
    """Fisher's two-sided p by summing every table that is no more probable."""
    both, whole = right + right_other, n + n_other

    def weight(k):
        return math.comb(n, k) * math.comb(n_other, both - k)

    allowed = range(max(0, both - n_other), min(n, both) + 1)
    seen = weight(right)
    return sum(weight(k) for k in allowed if weight(k) <= seen) / math.comb(whole, both)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_fishers_test_is_the_sum_over_tables(right, wrong, right_other, wrong_other):
    n, n_other = right + wrong, right_other + wrong_other
    if n and n_other:
        expected = hypergeometric(right, n, right_other, n_other)
        assert fisher(right, n, right_other, n_other) == pytest.approx(expected)


def test_invalid_counts_are_refused():
    with pytest.raises(ValueError, match="are invalid counts"):
        fisher(3, 2, 0, 1)
    with pytest.raises(ValueError, match="lengths must be equal"):
        paired_drop([1, 0], [1], ["a"], np.random.default_rng(0))


def test_a_drop_counts_a_photo_once_an_edit():
    draw = np.random.default_rng(1)
    photos = draw.integers(10, size=40)
    hit = draw.integers(2, size=10)
    before, after = hit[photos], draw.integers(2, size=40)
    found = paired_drop(before, after, photos, np.random.default_rng(0))
    lost = sum(int(b > a) for b, a in zip(before, after, strict=True))
    won = sum(int(b < a) for b, a in zip(before, after, strict=True))
    assert (found.lost, found.won, found.p_sign) == (lost, won, mcnemar(lost, won))
    assert found.before - found.after == pytest.approx(found.mean.mean) == (lost - won) / 40
    assert found.mean.clusters == len(set(photos.tolist()))
    assert found.mean.low <= found.mean.mean <= found.mean.high
