"""Groups of questions: the share of groups that are answered without a mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cfaug.cfmm.answering import group_accuracies, whole_groups
from cfaug.core.question_sets import GROUPS, AskedImage, AskedQuestion
from cfaug.core.types import Outcome

GROUP, GROUP_PLACES = "group", ("question", "image")
"""Keys in a question's ``extra``: its group, and its place among two questions and two images."""

SQUARE = Counter({(0, 0): 1, (0, 1): 1, (1, 0): 1, (1, 1): 1})
"""The places of a whole group, question by question."""

GROUP_METRICS = ("q_acc", "f_acc")
"""Valid names in a question's ``extra["groups"]``: see ``cfaug.core.question_sets.GROUPS``."""


@dataclass(frozen=True)
class QuestionRow:
    """A question of a set, with its image.

    Attributes:
        image: the image the question is about.
        question: the question, with its options and its right answer.
        left_out: the reason if the question is not asked, else empty.
    """

    image: AskedImage
    question: AskedQuestion
    left_out: str = ""

    @property
    def name(self) -> str:
        """The question's name in the items."""
        return f"{self.image.key}/{self.question.id}"


def group_columns(
    rows: Sequence[QuestionRow], right: np.ndarray, prefix: str = ""
) -> dict[str, np.ndarray]:
    """Return the columns of groups, 1 or 0 at the first question of each: see ``whole_groups``.

    Args:
        rows: the questions.
        right: 1 if a question is answered correctly, else 0; NaN if it was left out, (questions,).
        prefix: a prefix of the columns' names, such as ``blind_``.
    """
    found = {}
    for metric in GROUP_METRICS:
        names = [_group(row, metric) for row in rows]
        if any(name is not None for name in names):
            found[f"{prefix}{metric}"] = whole_groups(right, names)
    return found


def _group(row: QuestionRow, metric: str) -> str | None:
    named = row.question.extra.get(GROUPS)
    found = named.get(metric) if isinstance(named, Mapping) else None
    return None if found is None else str(found)


def group_outcomes(
    name: str, rows: Sequence[QuestionRow], right: np.ndarray, prefix: str
) -> list[Outcome]:
    """Return the share of groups without a mistake, and NaturalBench's accuracies where they apply.

    Groups with a question that was left out do not count.

    Args:
        name: the benchmark's name.
        rows: the questions.
        right: 1 if a question is answered correctly, else 0; NaN if it was left out, (questions,).
        prefix: a prefix of the metrics' names, such as ``blind_``.
    """
    groups: dict[str, list[tuple[tuple[object, ...], float]]] = {}
    for row, value in zip(rows, right.tolist(), strict=True):
        if (group := row.question.extra.get(GROUP)) is not None:
            places = tuple(row.question.extra.get(one) for one in GROUP_PLACES)
            groups.setdefault(str(group), []).append((places, value))
    whole = [
        own
        for own in groups.values()
        if len(own) > 1 and not np.isnan([value for _, value in own]).any()
    ]
    named = [
        Outcome(name, column, float(counted.mean()), counted.size)
        for column, values in group_columns(rows, right, prefix).items()
        if (counted := values[~np.isnan(values)]).size
    ]
    if not whole:
        return named
    if all(Counter(places for places, _ in own) == SQUARE for own in whole):
        cells = [[dict(own)[place] for place in SQUARE] for own in whole]
        found = group_accuracies(np.array(cells).reshape(-1, 2, 2).astype(bool))
        del found["acc"]
    else:
        found = {"g_acc": float(np.mean([all(value for _, value in own) for own in whole]))}
    return named + [
        Outcome(name, f"{prefix}{metric}", value, len(whole)) for metric, value in found.items()
    ]
