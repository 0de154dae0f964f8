"""Macro scores against scikit-learn, and their tests against slow twins."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from cfaug.stats.classification import confusion_matrix, macro_scores
from cfaug.xmai.entailment_items import SCORES, _scores, score_drops

ANSWERS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30)


def sklearn_scores(truth, said):
    macro = precision_recall_fscore_support(truth, said, average="macro", zero_division=0)
    return [accuracy_score(truth, said), *macro[:3]]


@settings(deadline=None, max_examples=30)
@given(ANSWERS)
def test_macro_scores_are_scikit_learns(answers):
    truth, said = np.array(answers).T
    expected = sklearn_scores(truth, said)
    matrix = confusion_matrix(truth, said, 3)
    found = macro_scores(matrix)
    named = [found.accuracy, found.precision, found.recall, found.f1]
    assert named == pytest.approx(expected, abs=1e-12)
    assert _scores(matrix.reshape(1, -1).astype(float))[0] == pytest.approx(expected, abs=1e-12)


def test_scores_of_nothing_are_refused():
    with pytest.raises(ValueError, match="no items"):
        macro_scores(np.zeros((3, 3), int))
    rng = np.random.default_rng(0)
    nothing = np.array([], int)
    with pytest.raises(ValueError, match="not 0 items"):
        score_drops(nothing, nothing, nothing, [], rng, classes=3)
    one = np.array([0])
    with pytest.raises(ValueError, match="one value per item"):
        score_drops(one, one, np.array([0, 1]), ["a"], rng, classes=3)
    with pytest.raises(ValueError, match="outside 0 to 2"):
        score_drops(one, one, np.array([3]), ["a"], rng, classes=3)


def sample(seed, count=40, photos=6):
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=count)
    before = np.where(rng.random(count) < 0.9, truth, rng.integers(3, size=count))
    after = np.where(rng.random(count) < 0.6, truth, rng.integers(3, size=count))
    return truth, before, after, rng.integers(photos, size=count)


def test_permutations_are_those_of_whole_photos():
    """All 2 ** photos exchanges of before and after, one item at a time."""
    truth, before, after, photos = sample(1, photos=5)
    observed = np.subtract(sklearn_scores(truth, before), sklearn_scores(truth, after))
    count = np.zeros(len(SCORES))
    turns = list(itertools.product([False, True], repeat=len(set(photos))))
    for turn in turns:
        exchanged = np.array([turn[photo] for photo in photos])
        first, second = np.where(exchanged, after, before), np.where(exchanged, before, after)
        drop = np.subtract(sklearn_scores(truth, first), sklearn_scores(truth, second))
        count += np.abs(drop) >= np.abs(observed) - 1e-12
    found = score_drops(truth, before, after, photos, np.random.default_rng(0), classes=3)
    assert [one.drop for one in found] == pytest.approx(observed)
    for one, expected in zip(found, count / len(turns), strict=True):
        assert one.p == pytest.approx(expected, abs=0.02)


def test_intervals_are_of_a_bootstrap_that_draws_photos():
    truth, before, after, photos = sample(2, photos=9)
    rng = np.random.default_rng(5)

    def scores(rows, said):
        found = macro_scores(confusion_matrix(truth[rows], said[rows], 3))
        return [found.accuracy, found.precision, found.recall, found.f1]

    drops = []
    for _ in range(1500):
        drawn = rng.integers(9, size=9)
        rows = np.concatenate([np.flatnonzero(photos == photo) for photo in drawn])
        drops.append(np.subtract(scores(rows, before), scores(rows, after)))
    low, high = np.quantile(drops, [0.025, 0.975], axis=0)
    found = score_drops(truth, before, after, photos, np.random.default_rng(0), classes=3)
    assert [one.low for one in found] == pytest.approx(low, abs=0.03)
    assert [one.high for one in found] == pytest.approx(high, abs=0.03)


def test_the_same_state_gives_the_same_numbers_and_one_photo_none(monkeypatch):
    truth, before, after, photos = sample(3)
    whole, again = (
        score_drops(truth, before, after, photos, np.random.default_rng(0), classes=3)
        for _ in range(2)
    )
    assert whole == again
    same = score_drops(truth, before, before, photos, np.random.default_rng(0), classes=3)
    assert all(one.p == 1 and one.low == one.high == 0 for one in same)
    alone = score_drops(truth, before, after, [0] * 40, np.random.default_rng(0), classes=3)
    assert all(math.isnan(value) for one in alone for value in (one.low, one.high, one.p))
    monkeypatch.setattr("cfaug.xmai.entailment_items.DRAWN_AT_ONCE", 60)  # in many small pieces
    pieces = score_drops(
        truth, before, after, photos, np.random.default_rng(0), classes=3, resamples=200
    )
    assert [one.drop for one in pieces] == [one.drop for one in whole]
    assert all(one.low <= one.drop <= one.high for one in pieces)
