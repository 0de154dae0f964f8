"""Precision, recall and F1 against scikit-learn's, and what is undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.stats.classification import class_scores, confusion_matrix
from tests.properties import examples

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


@settings(max_examples=examples(50), deadline=None)
@given(PAIRS)
def test_as_counted_one_by_one(pairs):
    truth, predicted = np.array(pairs).T
    matrix = confusion_matrix(truth, predicted, 4)
    for c, one in enumerate(class_scores(matrix)):
        hits = sum(t == p == c for t, p in pairs)
        assert one.support == sum(t == c for t, _ in pairs)
        assert one.predicted == sum(p == c for _, p in pairs)
        for found, whole in ((one.precision, one.predicted), (one.recall, one.support)):
            assert math.isnan(found) if not whole else found == hits / whole
        if not math.isnan(one.precision) and not math.isnan(one.recall) and hits:
            mean = 2 * one.precision * one.recall / (one.precision + one.recall)
            assert one.f1 == pytest.approx(mean)
    assert matrix.sum() == len(pairs)


def test_as_scikit_learn():
    from sklearn.metrics import precision_recall_fscore_support

    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 3, (2, 200))
    theirs = np.array(precision_recall_fscore_support(truth, predicted)).T
    ours = [
        (one.precision, one.recall, one.f1, one.support)
        for one in class_scores(confusion_matrix(truth, predicted, 3))
    ]
    np.testing.assert_allclose(ours, theirs)


def test_what_is_no_class_is_refused():
    with pytest.raises(ValueError, match="outside 0 to 1"):
        confusion_matrix(np.array([0, 2]), np.array([0, 1]), 2)
    with pytest.raises(ValueError, match="do not fit"):
        confusion_matrix(np.array([0]), np.array([0, 1]), 2)
