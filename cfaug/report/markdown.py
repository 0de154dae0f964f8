"""A document as Markdown; every string from outside is escaped.

This is the only writer of tables that are made of a ``Document``. Cards (``cfaug.core.cards``) and
the report on captions (``cfaug.editing.report``) are prose in lower layers, with tables in the
text, and escape more: a caption there could be a link or a heading.
"""

from __future__ import annotations

from cfaug.report.document import Curve, Document, Entry, Part
from cfaug.report.numbers import Measure

MARKDOWN_ESCAPES = str.maketrans(
    {"|": r"\|", "_": r"\_", "*": r"\*", "<": "&lt;", ">": "&gt;", "`": r"\`"}
)


def to_markdown(document: Document) -> str:
    """Return a heading, a table per part with its notes, the curves as tables, and the notes."""
    blocks = [f"## {markdown_text(document.title)}"] if document.title else []
    for part in document.parts:
        blocks += [f"### {markdown_text(part.title)}"] if part.title else []
        blocks += [_markdown_table(part), *map(markdown_text, part.notes)]
    blocks += map(_curve, document.curves)
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


def _markdown_table(part: Part) -> str:
    body = [
        [*map(markdown_text, labels), *map(_markdown_cell, cells)] for labels, cells in part.rows
    ]
    return markdown_table(list(part.header), body)


def _markdown_cell(cell: Entry) -> str:
    text = markdown_text(cell.text)
    text = f"**{text}**" if cell.bold else text
    text = f"<u>{text}</u>" if cell.underlined else text
    text += markdown_text(cell.signs)
    text += f"<sup>{markdown_text(','.join(cell.above))}</sup>" if cell.above else ""
    text += f" ± {markdown_text(cell.sub)}" if cell.sub else ""
    return text + (f" {markdown_text(cell.small)}" if cell.small else "")


def _curve(curve: Curve) -> str:
    measure = Measure(curve.unit)
    body = [
        [markdown_text(name), f"{x:g}", measure.text(sum(v.values()) / len(v)), str(len(v))]
        for name, points in curve.series.items()
        for x, v in sorted(points.items())
    ]
    head = ["series", curve.x_title, curve.y_title, "seeds"]
    return f"### {markdown_text(curve.title)}\n\n{markdown_table(head, body)}"
