"""One image, several captions: can a model tell which of them are true (SugarCrepe, ARO)?

An item is right if every true caption scores above every false one. If the worst true caption ties
with the best false one, a rule decides, and published programs use different rules:

* ``miss``: wrong. SugarCrepe's ``main_eval.py`` (``pos > neg``) and ARO, whose ``argmax`` finds the
  false caption first;
* ``hit``: right. CLIP_benchmark and MTEB, whose ``argmax`` finds the true caption first;
* ``half``: half an item, the expected value of a coin toss between two captions.

Captions are (items, captions); an item with fewer captions than others is padded with ``ABSENT``,
and the scores there are ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from cfaug.stats.ranking import as_array, finite

Ties = Literal["miss", "half", "hit"]

TRUE, FALSE, ABSENT = 1, 0, -1
"""Codes of captions: true or false of the image, or padding."""

WORTH: Mapping[str, float] = {"miss": 0.0, "half": 0.5, "hit": 1.0}
"""The fraction of an item that a tie counts, by rule."""


def choice_hits(scores_NK: Any, truth_NK: Any, ties: Ties = "miss") -> np.ndarray:
    """Return which items are right, float64 (items,) of 0, 1, and 0.5 where ties are half a hit.

    >>> choice_hits([[0.9, 0.1], [0.5, 0.5]], [[1, 0], [1, 0]], "half").tolist()
    [1.0, 0.5]

    Args:
        scores_NK: score of each caption, (items, captions); larger is better.
        truth_NK: ``TRUE``, ``FALSE`` or ``ABSENT`` for each caption, (items, captions).
        ties: rule for a tie between the worst true caption and the best false one: ``"miss"``,
            ``"half"`` or ``"hit"``.

    Raises:
        ValueError: if a score is not finite, an item lacks a true or a false caption, or the rule
            is unknown.
    """
    worst, best = _extremes(scores_NK, truth_NK)
    return _decide(worst, best, ties)


def original_hits(scores_NK: Any, truth_NK: Any, ties: Ties = "miss") -> np.ndarray:
    """Return which items are right if only the first true caption counts, float64 (items,).

    Original accuracy of hard positives (Kamath et al., 2024, section 4.1), whose augmented accuracy
    is ``choice_hits``.

    >>> original_hits([[0.9, 0.1, 0.5]], [[1, 1, 0]]).tolist()
    [1.0]

    Args:
        scores_NK: score of each caption, (items, captions); larger is better.
        truth_NK: ``TRUE``, ``FALSE`` or ``ABSENT`` for each caption, (items, captions).
        ties: rule for ties, see ``choice_hits``.

    Raises:
        ValueError: as ``choice_hits`` does.
    """
    truth = np.array(truth_NK)
    later = (truth == TRUE) & (np.cumsum(truth == TRUE, axis=1) > 1)
    return choice_hits(scores_NK, np.where(later, ABSENT, truth), ties)


def brittle(scores_NK: Any, truth_NK: Any) -> np.ndarray:
    """Return which items have true captions on both sides of the best false one, bool (items,).

    Brittleness of hard positives (Kamath et al., 2024, section 4.1): caption > negative >
    paraphrase, or paraphrase > negative > caption. Both comparisons are strict, as in the authors'
    code, so an item with a tie is not brittle.

    >>> brittle([[0.9, 0.1, 0.5], [0.9, 0.8, 0.5]], [[1, 1, 0], [1, 1, 0]]).tolist()
    [True, False]

    Args:
        scores_NK: score of each caption, (items, captions); larger is better.
        truth_NK: ``TRUE``, ``FALSE`` or ``ABSENT`` for each caption, (items, captions).

    Raises:
        ValueError: if a score is not finite, or an item lacks a true or a false caption.
    """
    worst, false = _extremes(scores_NK, truth_NK)
    best = np.where(np.asarray(truth_NK) == TRUE, as_array(scores_NK), -np.inf).max(axis=1)
    found: np.ndarray = (worst < false) & (best > false)
    return found


def text_only_hits(similar_NKK: Any, truth_NK: Any, ties: Ties = "miss") -> np.ndarray:
    """Return which items have true captions more similar to each other than to any false one.

    The text-only test (TOT) of SugarCrepe++: s(P1, P2) > s(P1, N) and s(P1, P2) > s(P2, N).

    >>> text_only_hits([[[1.0, 0.8, 0.3], [0.8, 1.0, 0.7], [0.3, 0.7, 1.0]]], [[1, 1, 0]]).tolist()
    [1.0]

    Args:
        similar_NKK: similarity of every two captions of an item, (items, captions, captions).
        truth_NK: ``TRUE``, ``FALSE`` or ``ABSENT`` for each caption, (items, captions).
        ties: rule for ties, see ``choice_hits``.

    Returns:
        float64 (items,).

    Raises:
        ValueError: as ``choice_hits`` does, or if an item has a single true caption.
    """
    similar, truth = as_array(similar_NKK), np.asarray(truth_NK)
    first, second = np.triu_indices(truth.shape[1], k=1)
    one, other = truth[:, first], truth[:, second]
    pairs = np.where(one == other, TRUE, FALSE)
    pairs[((one == FALSE) & (other == FALSE)) | (one == ABSENT) | (other == ABSENT)] = ABSENT
    return choice_hits(similar[:, first, second], pairs, ties)


def mean_by(hits_N: Any, categories: Sequence[str | None]) -> dict[str, float]:
    """Return the mean of each category, in alphabetical order; items without one do not count.

    >>> mean_by([1.0, 0.0, 1.0], ["swap", "swap", "add"])
    {'add': 1.0, 'swap': 0.5}

    Args:
        hits_N: value of each item, float (items,); NaN values do not count.
        categories: category of each item, (items,); ``None`` for an item without one.
    """
    hits = np.asarray(hits_N, np.float64)
    own = np.array(categories, object)
    names = sorted({one for one in categories if one is not None})
    found = {name: hits[(own == name) & ~np.isnan(hits)] for name in names}
    return {name: float(values.mean()) for name, values in found.items() if len(values)}


def categories_that_count(
    categories: Sequence[str | None], at_least: int = 1, drop: Collection[str] = ()
) -> list[str]:
    """Return the categories that enter a macro average, in alphabetical order.

    ARO drops symmetric relations, whose swapped captions are just as true (the list is only in a
    notebook of the authors), and pairs of attributes with fewer than 25 cases
    (``aro_datasets.py``).

    >>> categories_that_count(["on", "on", "near", "in", None], at_least=1, drop=["near"])
    ['in', 'on']

    Args:
        categories: category of each item, (items,); ``None`` for an item without one.
        at_least: smallest number of items that a category needs to count.
        drop: categories that do not count.
    """
    named = [one for one in categories if one is not None]
    names, counts = np.unique(np.array(named, dtype=object), return_counts=True)
    return [
        str(name)
        for name, count in zip(names, counts.tolist(), strict=True)
        if count >= at_least and name not in drop
    ]


def group_means(
    means: Mapping[str, float], groups: Mapping[str, Collection[str]]
) -> dict[str, float]:
    """Return the mean of the categories of each group; a group without any of them is left out.

    Papers that print SugarCrepe's replace, swap and add average the categories of each, and then
    these three.

    >>> group_means({"swap_obj": 0.5, "swap_att": 0.75}, {"swap": ["swap_obj", "swap_att"]})
    {'swap': 0.625}

    Args:
        means: mean of each category, by name.
        groups: categories of each group, by the group's name.
    """
    found = {}
    for name, members in groups.items():
        own = [means[one] for one in members if one in means]
        if own:
            found[name] = float(np.mean(own))
    return found


def _extremes(scores_NK: Any, truth_NK: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the score of each item's worst true caption, and of its best false one."""
    scores, truth = as_array(scores_NK), np.asarray(truth_NK)
    if scores.ndim != 2 or scores.shape != truth.shape or not len(scores):
        raise ValueError(f"scores and truth should be items x captions, not {scores.shape}")
    if not np.isin(truth, (TRUE, FALSE, ABSENT)).all():
        raise ValueError(f"a caption is {TRUE}, {FALSE} or {ABSENT} (true, false or absent)")
    finite(scores[truth != ABSENT], "scores")
    for what, value in (("true", TRUE), ("false", FALSE)):
        lacking = np.flatnonzero(~(truth == value).any(axis=1))
        if len(lacking):
            raise ValueError(f"item {lacking[0]} has no {what} caption")
    worst = np.where(truth == TRUE, scores, np.inf).min(axis=1)
    best = np.where(truth == FALSE, scores, -np.inf).max(axis=1)
    return worst, best


def _decide(worst_N: np.ndarray, best_N: np.ndarray, ties: str) -> np.ndarray:
    if ties not in WORTH:
        raise ValueError(f"ties={ties!r} is invalid: choose {', '.join(get_args(Ties))}")
    return np.where(worst_N == best_N, WORTH[ties], (worst_N > best_N).astype(np.float64))
