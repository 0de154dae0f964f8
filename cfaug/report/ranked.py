"""Mark a column's best and second-best values bold and underlined."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from cfaug.core.types import Better
from cfaug.report.document import Entry

Row = tuple[tuple[str, ...], tuple[Entry, ...]]


def mark_best_two(
    rows: Sequence[Row], better: Sequence[Better | None], beside: Collection[int] = ()
) -> tuple[Row, ...]:
    """Mark the best of each column bold and the second best underlined.

    Values that print the same are marked the same: two equal best values are both bold, and the
    next one is second best.

    Args:
        rows: rows of a part; a cell is ranked by the ``value`` of its numbers, as printed.
        better: direction of each column; ``None`` for a column that is not ranked.
        beside: indices of rows that are not ranked, such as the unchanged texts.

    >>> rows = [(("a",), (Entry("0.5", numbers={"value": 0.5}),)),
    ...         (("b",), (Entry("0.7", numbers={"value": 0.7}),))]
    >>> [(cells[0].bold, cells[0].underlined) for _, cells in mark_best_two(rows, ["lower"])]
    [(True, False), (False, True)]
    """
    marks: dict[tuple[int, int], int] = {}
    for column, direction in enumerate(better):
        if direction is None:
            continue
        known: dict[str, float] = {}
        for number, (_, cells) in enumerate(rows):
            value = cells[column].numbers.get("value", math.nan)
            if number not in beside and not math.isnan(value):
                known.setdefault(cells[column].text, value)
        ordered = sorted(known, key=known.__getitem__, reverse=direction == "higher")[:2]
        places = {text: place for place, text in enumerate(ordered)}
        for number, (_, cells) in enumerate(rows):
            if number not in beside and cells[column].text in places:
                marks[number, column] = places[cells[column].text]
    return tuple(
        (
            labels,
            tuple(
                replace(
                    cell,
                    bold=marks.get((number, column)) == 0,
                    underlined=marks.get((number, column)) == 1,
                )
                for column, cell in enumerate(cells)
            ),
        )
        for number, (labels, cells) in enumerate(rows)
    )
