"""Recall, R-precision and mAP@R where a query has several right answers, and some are not asked.

R is the number of a query's right answers. R-precision is the share of them among its first R
candidates; mAP@R is the mean of AP@R = 1/R sum over r <= R of [candidate r is right] x the share of
right ones among the first r (Musgrave et al., 2020; ECCV Caption, section 4.2). Recall is ``hits``
of ``cfaug.stats.ranking``: 1 if any right one is among the first k.

Equal scores are worth the mean over every order of the tied candidates, as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfaug.stats.ranking import (
    KS,
    SCORES_AT_ONCE,
    Candidates,
    QueryRanks,
    as_array,
    finite,
    first_equal,
    unit,
)


@dataclass(frozen=True)
class RightAnswers:
    """The right candidates of the queries that have any.

    Attributes:
        queries: the queries that are asked, integers (asked,), ascending.
        candidates: the right candidates of each, integers, distinct, at least one.
        count: the number of candidates among which they are.
    """

    queries: np.ndarray
    candidates: Sequence[np.ndarray]
    count: int


def score_right_answers(
    query_QD: Any, candidate_GD: Any, right: RightAnswers, ks: Sequence[int] = KS
) -> dict[str, np.ndarray]:
    """Return each asked query's metrics, ``{"R@1": float64 (asked,), ..., "mAP@R": ...}``.

    Args:
        query_QD: embeddings of all queries, (queries, dim).
        candidate_GD: embeddings of all candidates, (candidates, dim).
        ks: cut-offs k of the recalls ``R@k``.

    Raises:
        ValueError: if an embedding is zero or not finite.
    """
    queries, candidates = as_array(query_QD), as_array(candidate_GD)
    among = Candidates(unit(candidates, "candidates"), first_equal(candidates))
    vectors = unit(queries[right.queries], "queries")
    size = max(1, SCORES_AT_ONCE // right.count)
    rows = (
        row for at in range(0, len(vectors), size) for row in among.score(vectors[at : at + size])
    )
    return _measure(rows, right, ks)


def chance_of_right_answers(right: RightAnswers, ks: Sequence[int] = KS) -> dict[str, np.ndarray]:
    """Return the metrics of a model that tells nothing apart, as ``score_right_answers`` does.

    >>> right = RightAnswers(np.array([0]), [np.array([1])], count=4)
    >>> {name: values.tolist() for name, values in chance_of_right_answers(right, (1,)).items()}
    {'R@1': [0.25], 'R-precision': [0.25], 'mAP@R': [0.25]}
    """
    sizes, place = np.unique([len(some) for some in right.candidates], return_inverse=True)
    some = RightAnswers(sizes, [np.arange(size) for size in sizes], right.count)
    by_size = _measure((np.zeros(right.count) for _ in sizes), some, ks)
    return {metric: values[place] for metric, values in by_size.items()}


def _measure(
    rows: Iterable[np.ndarray], right: RightAnswers, ks: Sequence[int]
) -> dict[str, np.ndarray]:
    counts, precisions, means = [], [], []
    for scores, answers in zip(rows, right.candidates, strict=True):
        best = finite(scores, "scores")[answers].max()
        equal = int((scores[answers] == best).sum())
        above, tied = int((scores > best).sum()), int((scores == best).sum()) - equal
        counts.append((above, tied, equal))
        precision, mean = _precision_at_r(scores, answers)
        precisions.append(precision)
        means.append(mean)
    ranks = QueryRanks(*np.array(counts, np.int64).reshape(-1, 3).T)
    recalls = {f"R@{k}": ranks.hits(k) for k in ks}
    return {**recalls, "R-precision": np.array(precisions), "mAP@R": np.array(means)}


def _precision_at_r(scores: np.ndarray, answers: np.ndarray) -> tuple[float, float]:
    """Return R-precision and AP@R of one query, the mean over every order of tied candidates.

    Of n candidates with one score, m of them right, after c right ones before them, place j (from
    1) is right with probability m / n, and then (j - 1)(m - 1)/(n - 1) of those before it in the
    tie are right on average: the expected precision there is (c + 1 + that) / its rank.
    """
    count = len(answers)
    kept = np.flatnonzero(scores >= np.partition(scores, -count)[-count])  # the R best, with ties
    right = np.zeros(len(scores), bool)
    right[answers] = True
    values, block = np.unique(-scores[kept], return_inverse=True)
    sizes = np.bincount(block, minlength=len(values))
    rights = np.bincount(block, weights=right[kept], minlength=len(values))
    starts, before = np.cumsum(sizes) - sizes, np.cumsum(rights) - rights
    place = np.arange(count)  # places 0..R-1, in the block that they fall into
    at = np.searchsorted(starts, place, side="right") - 1
    share = rights[at] / sizes[at]
    together = (place - starts[at]) * (rights[at] - 1) / np.maximum(sizes[at] - 1, 1)
    precision = (before[at] + 1 + together) / (place + 1)
    return float(share.sum() / count), float((share * precision).sum() / count)
