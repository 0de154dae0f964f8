"""Groups of edits: features, K-Means against a slow twin, equal words, class by class."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.lance.stress_items import (
    cluster_edits,
    difference_features,
    group_equal,
    group_within,
)

POINTS = np.array([[0, 0], [0, 1], [9, 9], [9, 10], [-8, 9], [0, 0.4], [-8, 9.2]], np.float64)


@pytest.mark.parametrize("feature", ["abs_diff", "signed_diff"])
def test_features_are_those_of_a_slow_twin(feature):
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 5, 3))
    found = difference_features(before, after, feature)
    for i in range(5):
        lengths = [math.sqrt(sum(x * x for x in one[i])) for one in (before, after)]
        for d in range(3):
            wanted = after[i, d] / lengths[1] - before[i, d] / lengths[0]
            wanted = abs(wanted) if feature == "abs_diff" else wanted
            assert found[i, d] == pytest.approx(wanted, abs=1e-12)


def test_the_way_back_is_another_edit_only_with_a_sign():
    a, b = [[1.0, 0.2]], [[0.1, 1.0]]
    assert np.array_equal(difference_features(a, b), difference_features(b, a))
    there, back = difference_features(a, b, "signed_diff"), difference_features(b, a, "signed_diff")
    assert np.array_equal(there, -back)


@pytest.mark.parametrize(
    ("before", "after", "feature", "said"),
    [
        ([[1.0]], [[1.0, 2.0]], "abs_diff", "edits x dim"),
        ([[0.0]], [[1.0]], "abs_diff", "zero vector"),
        ([[math.nan]], [[1.0]], "abs_diff", "embeddings"),
        ([[1.0]], [[1.0]], "l1", "choose from abs_diff, signed_diff"),
    ],
)
def test_features_that_cannot_be(before, after, feature, said):
    with pytest.raises(ValueError, match=said):
        difference_features(before, after, feature)


def best_partition(points: np.ndarray, k: int) -> float:
    """Return the smallest sum of squares of any partition into k clusters: all are tried."""
    found = math.inf
    for code in range(k ** len(points)):
        labels = np.array([(code // k**i) % k for i in range(len(points))])
        total = sum(
            float(((own - own.mean(axis=0)) ** 2).sum())
            for label in range(k)
            for own in [points[labels == label]]
            if len(own)
        )
        found = min(found, total)
    return found


def test_clusters_are_the_best_ones_and_named_by_the_nearest():
    grouping = cluster_edits(POINTS, 3)
    assert grouping.groups.tolist() == [0, 0, 1, 1, 2, 0, 2]
    total = sum(
        float(((own - own.mean(axis=0)) ** 2).sum())
        for group in range(3)
        for own in [POINTS[grouping.groups == group]]
    )
    assert total == pytest.approx(best_partition(POINTS, 3))
    for group, name in enumerate(grouping.names):
        rows = np.flatnonzero(grouping.groups == group)
        centre = POINTS[rows].mean(axis=0)
        distance = [float(((POINTS[row] - centre) ** 2).sum()) for row in rows]
        assert name == rows[int(np.argmin(distance))]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(1, 6))
def test_there_are_never_more_clusters_than_different_edits(values, clusters):
    features = [[float(v)] for v in values]
    grouping = cluster_edits(features, clusters)
    assert len(grouping.names) == min(clusters, len(set(values)))
    assert sorted(set(grouping.groups.tolist())) == list(range(len(grouping.names)))
    assert (grouping.groups[grouping.names] == np.arange(len(grouping.names))).all()
    again = cluster_edits(features, clusters)
    assert np.array_equal(again.groups, grouping.groups)


def test_no_edits_have_no_clusters_and_bad_ones_are_refused():
    assert len(cluster_edits(np.zeros((0, 4))).groups) == 0
    for bad, clusters in (([[math.inf]], 2), ([1.0], 2), ([[1.0]], 0)):
        with pytest.raises(ValueError, match="features"):
            cluster_edits(bad, clusters)


@given(st.lists(st.sampled_from("abc"), max_size=12), st.data())
def test_groups_within_classes_never_cross_them(words, data):
    classes = data.draw(st.lists(st.sampled_from("xy"), min_size=len(words), max_size=len(words)))
    own = [
        group_equal([w for w, c in zip(words, classes, strict=True) if c == name])
        for name in dict.fromkeys(classes)
    ]
    found = group_within(classes, own)
    pairs = list(zip(classes, words, strict=True))
    for i in range(len(words)):
        for j in range(len(words)):
            assert (found.groups[i] == found.groups[j]) == (pairs[i] == pairs[j])
    assert [int(found.groups[name]) for name in found.names] == list(range(len(found.names)))


def test_groupings_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="2 edits, not 1"):
        group_within(["a", "a"], [group_equal(["x"])])
    with pytest.raises(ValueError, match="fewer than the classes"):
        group_within(["a", "b"], [group_equal(["x"])])
