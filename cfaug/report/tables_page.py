"""``tables/report.html``: every table that was made, on one page that opens offline."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from cfaug.errors import UserError
from cfaug.report.document import Document, read_document
from cfaug.report.figures import Bar, curve, grouped_bars
from cfaug.report.matching_gap import gap_figure
from cfaug.report.numbers import Measure
from cfaug.report.page import render, write_page

MARKS = (
    "Subscript or ±: standard deviation over seeds. Bold: best of its column. Underlined: better "
    "than its baseline by the paper's test (one-tailed independent t, p <= 0.05). †: better by the "
    "paired test over seeds, Holm-corrected over the whole table (p <= 0.05)."
)
BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")


@dataclass(frozen=True)
class Figured:
    """A document with its figures drawn."""

    document: Document
    figures: tuple[tuple[str, Markup, str], ...]


def write_tables_page(folder: Path) -> Path:
    """Collect every ``*.json`` of a folder of tables on ``report.html``, and return its path.

    Raises:
        UserError: naming the file that is no table of ours.
    """
    documents = sorted((read_document(file) for file in folder.glob("*.json")), key=_order)
    found = [_draw(document) for document in documents]
    return write_page(
        folder / "report.html", render("tables.html", title="Tables", documents=found, marks=MARKS)
    )


def _order(document: Document) -> tuple[str, bool, list[int], str]:
    """Return what documents are sorted by: paper, tables before figures, number."""
    paper = re.sub(r"(_figure)?_\d+$", "", document.name)
    numbers = [int(number) for number in re.findall(r"\d+", document.name)]
    return paper, "figure" in document.name, numbers, document.name


def _draw(document: Document) -> Figured:
    for picture in document.pictures:
        if not BASE64.fullmatch(picture.png):
            raise UserError(f"{document.name}: a picture is not base64")
    figures = [
        (one.title, curve(one.series, one.x_title, one.y_title, Measure(one.unit)), one.note)
        for one in document.curves
        if any(one.series.values())
    ]
    for one in document.bars:
        if one.groups:
            groups = {g: [_bar(*bar) for bar in bars] for g, bars in one.groups.items()}
            drawn = grouped_bars(groups, one.axis, Measure(one.unit), one.legend)
            figures.append((one.title, drawn, one.note))
    for gap in document.gaps:
        found = {name: np.array(values, np.float64) for name, values in gap.gaps.items()}
        figures.append(("", gap_figure(found, gap.title, gap.kind), gap.note))
    return Figured(document, tuple(figures))


def _bar(name: str, *numbers: float | None) -> Bar:
    value, low, high = (math.nan if number is None else number for number in numbers)
    return name, value, low, high
