"""Metrics of queries with several right answers, beside ECCV Caption's code and every order."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.stats.right_answers import (
    RightAnswers,
    chance_of_right_answers,
    score_right_answers,
)
from tests.properties import examples
from tests.stats.eccv import compute_eccv_metrics, compute_r_at_k


def drawn(seed: int, queries: int, candidates: int) -> RightAnswers:
    rng = np.random.default_rng(seed)
    asked = np.sort(rng.choice(queries, rng.integers(1, queries + 1), replace=False))
    right = [
        np.sort(rng.choice(candidates, rng.integers(1, candidates + 1), replace=False))
        for _ in asked
    ]
    return RightAnswers(asked, right, candidates)


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 15))
@settings(max_examples=examples(100))
def test_without_ties_they_are_eccv_caption_s(seed, queries, candidates):
    rng = np.random.default_rng(seed)
    right = drawn(seed, queries, candidates)
    query_QD, candidate_GD = rng.normal(size=(queries, 8)), rng.normal(size=(candidates, 8))
    ours = score_right_answers(query_QD, candidate_GD, right)
    unit = candidate_GD / np.linalg.norm(candidate_GD, axis=1, keepdims=True)
    ranked = {q: np.argsort(-(unit @ query_QD[q])).tolist() for q in range(queries)}
    asked = zip(right.queries.tolist(), right.candidates, strict=True)
    answers = {query: some.tolist() for query, some in asked}
    theirs = compute_eccv_metrics(ranked, answers)
    theirs |= {f"R@{k}": compute_r_at_k(ranked, answers, k) for k in (1, 5, 10)}
    assert {name: values.mean() for name, values in ours.items()} == pytest.approx(theirs)


def by_every_order(scores: np.ndarray, answers: set[int], ks: tuple[int, ...]) -> dict[str, float]:
    """The means over all orders of the candidates that keep the scores descending."""
    kept = []
    for order in permutations(range(len(scores))):
        if all(scores[a] >= scores[b] for a, b in pairwise(order)):
            hit = [candidate in answers for candidate in order]
            places = range(1, len(answers) + 1)
            precision = [hit[r - 1] * sum(hit[:r]) / r for r in places]
            kept.append([*(any(hit[:k]) for k in ks), sum(hit[: len(answers)]) / len(answers),
                         sum(precision) / len(answers)])  # fmt: skip
    names = [*(f"R@{k}" for k in ks), "R-precision", "mAP@R"]
    return dict(zip(names, np.mean(kept, axis=0).tolist(), strict=True))


@given(st.integers(0, 10**6), st.lists(st.integers(0, 2), min_size=1, max_size=6))
@settings(max_examples=examples(60), deadline=None)
def test_ties_are_the_mean_over_every_order(seed, kinds):
    right = drawn(seed, 1, len(kinds))
    vectors = np.array([[1.0, 0.2], [0.5, 1.0], [-0.3, 0.8]])
    ours = score_right_answers(np.array([[1.0, 0.1]]), vectors[kinds], right, ks=(1, 2))
    scores = np.array([3.0, 2.0, 1.0])[kinds]
    expected = by_every_order(scores, set(right.candidates[0].tolist()), (1, 2))
    assert {name: float(values[0]) for name, values in ours.items()} == pytest.approx(expected)
    chance = chance_of_right_answers(right, (1, 2))
    tied = by_every_order(np.zeros(len(kinds)), set(right.candidates[0].tolist()), (1, 2))
    assert {name: float(values[0]) for name, values in chance.items()} == pytest.approx(tied)


def test_a_model_that_diverged_is_refused():
    right = RightAnswers(np.array([0]), [np.array([0])], 2)
    with pytest.raises(ValueError, match="NaN or infinite"):
        score_right_answers(np.array([[np.nan, 1.0]]), np.eye(2), right)
