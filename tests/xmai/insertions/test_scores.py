"""Scores of candidates: against the sums written out, and what is the same whatever the scale."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.xmai.insertions.scores import normalise_scores, score_candidates

VALUES = st.lists(st.floats(-1, 2).map(lambda v: round(v, 3)), min_size=1, max_size=6)


@given(VALUES)
def test_scores_are_made_comparable_as_written_out(values):
    array = np.array(values)
    shares = np.maximum(array, 0)
    expected = shares / shares.sum() if shares.sum() > 0 else 0 * shares
    assert normalise_scores(values, "sum") == pytest.approx(expected)
    spread = array.max() - array.min()
    expected = (array - array.min()) / spread if spread else 0 * array
    assert normalise_scores(values, "min_max") == pytest.approx(expected)


@given(VALUES, st.sampled_from(["sum", "min_max"]))
def test_the_order_of_candidates_stays(values, how):
    found = normalise_scores(values, how)
    order = np.argsort(values, kind="stable")
    assert all(found[a] <= found[b] for a, b in pairwise(order))


def test_the_sum_is_equation_1():
    p, s, d = [0.4, 0.1], [0.2, 0.6], [0.7, 0.8]
    expected = [
        (1 * 0.4 / 0.5 + 5 * 0.2 / 0.8 - 2 * 0.7 / 1.5) / 8,
        (1 * 0.1 / 0.5 + 5 * 0.6 / 0.8 - 2 * 0.8 / 1.5) / 8,
    ]
    assert score_candidates(p, s, d, (1, 5, -2), "sum") == pytest.approx(expected)
    without = score_candidates(p, s, [], (1, 5, 0), "sum")
    assert without == pytest.approx([(0.8 + 1.25) / 6, (0.2 + 3.75) / 6])


def test_nothing_has_no_score():
    assert score_candidates([], [], [], (1, 5, 5), "min_max") == []
