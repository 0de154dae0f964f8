"""``tables/report.html``: all tables on one page that opens offline."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cfaug.errors import UserError
from cfaug.report.bar_figure import Bar, grouped_bars
from cfaug.report.box_figure import box_plot
from cfaug.report.document import Document, read_document
from cfaug.report.figures import curve
from cfaug.report.matching_gap import gap_figure
from cfaug.report.numbers import Measure
from cfaug.report.page import render, write_page
from cfaug.report.plots import Drawing
from cfaug.report.tradeoff_figure import tradeoff_plot

MARKS = (
    "±: standard deviation over seeds. Bold: best of its column. Underlined: better "
    "than its baseline by the paper's test (one-tailed independent t, p <= 0.05). †: better by the "
    "paired test over seeds, Holm-corrected over the whole table (p <= 0.05)."
)
"""Legend of the marks in tables that test arms over seeds; other tables explain theirs in notes."""

TESTS = ("p_independent", "p_paired", "p_holm")
PAPER = re.compile(r"(_figure)?_(\d+|[a-z]+)$")
"""The part of a document's name after the paper's name."""

BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")


@dataclass(frozen=True)
class Figured:
    """A document with its figures drawn."""

    document: Document
    figures: tuple[tuple[str, Drawing, str], ...]


def write_tables_page(folder: Path) -> Path:
    """Collect every ``*.json`` of a folder of tables on ``report.html``, and return its path.

    Raises:
        UserError: naming the file that is not a table of ours.
    """
    documents = sorted((read_document(file) for file in folder.glob("*.json")), key=_order)
    text = render(
        "tables.html",
        title="Tables",
        documents=[_draw(document) for document in documents],
        papers=len({_paper(document) for document in documents}),
        tested=[document.name for document in documents if _is_tested(document)],
        marks=MARKS,
    )
    return write_page(folder / "report.html", text)


def _order(document: Document) -> tuple[str, bool, bool, list[int], str]:
    """Return a document's sort key: paper, numbered ones first, tables before figures, number."""
    numbers = [int(number) for number in re.findall(r"\d+", document.name)]
    return _paper(document), not numbers, "figure" in document.name, numbers, document.name


def _paper(document: Document) -> str:
    return PAPER.sub("", document.name)


def _is_tested(document: Document) -> bool:
    """Return whether a document tests arms over seeds, as printed by ``measured_cell``."""
    cells = [(part, cell) for part in document.parts for _, own in part.rows for cell in own]
    return any(
        (cell.underlined and not part.ranked) or cell.numbers.keys() & {*TESTS}
        for part, cell in cells
    )


def _draw(document: Document) -> Figured:
    for picture in document.pictures:
        if not BASE64.fullmatch(picture.png):
            raise UserError(f"{document.name}: a picture is not base64")
    figures = [
        (
            one.title,
            curve(one.series, one.x_title, one.y_title, Measure(one.unit), one.chance),
            one.note,
        )
        for one in document.curves
        if any(one.series.values())
    ]
    for box in document.boxes:
        if box.rows:
            drawn = box_plot(box.rows, box.axis, Measure(box.unit), box.chance)
            figures.append((box.title, drawn, box.note))
    for one in document.bars:
        if one.groups:
            groups = {g: [_bar(*bar) for bar in bars] for g, bars in one.groups.items()}
            drawn = grouped_bars(
                groups, one.axis, Measure(one.unit), one.legend, one.chance, one.logarithmic
            )
            figures.append((one.title, drawn, one.note))
    for plot in document.tradeoffs:
        measures = (Measure(plot.units[0]), Measure(plot.units[1]))
        drawn = tradeoff_plot(plot.series, plot.x_title, plot.y_title, measures)
        figures.append((plot.title, drawn, plot.note))
    for gap in document.gaps:
        found = {name: np.array(values, np.float64) for name, values in gap.gaps.items()}
        figures.append(("", gap_figure(found, gap.title, gap.kind), gap.note))
    return Figured(document, tuple(figures))


def _bar(name: str, *numbers: float | None) -> Bar:
    value, low, high = (math.nan if number is None else number for number in numbers)
    return name, value, low, high
