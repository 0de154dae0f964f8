"""Base classes of all papers' tables and figures: texts, the paper's own part, our models.

Arguments of ``PaperTable`` and ``ModelsTable`` are described only there, not again for each table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from cfaug.core.errors import UserError
from cfaug.core.plugins import plugin_files
from cfaug.core.safety.json_text import load_json
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import (
    BarPlot,
    BoxPlot,
    Column,
    Curve,
    Document,
    DocumentImage,
    Entry,
    Part,
    Shown,
    Tradeoff,
    draw_figures,
    make_part,
    read_document,
)
from cfaug.report.items import Items, benchmarks_with_items, read_items
from cfaug.report.page import render, write_page

Answers = TypeVar("Answers")


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table or figure of a paper.

    Args:
        name: the name of the output files, and of the paper's numbers if it has any.
        paper: the source of the paper's numbers or figure; empty for a table that is not in the
            paper.
        claim: the paper's statement about a figure without printed numbers; empty for a table.
        partial: whether to leave out missing data instead of failing.
    """

    name: str
    title: str
    """the heading"""
    paper: str = ""
    claim: str = ""
    commands: Sequence[str] = ()
    """the commands that make what it needs"""
    notes: Sequence[str] = ()
    """sentences under the table"""
    partial: bool = False

    def require(self, data: object, *lacking: str) -> None:
        """Refuse a table without data.

        Args:
            data: the data; any truthy value is enough.

        Raises:
            MissingError: if nothing was found, unless the table is partial.
        """
        if not data and not self.partial:
            raise MissingError(self.name, lacking, self.commands)

    def document(
        self,
        *parts: Part,
        bars: Sequence[BarPlot] = (),
        boxes: Sequence[BoxPlot] = (),
        curves: Sequence[Curve] = (),
        pictures: Sequence[DocumentImage] = (),
        tradeoffs: Sequence[Tradeoff] = (),
        notes: Sequence[str] = (),
        answer: str = "",
    ) -> Document:
        """Return the document of these parts and figures.

        Args:
            notes: notes of this document, printed below everything, before the paper's statement
                about a figure and the table's own notes.
            answer: sentence on what was found, with which the page opens.
        """
        claims = (f"{self.paper}: {self.claim}",) if self.claim else ()
        return Document(
            self.name, self.title, parts, (*notes, *claims, *self.notes), curves=tuple(curves),
            pictures=tuple(pictures), bars=tuple(bars), boxes=tuple(boxes),
            tradeoffs=tuple(tradeoffs), answer=answer,
        )  # fmt: skip

    def printed(
        self,
        label: str,
        key: str,
        entry: Callable[[Mapping[str, Any], Any], Entry],
        column: Callable[[str], str] = str,
    ) -> Part:
        """Return the paper's printed numbers.

        Args:
            label: the header of the column that names the rows.
            key: the key of the numbers that names a row.
            column: a function that formats the header of a column of values.
        """
        paper = published(self.name)

        def cell(at: int, row: Mapping[str, Any]) -> Entry:
            return entry(row, row["values"][at])

        columns = [
            Column(column(name), partial(cell, at)) for at, name in enumerate(paper["columns"])
        ]
        rows = [((row[key],), row) for row in paper["rows"]]
        return make_part(self.paper, (label,), columns, rows, [paper["note"]], ours=False)


@dataclass(frozen=True, kw_only=True)
class ModelsTable(PaperTable):
    """A table of models' answers to the items of a benchmark.

    Args:
        benchmark: the benchmark of the items, or the end of its name.
        models: {printed name: checkpoints}; ``None`` uses all models with answers.
    """

    benchmark: str
    models: Models | None = None

    def answers(
        self, runs: Runs, wrap: Callable[[str, Items], Answers]
    ) -> dict[str, list[tuple[Path, Answers]]]:
        """Return the answers of each model, one per checkpoint, with the checkpoint's folder."""
        return read_answers(runs.root, self.benchmark, self.models, wrap)


# Models' answers to the items of a benchmark under ``paths.runs``, for tables.

Models = Mapping[str, str | Sequence[str]]
"""{printed name: folders of checkpoints below ``paths.runs``, or patterns of them}."""
EVERYTHING = "*/*/seed=*"


