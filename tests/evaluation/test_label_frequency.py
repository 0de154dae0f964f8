"""Table 6 of COCO-Counterfactuals, its correlation, and the test that counts data sets."""

from __future__ import annotations

from itertools import permutations
from math import isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.evaluation import label_frequency as module
from cfaug.evaluation.label_frequency import associate, label_frequency

# CIFAR100, Caltech101, Caltech256, CIFAR10, ImageNet, Food101; base, medium, all.
FREQUENCY = np.array([3446, 354, 744, 398, 887, 28])
GAIN = np.array(
    [
        [2.50, 2.63, 1.80],
        [2.31, 2.55, 2.45],
        [1.78, 1.52, 1.16],
        [0.65, 0.36, -0.29],
        [0.41, -0.03, -0.37],
        [-1.04, -2.05, -2.11],
    ]
)


def test_the_papers_correlation_and_what_is_left_of_it():
    association = associate(FREQUENCY, GAIN)
    assert (association.r, association.naive_p) == pytest.approx((0.52181, 0.02634), abs=1e-4)
    assert association.permutation_p == pytest.approx(0.267, abs=5e-4)
    assert association.log_r == pytest.approx(0.734, abs=5e-4)
    assert association.spearman == pytest.approx(0.417, abs=5e-4)
    assert (association.mean_r, association.mean_p) == pytest.approx((0.536, 0.27), abs=5e-3)
    assert [r for r, _ in association.by_mixture] == pytest.approx([0.581, 0.565, 0.463], abs=5e-4)
    assert [p for _, p in association.by_mixture] == pytest.approx([0.23, 0.24, 0.35], abs=5e-3)
    assert association.datasets == 6


def test_the_correlation_rests_on_one_data_set():
    association = associate(FREQUENCY[1:], GAIN[1:])
    assert (association.r, association.naive_p) == pytest.approx((0.382, 0.16), abs=5e-3)


def test_table_4s_own_differences_give_nearly_the_same():
    gain = GAIN.copy()
    gain[0, 1], gain[5, 2] = 2.71, -2.17
    association = associate(FREQUENCY, gain)
    assert (association.r, association.naive_p) == pytest.approx((0.5259, 0.0250), abs=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 5), st.integers(1, 3))
def test_permutation_p_equals_a_slow_twin(seed, datasets, mixtures):
    rng = np.random.default_rng(seed)
    x, gain = (
        rng.integers(0, 50, datasets) + np.arange(datasets),
        rng.normal(size=(datasets, mixtures)),
    )

    def r(order):
        return np.corrcoef(np.repeat(x[list(order)], mixtures), gain.ravel())[0, 1]

    if np.ptp(x) == 0:
        return
    observed = abs(r(range(datasets)))
    every = [abs(r(order)) for order in permutations(range(datasets))]
    expected = np.mean([value >= observed - 1e-9 for value in every])
    assert associate(x, gain).permutation_p == pytest.approx(expected)


def test_many_data_sets_are_permuted_at_random_and_the_same_each_time(monkeypatch):
    exact = associate(FREQUENCY, GAIN).permutation_p
    monkeypatch.setattr(module, "EXACT_UP_TO", 5)
    drawn = associate(FREQUENCY, GAIN).permutation_p
    assert drawn == associate(FREQUENCY, GAIN).permutation_p
    assert drawn == pytest.approx(exact, abs=0.02)


def test_no_spread_has_no_answer():
    for frequency, gain in ((np.ones(6), GAIN), (FREQUENCY, np.ones((6, 3))), ([1, 2], [[1], [2]])):
        association = associate(np.array(frequency), np.array(gain))
        assert isnan(association.r)
        assert isnan(association.permutation_p)
    with pytest.raises(ValueError, match="do not fit"):
        associate(FREQUENCY, GAIN[1:])
    with pytest.raises(ValueError, match="NaN"):
        associate(FREQUENCY, GAIN * np.nan)


def test_a_frequency_of_zero_still_has_a_logarithm():
    assert associate(np.array([0, 9, 99]), np.array([[0.0], [1.0], [2.0]])).log_r == pytest.approx(
        1
    )


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abCD")), max_size=20),
    st.sets(st.sampled_from("abcdAB")),
)
def test_label_frequency_equals_a_slow_twin(pairs, names):
    count = 0
    for before, after in pairs:
        hit = False
        for name in names:
            hit = hit or name.lower() in (before.lower(), after.lower())
        count += hit
    assert label_frequency(pairs, names) == count
