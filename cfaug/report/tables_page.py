"""``tables/report.html``: all tables on one page that opens offline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.report.document import Document, read_document
from cfaug.report.document_figures import Shown, draw_figures
from cfaug.report.page import render, write_page

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
    figures: Sequence[Shown]


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
    return Figured(document, draw_figures(document))