def read_answers(
    root: Path,
    benchmark: str,
    models: Models | None,
    wrap: Callable[[str, Items], Answers],
    setting: str = "table.benchmark",
) -> dict[str, list[tuple[Path, Answers]]]:
    """Return the answers of each model, one per checkpoint.

    Args:
        benchmark: the benchmark's name, or the end of it.
        models: the models to read; ``None`` reads every checkpoint with answers, each as a model.
        setting: the setting that names the benchmark, for messages.
    """

    def matches(pattern: str) -> list[Path]:
        return sorted(folder for folder in root.glob(pattern) if folder.is_dir())

    named: dict[str, list[Path]] = {}
    if models is None:
        # A checkpoint is named by its arm, with its experiment or seed if others share the arm.
        every = matches(EVERYTHING)
        for folder in every:
            arm, experiment = folder.parent.name, folder.parent.parent.name
            alike = [other.parent.parent.name for other in every if other.parent.name == arm]
            name = arm if len(alike) == 1 else f"{arm}, {folder.name}"
            named[name if {*alike} == {experiment} else f"{experiment}/{name}"] = [folder]
    else:
        for name, patterns in models.items():
            named[name] = [
                folder
                for pattern in ([patterns] if isinstance(patterns, str) else patterns)
                for folder in matches(
                    pattern if Path(pattern).name.startswith("seed=") else f"{pattern}/seed=*"
                )
            ]
    answers: dict[str, list[tuple[Path, Answers]]] = {}
    for name, folders in named.items():
        for folder in folders:
            names = [item for item in benchmarks_with_items(folder) if item.endswith(benchmark)]
            if benchmark in names:  # a full name is not a suffix of another
                names = [benchmark]
            if len(names) > 1:
                raise UserError(
                    f"{folder} has answers to {', '.join(names)}: name one, as in "
                    f"{setting}={names[0]}"
                )
            items = read_items(folder, names[0]) if names else None
            if items is not None:
                answers.setdefault(name, []).append((folder, wrap(name, items)))
    return answers


# The numbers that papers print: ``published/<name>.json`` of a plug-in, a file per table.
#
# A file has ``columns``, ``rows`` and ``note``. A row has ``values``, one per column: a number,
# [mean, standard deviation], or ``null`` if the paper prints no number; every other key names the
# row.


def published(name: str) -> Mapping[str, Any]:
    """Return a paper's numbers for one table."""
    files = {file.stem: file for file in plugin_files("published/*.json")}
    if name not in files:
        raise UserError(f"no numbers of {name}; there are {', '.join(sorted(files))}")
    return _load_numbers(files[name])


@cache
def _load_numbers(file: Path) -> Mapping[str, Any]:
    content: Mapping[str, Any] = load_json(file.read_text(encoding="utf-8"))
    return content


# ``tables/report.html``: all tables on one page that opens offline.

MARKS = (
    "±: standard deviation over seeds. Bold: best of its column. Underlined: better "
    "than its baseline by the paper's test (one-tailed independent t, p <= 0.05). †: better by the "
    "paired test over seeds, Holm-corrected over the whole table (p <= 0.05)."
)
"""Legend of the marks in tables that test arms over seeds; other tables explain theirs in notes."""


def write_tables_page(folder: Path) -> Path:
    """Collect every ``*.json`` of a folder of tables on ``report.html``, and return its path."""
    documents = sorted((read_document(file) for file in folder.glob("*.json")), key=_order)
    drawn: list[tuple[Document, list[Shown]]] = []
    for document in documents:
        if not all(
            re.fullmatch(r"[A-Za-z0-9+/=\s]*", picture.png) for picture in document.pictures
        ):
            raise UserError(f"{document.name}: a picture is not base64")
        drawn.append((document, draw_figures(document)))
    # The first figure, of a document with an answer if there is one, moves to the page's head.
    opening = None
    for document, figures in sorted(drawn, key=lambda pair: not pair[0].answer):
        if figures:
            title, drawing, note = figures.pop(0)
            opening = (title or document.title, drawing, note)
            break
    # Those that test arms over seeds, as printed by ``print_cell``.
    tested = [
        document.name
        for document in documents
        if any(
            (cell.underlined and not part.ranked)
            or cell.numbers.keys() & {"p_independent", "p_paired", "p_holm"}
            for part in document.parts
            for _, cells in part.rows
            for cell in cells
        )
    ]
    text = render(
        "tables.html",
        title="Tables",
        documents=drawn,
        opening=opening,
        answers=[document.answer for document in documents if document.answer],
        papers=len({_paper(document) for document in documents}),
        tested=tested,
        marks=MARKS,
    )
    return write_page(folder / "report.html", text)


def _order(document: Document) -> tuple[str, bool, bool, list[int], str]:
    """Return a document's sort key: paper, numbered ones first, tables before figures, number."""
    numbers = [int(number) for number in re.findall(r"\d+", document.name)]
    return _paper(document), not numbers, "figure" in document.name, numbers, document.name


def _paper(document: Document) -> str:
    return re.sub(r"(_figure)?_(\d+|[a-z]+)$", "", document.name)
