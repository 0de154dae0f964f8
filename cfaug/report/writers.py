"""Write a document in every format, side by side."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cfaug.report.document import NUMBERS, Document, Entry, Part, draw_figures
from cfaug.report.drawing import write_pdfs
from cfaug.report.page import Measure, write_page


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
     "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
     "–": "--", "±": r"$\pm$", "†": r"$\dagger$", "Δ": r"$\Delta$", "→": r"$\rightarrow$",
     "↓": r"$\downarrow$", "↑": r"$\uparrow$", "‡": r"$\ddagger$", "§": r"\S{}", "¶": r"\P{}",
     "λ": r"$\lambda$",
     "κ": r"$\kappa$", "α": r"$\alpha$", "×": r"$\times$"}
)  # fmt: skip
SIGNS = str.maketrans(
    {"↓": r"\downarrow ", "†": r"\dagger ", "‡": r"\ddagger ", "§": r"\S ", "¶": r"\P "}
)
"""Signs that need a formula."""


def to_latex(document: Document) -> str:
    """Return one ``table`` per part; the document's notes follow as comments."""
    tables = [_latex_table(part, document.title) for part in document.parts]
    notes = [f"% {' '.join(note.split())}" for note in document.notes]
    return "\n\n".join(["% \\usepackage{booktabs}", *tables, *notes]) + "\n"


def tex_text(text: str) -> str:
    """Escape text so that LaTeX prints it literally."""
    return " ".join(text.splitlines()).translate(LATEX_ESCAPES).replace("<=", r"$\leq$")


def _latex_table(part: Part, title: str) -> str:
    lines = []
    if any(name for name, _ in part.groups):
        spans = " & ".join(
            rf"\multicolumn{{{span}}}{{c}}{{{tex_text(name)}}}" for name, span in part.groups
        )
        lines.append(" & ".join([""] * len(part.labels) + [spans]) + r" \\")
    lines += [" & ".join(map(tex_text, [*part.labels, *part.columns])) + r" \\", r"\midrule"]
    for row, (labels, cells) in enumerate(part.rows):
        lines += [r"\midrule"] if row in part.rules else []
        lines.append(" & ".join([*map(tex_text, labels), *map(_latex_cell, cells)]) + r" \\")
    titles = [f"{text}." for text in (title, part.title) if text]
    caption = " ".join(map(tex_text, (*titles, *part.notes)))
    columns = "l" * len(part.labels) + "r" * len(part.columns)
    body = "\n".join(lines)
    return (
        "\\begin{table}\n\\centering\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n"
        f"\\end{{tabular}}\n\\caption{{{caption}}}\n\\end{{table}}"
    )


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
    for part in document.parts:
        blocks += [f"### {markdown_text(part.title)}"] if part.title else []
        body = [
            [*map(markdown_text, labels), *map(_markdown_cell, cells)]
            for labels, cells in part.rows
        ]
        blocks += [markdown_table(list(part.header), body), *map(markdown_text, part.notes)]
    for curve in document.curves:
        measure = Measure(curve.unit)
        body = [
            [markdown_text(name), f"{x:g}", measure.text(sum(v.values()) / len(v)), str(len(v))]
            for name, points in curve.series.items()
            for x, v in sorted(points.items())
        ]
        head = ["series", curve.x_title, curve.y_title, "seeds"]
        blocks += [f"### {markdown_text(curve.title)}", markdown_table(head, body)]
    if document.pictures:
        blocks.append(f"{len(document.pictures)} pictures: see report.html.")
    return "\n\n".join([*blocks, *map(markdown_text, document.notes)]) + "\n"


def markdown_text(text: str) -> str:
    """Escape text so that Markdown shows it literally."""
    return " ".join(text.splitlines()).translate(MARKDOWN_ESCAPES)


def markdown_table(head: list[str], body: list[list[str]]) -> str:
    """Return a Markdown table with aligned columns; the head is escaped here, the body is not."""
    named = [markdown_text(name) for name in head]
    widths = [max(3, *map(len, column)) for column in zip(named, *body, strict=True)]
    rows = [named, ["-" * width for width in widths], *body]
    padded = ([t.ljust(w) for t, w in zip(row, widths, strict=True)] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


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
                    yield [*where, measure.text(value), value, *[""] * (len(NUMBERS) - 1)]
