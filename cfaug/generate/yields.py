"""How many candidates became sets, by what the examples say of themselves, such as their grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfaug.generate.candidate_scoring import ScoredSlice
from cfaug.generate.sets import Winners
from cfaug.types import Proposal

COUNTS = ("sets", "candidates", "accepted", "without", "kept")
"""Of a value: caption sets, their candidates, those accepted, caption sets without any, and sets of
images that are kept."""

UNKNOWN = "(none)"
"""The value of an example that says nothing."""

Yields = dict[str, dict[str, int]]
"""Counts by name, by value, in the order in which the values come."""


def count_yields(
    by: str, proposals: Sequence[Proposal], whole: Sequence[ScoredSlice], winners: Winners
) -> Yields:
    """Count what became of some sets.

    Args:
        by: the name in ``Example.extra`` that divides them.
        proposals: of the shard.
        whole: every candidate of the sets that are counted.
        winners: those that are kept.
    """
    found: Yields = {}
    for one in whole:
        value = proposals[one.place].example.extra.get(by)
        of = found.setdefault(UNKNOWN if value is None else str(value), dict.fromkeys(COUNTS, 0))
        accepted = sum(not candidate.reason for candidate in one.candidates)
        of["sets"] += 1
        of["candidates"] += len(one.candidates)
        of["accepted"] += accepted
        of["without"] += not accepted
        of["kept"] += len(winners.get(one.place, ()))
    return found


def add_yields(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of what several shards say: ``{"by": NAME, "of": counts by value}``.

    Args:
        every: of each shard, at least one; all by the same name.
    """
    total: Yields = {}
    for one in every:
        for value, counts in one["of"].items():
            of = total.setdefault(value, dict.fromkeys(COUNTS, 0))
            for name in COUNTS:
                of[name] += counts[name]
    return {"by": every[0]["by"], "of": total}


def yield_lines(yields: Mapping[str, Any]) -> list[str]:
    r"""Return a table for a terminal.

    >>> counts = {"sets": 4, "candidates": 400, "accepted": 30, "without": 1, "kept": 24}
    >>> print("\n".join(yield_lines({"by": "grid", "of": {"race_gender": counts}})))
    grid         caption sets  without any  candidates  accepted         kept
    race_gender             4            1         400        30  7.50%    24
    """
    head = (yields["by"], "caption sets", "without any", "candidates", "accepted", "", "kept")
    rows = [
        (
            value, f"{of['sets']:,}", f"{of['without']:,}", f"{of['candidates']:,}",
            f"{of['accepted']:,}", f"{of['accepted'] / max(of['candidates'], 1):.2%}",
            f"{of['kept']:,}",
        )
        for value, of in yields["of"].items()
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in (head, *rows)
    ]
