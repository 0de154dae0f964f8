"""Selection of candidates by named scores: thresholds, then ranking."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from cfaug.core.errors import UserError
from cfaug.core.read_with import GIVEN, ReadWith
from cfaug.core.types import Edit, Scores
from cfaug.core.validation import Positive, check_fields

SAME_TEXT, HALVING, UNSAFE = "same_text", "halving", "unsafe"
"""Reasons to reject a candidate before any score is compared with a threshold."""

Aggregate = Literal["min", "mean"]


@dataclass(frozen=True)
class Selection:
    """Thresholds, and the choice among the candidates that reach all of them.

    Args:
        minimum: the least acceptable value of each score, inclusive, in the order in which they are
            checked; ``None`` is no threshold.
        maximise: the score that ranks the accepted candidates; ``None`` keeps those with the lowest
            numbers.
        aggregate: the score of several edits of a set: the worst (``min``), or the ``mean``.
        rank_aggregate: ``aggregate`` for the score that ranks; ``None`` is the same. So every edit
            can be required to reach the thresholds while sets are ranked by their mean.
        keep: number of candidates to keep, the best first.
        per: the unit from which ``keep`` candidates are kept: a ``set`` (the candidates of one
            proposal) or a ``group`` (those of all its sets).
        reasons: {score: reason of its rejections}, where it differs from the name of the score.
        above: values that scores must exceed, checked after ``minimum``; ``None`` is no threshold.
        prefer: the tie-break between equally good candidates: the ``first`` or the ``last`` number.
            With ``maximise=None`` all are equally good.
        controls: kinds of edit without thresholds, such as a reconstruction: their only candidate
            is always kept, unless a safety checker flags it.

    Raises:
        UserError: if a threshold is not a finite number, or a choice or a count is invalid.
    """

    minimum: Mapping[str, float | None] = field(default_factory=dict)
    maximise: str | None = None
    aggregate: Aggregate = "min"
    keep: Positive = 1
    per: Literal["set", "group"] = "set"
    reasons: Mapping[str, str] = field(default_factory=dict)
    above: Mapping[str, float | None] = field(default_factory=dict)
    prefer: Literal["first", "last"] = "first"
    controls: Sequence[str] = ()
    rank_aggregate: Aggregate | None = None

    read_with: ClassVar[ReadWith] = {"rank_aggregate": {"maximise": GIVEN}}

    def __post_init__(self) -> None:
        object.__setattr__(self, "controls", tuple(self.controls))
        check_fields(self, "recipe.selection")

    @property
    def names(self) -> tuple[str, ...]:
        """The scores that the selection uses."""
        limits = (*self.minimum.items(), *self.above.items())
        asked = [name for name, least in limits if least is not None]
        return tuple(dict.fromkeys([*asked, *([self.maximise] if self.maximise else [])]))

    def check(self, names: Iterable[str]) -> None:
        """Refuse a score that no scorer gives.

        Args:
            names: names of all scores of the recipe's scorers.
        """
        there = list(names)
        for name in self.names:
            if name not in there:
                choices = ", ".join(there) or "none: the recipe has no scorer"
                raise UserError(
                    f"recipe.selection: no scorer gives the score {name!r}; there are {choices}"
                )

    def pool(self, value: float | Sequence[float]) -> float:
        """Return a set's score: a single number, or the worst or mean of its edits' scores."""
        return _pool(value, self.aggregate)

    def pool_rank(self, value: float | Sequence[float]) -> float:
        """Return a set's score for ranking."""
        return _pool(value, self.rank_aggregate or self.aggregate)

    def pool_all(self, scores: Scores) -> dict[str, float]:
        """Return the set's scores by name; a score without any value is left out."""
        return {
            name: self.pool_rank(value) if name == self.maximise else self.pool(value)
            for name, value in scores.items()
            if value != ()
        }

    def find_margins(self, scores: Scores) -> dict[str, float]:
        """Return each known score minus its threshold."""
        limits = (*self.minimum.items(), *self.above.items())
        asked = {name: least for name, least in limits if least is not None}
        return {
            name: self.pool(scores[name]) - least
            for name, least in asked.items()
            if scores.get(name, ()) != ()
        }

    def find_miss(self, scores: Scores) -> str:
        """Return why the known scores reject a candidate, "" if they do not.

        Missing scores are ignored, so that the first scores can end the scoring early.
        """
        for limits, misses in ((self.minimum, operator.lt), (self.above, operator.le)):
            for name, least in limits.items():
                if least is None or scores.get(name, ()) == ():
                    continue
                if misses(self.pool(scores[name]), least):
                    return self.reasons.get(name, name)
        return ""

    def is_control(self, edits: Iterable[Edit | None]) -> bool:
        """Return whether a proposal has edits and all of them are controls."""
        kinds = {edit.kind for edit in edits if edit is not None}
        return bool(kinds) and kinds <= set(self.controls)

    def reject(self, scores: Scores) -> str:
        """Return the first threshold that a candidate misses, "" if it is accepted."""
        reason = self.find_miss(scores)
        if not reason:
            for name in self.names:
                if scores.get(name, ()) == ():
                    raise UserError(
                        f"recipe.selection: a candidate has no score {name!r} (a single text has "
                        "no edit to compare); leave that score out"
                    )
        return reason

    def rank(self, accepted: Sequence[tuple[int, int, Scores]]) -> list[int]:
        """Return the numbers of accepted candidates, the best first.

        Equal scores go to the larger seed, as in InstructPix2Pix's code, then by number as
        ``prefer`` says: candidates of a tree share a seed.

        Args:
            accepted: (number, seed, scores) of each candidate.
        """

        def key(one: tuple[int, int, Scores]) -> tuple[float, int, int]:
            number, seed, scores = one
            place = number if self.prefer == "first" else -number
            if self.maximise is None:
                return 0.0, 0, place
            return -self.pool_rank(scores[self.maximise]), -seed, place

        return [number for number, _, _ in sorted(accepted, key=key)]

    def best(self, accepted: Sequence[tuple[int, int, Scores]]) -> list[int]:
        """Return the numbers of the candidates to keep from one set or group, the best first."""
        return self.rank(accepted)[: self.keep]


def _pool(value: float | Sequence[float], aggregate: Aggregate) -> float:
    if isinstance(value, int | float):
        return value
    return min(value) if aggregate == "min" else math.fsum(value) / len(value)
