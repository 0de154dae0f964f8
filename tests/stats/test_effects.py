"""Probabilities, drops, the response to a dose: against plain Python and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import curve_fit

from cfaug.stats.effects import (
    fisher,
    fit_saturation,
    paired_drop,
    softmax,
    top_classes,
    truth_probability,
)
from cfaug.stats.item_tests import mcnemar

LOGITS = arrays(
    np.float32, st.tuples(st.integers(1, 6), st.integers(1, 8)),
    elements=st.floats(-300, 300, width=32),
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(LOGITS, st.integers(1, 6), st.integers(0, 10**6))
def test_probabilities_are_those_of_plain_python(logits, top_k, seed):
    probabilities = softmax(logits)
    labels = np.random.default_rng(seed).integers(logits.shape[1], size=len(logits))
    of_truth = truth_probability(probabilities, labels)
    best, best_p = top_classes(probabilities, top_k)
    for row, values in enumerate(logits.astype(float).tolist()):
        most = max(values)
        raised = [math.exp(value - most) for value in values]
        p = [power / math.fsum(raised) for power in raised]
        assert probabilities[row] == pytest.approx(p, abs=1e-12)
        assert of_truth[row] == probabilities[row, labels[row]]
        order = sorted(range(len(p)), key=lambda n: (-probabilities[row, n], n))[:top_k]
        assert best[row].tolist() == order
        assert best_p[row].tolist() == [probabilities[row, n] for n in order]


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


def test_a_drop_counts_a_photo_once_an_edit():
    draw = np.random.default_rng(1)
    photos = draw.integers(10, size=40)
    hit = draw.integers(2, size=10)
    before, after = hit[photos], draw.integers(2, size=40)
    drop = paired_drop(before, after, photos, np.random.default_rng(0))
    lost = sum(int(b > a) for b, a in zip(before, after, strict=True))
    won = sum(int(b < a) for b, a in zip(before, after, strict=True))
    assert (drop.lost, drop.won, drop.p_sign) == (lost, won, mcnemar(lost, won))
    assert drop.before - drop.after == pytest.approx(drop.mean.mean) == (lost - won) / 40
    assert drop.mean.clusters == len(set(photos.tolist()))
    assert drop.mean.low <= drop.mean.mean <= drop.mean.high


# The saturating response to a dose, against scipy's own least squares.

DOSES = (32.0, 64.0, 128.0, 256.0)


def noisy(limit: float, scale: float, noise: float, seeds: int = 5, state: int = 0):
    rng = np.random.default_rng(state)
    return {
        dose: {
            seed: limit * (1 - np.exp(-dose / scale)) + rng.normal(0, noise)
            for seed in range(seeds)
        }
        for dose in DOSES
    }


@pytest.mark.parametrize(("limit", "scale"), [(0.6, 80), (0.3, 40), (-0.2, 60)])
def test_the_fit_is_that_of_least_squares(limit, scale):
    curve = noisy(limit, scale, 0.02)
    x = [dose for dose, of in curve.items() for _ in of]
    y = [value for of in curve.values() for value in of.values()]
    (wanted, of_scale), _ = curve_fit(lambda b, g, t: g * (1 - np.exp(-b / t)), x, y, [limit, 100])
    fit = fit_saturation(curve, np.random.default_rng(1), resamples=200)
    assert fit.limit == pytest.approx(wanted, rel=0.02)
    assert fit.half == pytest.approx(of_scale * np.log(2), rel=0.05)
    assert fit.limit_interval[0] < wanted < fit.limit_interval[1]
    assert fit.at(fit.half) == pytest.approx(fit.limit / 2)
    assert fit.bounded


def test_a_line_is_not_said_to_saturate():
    line = {dose: dict.fromkeys(range(3), dose / 1000) for dose in DOSES}
    assert not fit_saturation(line, np.random.default_rng(0), resamples=50).bounded


def test_the_interval_covers_the_limit_as_often_as_it_says():
    covered = 0
    for state in range(30):
        curve = noisy(0.5, 60, 0.05, seeds=12, state=state)
        fit = fit_saturation(curve, np.random.default_rng(state), 200)
        covered += fit.limit_interval[0] <= 0.5 <= fit.limit_interval[1]
    assert covered >= 24  # 28.5 are expected; a bootstrap of 12 seeds is a little narrow


@pytest.mark.parametrize("curve", [
    {}, {1.0: {0: 1.0}}, {0.0: {0: 1.0}, 1.0: {0: 1.0}}, {1.0: {0: 1.0}, 2.0: {1: 1.0}},
])  # fmt: skip
def test_too_few_doses_or_other_seeds_are_refused(curve):
    with pytest.raises(ValueError, match="two doses"):
        fit_saturation(curve, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: softmax([[0.0, math.nan]]), "logits hold NaN"),
        (lambda: softmax([[0.0, math.inf]]), "logits hold NaN"),
        (lambda: fisher(3, 2, 0, 1), "are invalid counts"),
        (lambda: paired_drop([1, 0], [1], ["a"], np.random.default_rng(0)),
         "lengths must be equal"),
    ],
)  # fmt: skip
def test_what_is_no_number_or_no_count_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
