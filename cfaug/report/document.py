"""The format-independent model of every table, and its files in every format, side by side.

A ``Document`` holds ``Part``s (a header, rows of ``Entry``s, notes), curves and pictures. It is
written as LaTeX, Markdown and CSV, as JSON, so that one page can collect tables that were made
separately, and by ``templates/parts.html`` and the terminal.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, product
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.json_records import from_json
from cfaug.core.safety.json_text import load_json
from cfaug.report import plots
from cfaug.report.charts import Bar, box_plot, gap_figure, grouped_bars, tradeoff_plot
from cfaug.report.drawing import Drawing, write_pdfs
from cfaug.report.page import FRACTION, Measure, write_page

NUMBERS = ("value", "sd", "n", "p_independent", "p_paired", "p_holm", "low", "high")
"""Names of the numbers that a cell may have besides its text; the CSV's columns."""
DAGGER = ("†",)
"""Superscript of a value that is better by the paired test, corrected over the table (Holm)."""


@dataclass(frozen=True)
class Entry:
    """One cell of a table.

    Attributes:
        sub: standard deviation, printed after ± or as a subscript; empty for none.
        underlined: whether it is better than its baseline by the paper's test.
        signs: signs printed directly after the text.
        numbers: known numbers, by their names in ``NUMBERS``, in full precision.
    """

    text: str
    sub: str = ""
    bold: bool = False
    underlined: bool = False
    signs: str = ""
    above: tuple[str, ...] = ()
    small: str = ""
    numbers: Mapping[str, float | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """One table.

    Attributes:
        labels: headers of the leading columns, which name a row.
        groups: headers above the value columns, each with the number of columns it spans, in order.
        rows: labels and cells of each row, as many as ``labels`` and ``columns``.
        ranked: whether bold and underlined mean best and second best of a column rather than a
            test.
    """

    title: str
    labels: tuple[str, ...]
    groups: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[Entry, ...]], ...]
    rules: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    ours: bool = True
    accents: tuple[int, ...] = ()
    ranked: bool = False

    def __post_init__(self) -> None:
        if self.groups and sum(span for _, span in self.groups) != len(self.columns):
            raise ValueError(f"{self.title}: the groups {self.groups} do not span {self.columns}")
        for labels, cells in self.rows:
            if len(labels) != len(self.labels) or len(cells) != len(self.columns):
                raise ValueError(f"{self.title}: row {labels} does not fit {self.columns}")

    def column_name(self, index: int) -> str:
        """Return a value column's header with its group: "Text Retrieval R@1"."""
        at = 0
        for name, span in self.groups:
            if index < at + span:
                return f"{name} {self.columns[index]}".strip()
            at += span
        return self.columns[index]

    @property
    def header(self) -> tuple[str, ...]:
        """One header per column, labels first, for formats with a single header line."""
        return (*self.labels, *(self.column_name(i) for i in range(len(self.columns))))

    @property
    def group_starts(self) -> frozenset[int]:
        """The value columns at which a group begins."""
        starts, at = [], 0
        for _, span in self.groups:
            starts.append(at)
            at += span
        return frozenset(starts)


Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A value column of a table: its header, how a row's cell is made, the header above it.

    Attributes:
        cell: a function that returns the cell of a row.
        group: the header above it and above its neighbours of the same group; empty for none.
    """

    name: str
    cell: Callable[[Row], Entry]
    group: str = ""


def text_column(name: str, text: Callable[[Row], str], group: str = "") -> Column[Row]:
    """Return a column of texts without marks or numbers."""
    return Column(name, lambda row: Entry(text(row)), group)


def make_part(
    title: str,
    labels: Sequence[str],
    columns: Sequence[Column[Row]],
    rows: Iterable[tuple[tuple[str, ...], Row]],
    notes: Iterable[str] = (),
    **more: Any,
) -> Part:
    """Return a table: a line per row, with its labels and a cell per column.

    Args:
        rows: the labels of each row, and the object that the columns take.
        more: ``rules``, ``ours``, ``accents`` and ``ranked`` of ``Part``.
    """
    cells = tuple(
        (row_labels, tuple(column.cell(row) for column in columns)) for row_labels, row in rows
    )
    names = tuple(column.name for column in columns)
    spans = [
        (name, len(list(group))) for name, group in groupby(columns, lambda column: column.group)
    ]
    groups = tuple(spans) if any(name for name, _ in spans) else ()
    return Part(title, tuple(labels), groups, names, cells, notes=tuple(notes), **more)


def plain_part(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Part:
    """Return a table of texts without marks; the first column names a row."""
    first, *names = head or ("",)
    body = tuple(((row[0],), tuple(map(Entry, row[1 : len(names) + 1]))) for row in rows)
    return Part("", (first,), (), tuple(names), body)


def rules_of(first: list[str]) -> tuple[int, ...]:
    """Return the rows at which the first label changes, where a line is drawn."""
    return tuple(i for i in range(1, len(first)) if first[i] != first[i - 1])


@dataclass(frozen=True)
class Curve:
    """Means over x with the seeds and an interval; drawn by ``cfaug.report.plots.curve``.

    Attributes:
        series: values of each series by x and seed, {name: {x: {seed: value}}}.
        chance: low end, mean and high end by chance, drawn behind the lines; ``None`` for no band.
    """

    title: str
    x_title: str
    y_title: str
    series: Mapping[str, Mapping[float, Mapping[int, float]]]
    note: str = ""
    unit: str = FRACTION
    chance: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class GapPlot:
    """Matching gaps of one model, ``{gap: values}``, for ``cfaug.report.charts.gap_figure``."""

    title: str
    kind: str
    gaps: Mapping[str, Sequence[float]]
    note: str = ""


@dataclass(frozen=True)
class BarPlot:
    """Groups of bars, as ``cfaug.report.charts.grouped_bars`` draws them.

    Attributes:
        groups: bars of each group, (name, value, low, high); ``null`` for no value or interval.
        legend: names of the bars of a group, printed above; empty for none.
        chance: low end, mean and high end by chance for each group, drawn behind its bars.
    """

    title: str
    axis: str
    groups: Mapping[str, Sequence[tuple[str, float | None, float | None, float | None]]]
    legend: tuple[str, ...] = ()
    note: str = ""
    unit: str = FRACTION
    chance: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class BoxPlot:
    """Distributions over named items, as ``cfaug.report.charts.box_plot`` draws them.

    Attributes:
        rows: values of each row by name, at least one value a row; the extremes are named.
        chance: low end, mean and high end by chance for each row, drawn behind it.
    """

    title: str
    axis: str
    rows: Mapping[str, Mapping[str, float]]
    note: str = ""
    unit: str = FRACTION
    chance: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Tradeoff:
    """Gains against costs, as ``cfaug.report.charts.tradeoff_plot`` draws them.

    Attributes:
        series: points of each series in the order of its line, (name, x by seed, y by seed).
    """

    title: str
    x_title: str
    y_title: str
    series: Mapping[str, Sequence[tuple[str, Mapping[int, float], Mapping[int, float]]]]
    note: str = ""
    units: tuple[str, str] = (FRACTION, FRACTION)


@dataclass(frozen=True)
class DocumentImage:
    """An image with its caption; ``png`` is base64."""

    caption: str
    png: str


@dataclass(frozen=True)
class Document:
    """Tables, curves and pictures that belong together.

    Attributes:
        name: stem of its files' names, such as ``wise_ft``.
        answer: sentence on what was found, with which the page opens; empty for none.
        pictures_first: whether a page shows the pictures above the tables.
        compared: hash of the files and settings that it compares; empty for a table of runs.
    """

    name: str
    title: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()
    curves: tuple[Curve, ...] = ()
    gaps: tuple[GapPlot, ...] = ()
    pictures: tuple[DocumentImage, ...] = ()
    bars: tuple[BarPlot, ...] = ()
    boxes: tuple[BoxPlot, ...] = ()
    tradeoffs: tuple[Tradeoff, ...] = ()
    answer: str = ""
    pictures_first: bool = False
    compared: str = ""

    def to_json(self) -> str:
        """Return the document as JSON."""
        content = asdict(self)
        # Fields added later are written only if used, so that other documents keep their bytes.
        added = [
            ([content], ("boxes", "tradeoffs", "answer", "compared")),
            (content["parts"], ("ranked",)),
            (content["bars"], ("chance",)),
            (content["curves"], ("chance",)),
        ]
        for records, names in added:
            for record, name in product(records, names):
                if not record[name]:
                    del record[name]
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def read_document(path: Path) -> Document:
    """Read a document that ``Document.to_json`` wrote."""
    try:
        content = load_json(require_regular(path).read_text(encoding="utf-8"))
        return from_json(Document, content)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{path} is not a table as cfaug table writes it ({error}): remove it, or make the "
            f"table again with `cfaug table {path.stem}`"
        ) from error


# The figures of a document, in the order in which its page shows them.

Shown = tuple[str, Drawing, str]
"""The text above a figure, the figure, and the text below it."""


def draw_figures(document: Document) -> list[Shown]:
    """Draw the curves, boxes, bars, trade-offs and gaps of a document that are not empty."""
    figures: list[Shown] = []
    for line in document.curves:
        if any(line.series.values()):
            drawn = plots.curve(
                line.series, line.x_title, line.y_title, Measure(line.unit), line.chance
            )
            figures.append((line.title, drawn, line.note))
    for box in document.boxes:
        if box.rows:
            drawn = box_plot(box.rows, box.axis, Measure(box.unit), box.chance)
            figures.append((box.title, drawn, box.note))
    for chart in document.bars:
        if chart.groups:
            groups: dict[str, list[Bar]] = {}
            for group, bars in chart.groups.items():
                groups[group] = []
                for name, *numbers in bars:
                    value, low, high = (math.nan if n is None else n for n in numbers)
                    groups[group].append((name, value, low, high))
            measure = Measure(chart.unit)
            drawn = grouped_bars(groups, chart.axis, measure, chart.legend, chart.chance)
            figures.append((chart.title, drawn, chart.note))
    for plot in document.tradeoffs:
        measures = (Measure(plot.units[0]), Measure(plot.units[1]))
        drawn = tradeoff_plot(plot.series, plot.x_title, plot.y_title, measures)
        figures.append((plot.title, drawn, plot.note))
    for gap in document.gaps:
        gaps = {name: np.array(values, np.float64) for name, values in gap.gaps.items()}
        figures.append(("", gap_figure(gaps, gap.title, gap.kind), gap.note))
    return figures


def write_document(document: Document, folder: Path) -> list[Path]:
    """Write ``<name>.tex``, ``.md``, ``.csv`` and ``.json``, whole or not at all; return the paths.

    ``.json`` is the document itself, from which the page of all tables is made. Its figures are
    ``<name>-1.pdf`` and so on.
    """
    texts = {
        "tex": to_latex(document), "md": to_markdown(document), "csv": to_csv(document),
        "json": document.to_json(),
    }  # fmt: skip
    files = [write_page(folder / f"{document.name}.{kind}", text) for kind, text in texts.items()]
    drawings = [drawing for _, drawing, _ in draw_figures(document)]
    return files + write_pdfs(drawings, folder, document.name)


# A document as LaTeX, a ``table`` per part, with ``booktabs`` only; everything is escaped.

LATEX_ESCAPES = str.maketrans(
    {"\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
     "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}",  # else — ¡ ¿ in OT1
     "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
     "–": "--", "±": r"$\pm$", "†": r"$\dagger$", "Δ": r"$\Delta$", "→": r"$\rightarrow$",
     "↓": r"$\downarrow$", "↑": r"$\uparrow$", "‡": r"$\ddagger$", "§": r"\S{}", "¶": r"\P{}",
     "λ": r"$\lambda$", "≤": r"$\leq$",
     "κ": r"$\kappa$", "α": r"$\alpha$", "×": r"$\times$"}
)  # fmt: skip
NARROW, WIDE = 44, 92
"""Letters of a line in one column of a page, and in both, at the size of the text."""
SIGNS = str.maketrans(
    {"↓": r"\downarrow ", "†": r"\dagger ", "‡": r"\ddagger ", "§": r"\S ", "¶": r"\P "}
)
"""Signs that need a formula."""


def to_latex(document: Document) -> str:
    """Return one ``table`` per part, with its notes below it; the document's notes are comments.

    A table that is too wide for one column of a page spans both: ``table*``.
    """
    blocks = ["% \\usepackage{booktabs}"]
    for number, part in enumerate(document.parts, 1):
        lines = []
        if any(name for name, _ in part.groups):
            spans = " & ".join(
                rf"\multicolumn{{{span}}}{{c}}{{{tex_text(name)}}}" for name, span in part.groups
            )
            lines.append(" & ".join([""] * len(part.labels) + [spans]) + r" \\")
            first = len(part.labels) + 1
            for name, span in part.groups:
                lines += [rf"\cmidrule(lr){{{first}-{first + span - 1}}}"] * bool(name)
                first += span
        lines += [" & ".join(map(tex_text, [*part.labels, *part.columns])) + r" \\", r"\midrule"]
        for row, (labels, cells) in enumerate(part.rows):
            lines += [r"\midrule"] if row in part.rules else []
            lines.append(" & ".join([*map(tex_text, labels), *map(_latex_cell, cells)]) + r" \\")
        titles = [f"{text}." for text in (document.title, part.title) if text]
        caption = " ".join(map(tex_text, titles))
        label = "tab:" + re.sub(r"[^A-Za-z0-9.-]+", "-", document.name)
        label += f"-{number}" if len(document.parts) > 1 else ""
        columns = "l" * len(part.labels) + "r" * len(part.columns)
        body = "\n".join(lines)
        notes = " ".join(map(tex_text, part.notes))
        below = (
            f"\\par\\smallskip\\parbox{{\\linewidth}}{{\\footnotesize {notes}}}\n" if notes else ""
        )
        heads = (*part.labels, *part.columns)
        texts = [heads, *((*labels, *map(_plain, cells)) for labels, cells in part.rows)]
        width = sum(max(map(len, column)) + 2 for column in zip(*texts, strict=True))
        kind = "table" if width <= NARROW else "table*"
        size = ""
        if width > WIDE:
            letters, space = ("footnotesize", 3) if width <= 1.2 * WIDE else ("scriptsize", 2)
            size = f"\\{letters}\\setlength{{\\tabcolsep}}{{{space}pt}}\n"
        blocks.append(
            f"\\begin{{{kind}}}\n\\centering\n\\caption{{{caption}}}\\label{{{label}}}\n{size}"
            f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n"
            f"\\end{{tabular}}\n{below}\\end{{{kind}}}"
        )
    blocks += [f"% {' '.join(note.split())}" for note in document.notes]
    return "\n\n".join(blocks) + "\n"


def _plain(cell: Entry) -> str:
    return f"{cell.text}{cell.sub}{cell.signs} {cell.small}".rstrip()


def tex_text(text: str) -> str:
    """Escape text so that LaTeX prints it literally."""
    return " ".join(text.splitlines()).replace("<=", "≤").translate(LATEX_ESCAPES)


def _latex_cell(cell: Entry) -> str:
    text = tex_text(cell.text)
    text = rf"\textbf{{{text}}}" if cell.bold else text
    text = rf"\underline{{{text}}}" if cell.underlined else text
    sub = cell.sub
    if sub and not re.fullmatch(r"[\d.]+", sub):  # upright in a formula: more than a number
        sub = "-" if sub == "–" else rf"\mathrm{{{tex_text(sub)}}}"
    sub = f"_{{{sub}}}" if sub else ""
    raised = [cell.signs.translate(SIGNS)] if cell.signs else []
    raised += [sign.translate(SIGNS).strip() for sign in cell.above]
    above = f"^{{{','.join(raised)}}}" if raised else ""
    small = f" {tex_text(cell.small)}" if cell.small else ""
    return (f"{text}${sub}{above}$" if sub or above else text) + small


# A document as Markdown; every string from outside is escaped.
#
# This is the only writer of tables that are made of a ``Document``. Cards (``cfaug.core.cards``)
# and the report on captions (``cfaug.editing.filters``) are prose in lower layers, with tables in
# the text, and escape more: a caption there could be a link or a heading.

MARKDOWN_ESCAPES = str.maketrans(
    {"|": r"\|", "_": r"\_", "*": r"\*", "<": "&lt;", ">": "&gt;", "`": r"\`"}
)


def to_markdown(document: Document) -> str:
    """Return a heading, a table per part with its notes, the curves as tables, and the notes."""
    blocks = [f"## {markdown_text(document.title)}"] if document.title else []
    for part in (*document.parts, *map(curve_part, document.curves)):
        blocks += [f"### {markdown_text(part.title)}"] if part.title else []
        body = [
            [*map(markdown_text, labels), *map(_markdown_cell, cells)]
            for labels, cells in part.rows
        ]
        head = list(map(markdown_text, part.header))
        widths = [max(3, *map(len, column)) for column in zip(head, *body, strict=True)]
        aligned = (
            [text.ljust(width) for text, width in zip(row, widths, strict=True)]
            for row in (head, ["-" * width for width in widths], *body)
        )
        blocks.append("\n".join(f"| {' | '.join(row)} |" for row in aligned))
        blocks += map(markdown_text, part.notes)
    if document.pictures:
        blocks.append(f"{len(document.pictures)} pictures: see report.html.")
    return "\n\n".join([*blocks, *map(markdown_text, document.notes)]) + "\n"


def curve_part(curve: Curve) -> Part:
    """Return the means of a curve as a table, for formats without figures."""
    measure = Measure(curve.unit)
    rows = tuple(
        (
            (name, f"{x:g}"),
            (Entry(measure.text(sum(values.values()) / len(values))), Entry(str(len(values)))),
        )
        for name, points in curve.series.items()
        for x, values in sorted(points.items())
    )
    return Part(curve.title, ("series", curve.x_title), (), (curve.y_title, "seeds"), rows)


def markdown_text(text: str) -> str:
    """Escape text so that Markdown shows it literally."""
    return " ".join(text.splitlines()).translate(MARKDOWN_ESCAPES)


def _markdown_cell(cell: Entry) -> str:
    text = markdown_text(cell.text)
    text = f"**{text}**" if cell.bold else text
    text = f"<u>{text}</u>" if cell.underlined else text
    text += markdown_text(cell.signs)
    text += f"<sup>{markdown_text(','.join(cell.above))}</sup>" if cell.above else ""
    text += f" ± {markdown_text(cell.sub)}" if cell.sub else ""
    return text + (f" {markdown_text(cell.small)}" if cell.small else "")


# Tables as CSV: one writer, and a document with one row per cell.


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
    rows: list[list[Any]] = []
    for part in document.parts:
        source = "ours" if part.ours else "paper"
        for labels, cells in part.rows:
            row = " | ".join(label for label in labels if label)
            for i, cell in enumerate(cells):
                numbers = [cell.numbers.get(name, "") for name in NUMBERS]
                rows.append([part.title, source, row, part.column_name(i), cell.text, *numbers])
    for curve in document.curves:
        measure = Measure(curve.unit)
        for name, points in curve.series.items():
            for x, values in sorted(points.items()):
                for seed, value in sorted(values.items()):
                    where = [curve.title, "ours", f"{name} | seed {seed}", f"{curve.x_title} {x:g}"]
                    rows.append([*where, measure.text(value), value, *[""] * (len(NUMBERS) - 1)])
    return csv_text(["part", "source", "row", "column", "text", *NUMBERS], rows)
