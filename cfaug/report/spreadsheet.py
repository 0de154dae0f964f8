"""Tables as CSV: one writer, and a document with one row per cell."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cfaug.report.document import NUMBERS, Document
from cfaug.report.numbers import Measure


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return CSV with numbers in full precision, ``nan`` as an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow(["" if isinstance(v, float) and math.isnan(v) else v for v in row])
    return text.getvalue()


def to_csv(document: Document) -> str:
    """Return a row per cell: part, source, row, column, text, and numbers in full precision."""
    return csv_text(["part", "source", "row", "column", "text", *NUMBERS], _rows(document))


def _rows(document: Document) -> Iterator[list[Any]]:
    for part in document.parts:
        source = "ours" if part.ours else "paper"
        for labels, cells in part.rows:
            row = " | ".join(label for label in labels if label)
            for i, cell in enumerate(cells):
                numbers = [cell.numbers.get(name, "") for name in NUMBERS]
                yield [part.title, source, row, part.column_name(i), cell.text, *numbers]
    for curve in document.curves:
        measure = Measure(curve.unit)
        for name, points in curve.series.items():
            for x, values in sorted(points.items()):
                for seed, value in sorted(values.items()):
                    where = [curve.title, "ours", f"{name} | seed {seed}", f"{curve.x_title} {x:g}"]
                    yield [
                        *where,
                        measure.text(value),
                        value,
                        *[""] * (len(NUMBERS) - 1),
                    ]
