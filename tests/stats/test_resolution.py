"""What a set of this size can show: against formulas, loops and the printed examples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.stats.item_tests import describe_resolution, least_visible, standard_error
from tests.properties import examples


def test_it_is_the_binomial_standard_error():
    right = np.arange(2933) < 1439  # BiVLC's group score of CLIP ViT-B/32, 49.06 %
    share = 1439 / 2933
    assert standard_error(right) == pytest.approx(math.sqrt(share * (1 - share) / 2932))


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30))
def test_of_independent_items_it_is_scipys(values):
    from scipy.stats import sem

    assert standard_error(values) == pytest.approx(sem(values), abs=1e-12)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 60))
def test_paired_it_is_that_of_the_discordant_items(better, worse, equal):
    n = better + worse + equal
    if n < 2:
        return
    differences = [1.0] * better + [-1.0] * worse + [0.0] * equal
    expected = math.sqrt((better + worse - (better - worse) ** 2 / n) / (n * (n - 1)))
    assert standard_error(differences) == pytest.approx(expected)


def slow_error(values, clusters):
    """Cochran's linearised ratio, cluster by cluster."""
    mean = sum(values) / len(values)
    names = sorted(set(clusters))
    squares = 0.0
    for name in names:
        own = [v for v, c in zip(values, clusters, strict=True) if c == name]
        squares += (sum(own) - mean * len(own)) ** 2
    return math.sqrt(len(names) / (len(names) - 1) * squares) / len(values)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.integers(0, 5)), min_size=2, max_size=40))
def test_clusters_count_by_their_items(pairs):
    values, clusters = zip(*pairs, strict=True)
    found = standard_error(values, clusters)
    if len(set(clusters)) == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(slow_error(values, clusters), abs=1e-12)


def test_clusters_that_agree_count_once():
    values = np.repeat(np.random.default_rng(0).random(50) < 0.4, 4)
    clustered = standard_error(values, np.arange(200) // 4)
    assert clustered == pytest.approx(standard_error(values[::4]))
    assert clustered > 1.9 * standard_error(values)


def test_what_differs_by_less_is_not_significant():
    from scipy.stats import ttest_1samp

    values = np.random.default_rng(1).normal(0, 1, 50)
    least = least_visible(standard_error(values), 50)
    for factor, found in ((0.999, False), (1.001, True)):
        moved = values - values.mean() + factor * least
        assert (ttest_1samp(moved, 0).pvalue < 0.05) == found


def test_sentences():
    assert describe_resolution(0.014, 1, 1).startswith("1 item: standard error 1.4 points")
    assert describe_resolution(math.nan, 3, 1) == (
        "3 items in 1 cluster: too few for a standard error"
    )
    assert describe_resolution(0.0, 3, 3) == "3 items: no spread, so no standard error"
    nats = describe_resolution(0.25, 100, 100, factor=1, unit="nats")
    assert nats == (
        "100 items: standard error 0.25 nats; a difference below 0.5 nats cannot be seen on this "
        "set"
    )
    with pytest.raises(ValueError, match="lengths"):
        standard_error([1.0, 0.0], ["a"])
    assert math.isnan(least_visible(0.1, 1))
