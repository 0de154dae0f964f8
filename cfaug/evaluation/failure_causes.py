"""Why a model fails after an edit: is what the edit brings rare in its training data, or common?

After SDRS (arXiv 2605.00832), which tells gaps in coverage from reliance on what goes together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.validation import Share, check_fields
from cfaug.editing.sentence import split
from cfaug.evaluation.failures import Cause, ModelFailure

if TYPE_CHECKING:
    from cfaug.data.index import Index


@dataclass(frozen=True)
class CauseRule:
    """What the training data are, and how rare a level has to be for a failure of coverage.

    Args:
        training: the source that a checkpoint was trained on, in any form that ``data.real``
            takes; ``None`` names no cause. Of finished runs it is known, and not given.
        rare: the share of training examples below which the words after an edit are rare.
    """

    training: str | None = None
    rare: Share = 0.01

    def __post_init__(self) -> None:
        check_fields(self, "failure_causes")


def name_causes(
    failures: Sequence[ModelFailure], training: Sequence[tuple[Index, np.ndarray]], rare: float
) -> tuple[ModelFailure, ...]:
    """Return failures with their cause, by how often training captions name the words after.

    A failure is one of ``coverage`` if less than ``rare`` of the training examples, of any class,
    name them, else one of ``reliance``. Where the captions name neither the words before nor those
    after, as captions that leave out every background do, they say nothing, and there is no cause.

    Args:
        training: the training examples, each as an index and its rows, integers (rows,); a row
            counts as often as it is named.
    """
    texts: list[str] = []
    counts: list[np.ndarray] = []
    labels: list[str | None] = []
    for index, rows in training:
        distinct, times = np.unique(rows, return_counts=True)
        texts += [_pad(index.text(row)) for row in distinct.tolist()]
        labels += [index.label(row) for row in distinct.tolist()]
        counts.append(times)
    weights = np.concatenate(counts) if counts else np.zeros(0, np.int64)

    def find_share(words: str, classes: Sequence[str] = ()) -> float | None:
        """Return the share of examples that name some words; ``None`` without any example."""
        counted = np.array([not classes or label in classes for label in labels], bool) * weights
        if not words.strip() or not counted.sum():
            return None
        named = np.array([_pad(words) in text for text in texts], bool)
        return float((named * counted).sum() / counted.sum())

    described = []
    for failure in failures:
        before, after = find_share(failure.before), find_share(failure.after)
        cause: Cause | None = None
        if after is not None and (after or before):
            cause = "coverage" if after < rare else "reliance"
        in_class = find_share(failure.after, failure.labels) if failure.labels else None
        described.append(replace(failure, cause=cause, seen=after, seen_in_class=in_class))
    return tuple(described)


def _pad(text: str) -> str:
    """Return the words of a text in lower case, with a space before and after each."""
    return f" {' '.join(word.lower() for word in split(text).words)} "
