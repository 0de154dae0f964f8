"""Components of variance and power, against plain loops and simulated tests."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from cfaug.stats.cluster_tests import standard_error
from cfaug.stats.item_tests import least_visible
from cfaug.stats.power import Components, power_of, variance_components
from cfaug.stats.significance import cochran_q
from tests.properties import examples


@given(st.lists(st.lists(st.integers(-1, 1), min_size=1, max_size=5), min_size=2, max_size=8))
def test_components_are_those_of_a_plain_loop(groups):
    values = [value for group in groups for value in group]
    names = [number for number, group in enumerate(groups) for _ in group]
    made = variance_components(values, names)
    total, count = len(values), len(groups)
    mean = sum(values) / total
    if count == total:
        expected = sum((v - mean) ** 2 for v in values) / (total - 1)
        assert (made.between, made.within) == (0, pytest.approx(expected))
        return
    within = between = 0.0
    for group in groups:
        centre = sum(group) / len(group)
        within += sum((v - centre) ** 2 for v in group)
        between += len(group) * (centre - mean) ** 2
    within /= total - count
    between /= count - 1
    size = (total - sum(len(group) ** 2 for group in groups) / total) / (count - 1)
    assert made.within == pytest.approx(within)
    assert made.between == pytest.approx(max(0, (between - within) / size))
    assert made.per_cluster == pytest.approx(total / count)


def test_components_of_drawn_clusters_are_found_again():
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 0.3, 4000)
    values = (centres[:, None] + rng.normal(0, 0.5, (4000, 3))).ravel()
    made = variance_components(values, np.repeat(np.arange(4000), 3))
    assert made.between == pytest.approx(0.09, rel=0.1)
    assert made.within == pytest.approx(0.25, rel=0.05)
    assert made.error(4000) == pytest.approx(math.sqrt(0.09 / 4000 + 0.25 / 12000), rel=0.05)


def test_the_planned_size_finds_the_difference_in_eighty_of_a_hundred_tests():
    """Of tests that are drawn with these components, and not by the formula of the plan."""
    plan = Components(0.09, 0.25, 100, 3.0)
    clusters = plan.clusters_needed(0.1)
    assert power_of(0.1, plan.error(clusters), clusters) >= 0.8
    assert power_of(0.1, plan.error(clusters - 1), clusters - 1) < 0.8
    rng = np.random.default_rng(1)
    centres = rng.normal(0.1, 0.3, (2000, clusters, 1))
    means = (centres + rng.normal(0, 0.5, (2000, clusters, 3))).mean(axis=2)
    share = (ttest_1samp(means, 0, axis=1).pvalue <= 0.05).mean()
    assert share == pytest.approx(0.8, abs=0.03)


@given(st.floats(0.001, 1), st.floats(0.001, 1), st.integers(2, 10_000))
def test_the_detectable_difference_has_a_power_of_eighty_percent(error, level, clusters):
    seen = least_visible(error, clusters)
    assert power_of(seen, error, clusters) == pytest.approx(0.8, abs=1e-6)
    assert power_of(seen * (1 + level), error, clusters) > 0.8


def test_what_cannot_be_found_has_no_size():
    assert Components(0.1, 0.1, 10, 1.0).clusters_needed(0.0) is None
    assert Components(0.1, 0.1, 10, 1.0).clusters_needed(math.nan) is None
    assert Components(0.1, 0.1, 10, 1.0).clusters_needed(1e-9) is None
    assert math.isnan(power_of(0.1, 0.1, 1))
    with pytest.raises(ValueError, match="two clusters"):
        variance_components([1, 0], ["a", "a"])


@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_q_is_uniform_without_differences_and_small_with_them(spread):
    rng = np.random.default_rng(2)
    errors = np.array([0.02, 0.03, 0.05, 0.04])
    effects = 0.1 + rng.normal(0, 1, (examples(4000), 4)) * errors
    effects += rng.normal(0, spread, effects.shape)
    share = np.mean([cochran_q(row, errors) <= 0.05 for row in effects])
    assert (0.03 < share < 0.07) if not spread else share > 0.3
    assert math.isnan(cochran_q([0.1], [0.1]))
    assert math.isnan(cochran_q([0.1, 0.2], [0.1, 0.0]))


def test_large_clusters_make_the_planned_test_less_certain():
    """The same size again has the error of the pilot, also with clusters of unequal sizes."""
    rng = np.random.default_rng(4)
    sizes = np.array([1] * 900 + [20] * 100)
    names = np.repeat(np.arange(1000), sizes)
    values = rng.normal(0, 1, 1000)[names] + rng.normal(0, 0.5, len(names))
    plan = variance_components(values, names)
    assert plan.error(1000) == pytest.approx(standard_error(values, names), rel=0.2)
    assert replace(plan, uneven=1.0).error(1000) < 0.6 * plan.error(1000)


def test_a_plan_needs_enough_clusters_for_a_small_p_and_a_pilot_with_spread():
    assert Components(0.0, 1e-6, 10, 1.0).clusters_needed(0.5) == 6
    assert Components(0.0, 0.0, 10, 1.0).clusters_needed(0.5) is None
