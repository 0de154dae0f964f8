"""Base classes of all papers' tables and figures: texts, the paper's own part, our models.

Arguments of ``PaperTable`` and ``ModelsTable`` are described only there, not again for each table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import (
    BarPlot,
    BoxPlot,
    Curve,
    Document,
    DocumentImage,
    Entry,
    Part,
    Tradeoff,
)
from cfaug.report.items import Items
from cfaug.report.paper_answers import Models, read_answers
from cfaug.report.published import published

Answers = TypeVar("Answers")


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table or figure of a paper.

    Args:
        name: the name of the output files, and of the paper's numbers if it has any.
        title: the title printed at the top.
        paper: the source of the paper's numbers or figure; empty for a table that is not in the
            paper.
        says: the paper's statement about a figure without printed numbers; empty for a table.
        commands: the commands that make the data of the table.
        notes: notes printed below everything.
        partial: whether to leave out missing data instead of failing.
    """

    name: str
    title: str
    paper: str = ""
    says: str = ""
    commands: Sequence[str] = ()
    notes: Sequence[str] = ()
    partial: bool = False

    def require(self, found: object, *lacking: str) -> None:
        """Refuse a table without data.

        Args:
            found: the data; any truthy value is enough.
            lacking: descriptions of the missing data, for the error.

        Raises:
            MissingError: if nothing was found, unless the table is partial.
        """
        if not found and not self.partial:
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
    ) -> Document:
        """Return the document of these parts and figures.

        Args:
            parts: the tables, in order.
            bars: bar plots of the page.
            boxes: box plots of the page.
            curves: curves of the page.
            pictures: pictures of the page.
            tradeoffs: trade-off plots of the page.
            notes: notes of this document, printed below everything, before the paper's statement
                about a figure and the table's own notes.
        """
        said = (f"{self.paper}: {self.says}",) if self.says else ()
        return Document(
            self.name, self.title, parts, (*notes, *said, *self.notes), curves=tuple(curves),
            pictures=tuple(pictures), bars=tuple(bars), boxes=tuple(boxes),
            tradeoffs=tuple(tradeoffs),
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
            entry: a function that formats a value, given its row and the value.
            column: a function that formats the header of a column of values.
        """
        found = published(self.name)
        rows = tuple(
            ((row[key],), tuple(entry(row, value) for value in row["values"]))
            for row in found["rows"]
        )
        columns = tuple(map(column, found["columns"]))
        return Part(self.paper, (label,), (), columns, rows, notes=(found["note"],), ours=False)


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
        """Return the answers of each model, one per checkpoint, with the checkpoint's folder.

        Args:
            runs: all runs.
            wrap: a function that makes answers from a model's printed name and its items.

        Raises:
            UserError: if items cannot be read.
        """
        return read_answers(runs.root, self.benchmark, self.models, wrap)
