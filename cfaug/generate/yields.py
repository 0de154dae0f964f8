"""Counts of candidates that became sets, by an entry of the examples, such as their grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfaug.core.types import Proposal
from cfaug.generate.candidate_scoring import ScoredSlice
from cfaug.generate.sets import Winners

COUNTS = ("sets", "candidates", "accepted", "without", "kept")
"""The counts of a value: caption sets, their candidates, accepted candidates, caption sets without
any accepted candidate, and kept sets of images."""

UNKNOWN = "(none)"
"""The value of an example without the entry."""

Yields = dict[str, dict[str, int]]
"""Counts by value and name, in the order in which the values occur."""


def count_yields(
    by: str, proposals: Sequence[Proposal], whole: Sequence[ScoredSlice], winners: Winners
) -> Yields:
    """Count the results of some sets.

    Args:
        by: the name in ``Example.extra`` by whose values the sets are counted.
        proposals: the proposals of the shard.
        whole: all candidates of the sets to count.
        winners: the kept candidates of each set.
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
    """Return the sum of several shards' yields: ``{"by": NAME, "of": counts by value}``.

    Args:
        every: the yields of each shard, at least one, all with the same ``by``.
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
