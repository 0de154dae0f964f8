"""A document as Markdown, LaTeX and CSV; every string from outside is escaped."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from cfaug.report.document import NUMBERS, Curve, Document, Entry
from cfaug.report.layout import markdown_table, markdown_text, tex_text
from cfaug.report.page import write_page

MARKS = (
    "Subscript or ±: standard deviation over seeds. Bold: best of its column. Underlined: better "
    "than its baseline by the paper's test (one-tailed independent t, p <= 0.05). †: better by the "
    "paired test over seeds, Holm-corrected over the whole table (p <= 0.05)."
)


def to_markdown(document: Document) -> str:
    """Return Markdown: a heading, a table per part with its notes, the curves as tables."""
    parts = [f"## {markdown_text(document.title)}"]
    for part in document.parts:
        head = [*part.labels, *(part.column_name(i) for i in range(len(part.columns)))]
        body = [
            [*map(markdown_text, labels), *(_markdown_entry(cell) for cell in cells)]
            for labels, cells in part.rows
        ]
        parts += [f"### {markdown_text(part.title)}", markdown_table(head, body)]
        parts += [markdown_text(note) for note in part.notes]
    parts += [_markdown_curve(curve) for curve in document.curves]
    if document.pictures:
        parts.append(f"{len(document.pictures)} pictures: see report.html.")
    return "\n\n".join([*parts, *(markdown_text(note) for note in document.notes)]) + "\n"


def _markdown_entry(cell: Entry) -> str:
    text = markdown_text(cell.text)
    text = f"**{text}**" if cell.bold else text
    text = f"<u>{text}</u>" if cell.underlined else text
    dagger = "<sup>†</sup>" if cell.dagger else ""
    return f"{text}{dagger}" + (f" ± {markdown_text(cell.sub)}" if cell.sub else "")


def _markdown_curve(curve: Curve) -> str:
    body = [
        [markdown_text(name), f"{x:g}", f"{100 * sum(v.values()) / len(v):.2f}", str(len(v))]
        for name, points in curve.series.items()
        for x, v in sorted(points.items())
    ]
    head = ["series", curve.x_title, curve.y_title, "seeds"]
    return f"### {markdown_text(curve.title)}\n\n{markdown_table(head, body)}"


def to_latex(document: Document) -> str:
    r"""Return one ``table`` per part; needs ``booktabs`` only."""
    parts = ["% \\usepackage{booktabs}"]
    for part in document.parts:
        lines = []
        if any(name for name, _ in part.groups):
            spans = " & ".join(
                rf"\multicolumn{{{span}}}{{c}}{{{tex_text(name)}}}" for name, span in part.groups
            )
            lines.append(" & ".join([""] * len(part.labels) + [spans]) + r" \\")
        lines += [" & ".join(map(tex_text, [*part.labels, *part.columns])) + r" \\", r"\midrule"]
        for row, (labels, cells) in enumerate(part.rows):
            lines += [r"\midrule"] if row in part.rules else []
            lines.append(
                " & ".join([*map(tex_text, labels), *map(_tex_entry, cells)]) + r" \\"
            )  # fmt: skip
        caption = " ".join(map(tex_text, (f"{document.title}. {part.title}.", *part.notes)))
        columns = "l" * len(part.labels) + "r" * len(part.columns)
        parts.append(
            "\\begin{table}\n\\centering\n"
            f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n" + "\n".join(lines) + "\n\\bottomrule\n"
            f"\\end{{tabular}}\n\\caption{{{caption}}}\n\\end{{table}}"
        )
    return "\n\n".join([*parts, *(f"% {_one_line(note)}" for note in document.notes)]) + "\n"


def _tex_entry(cell: Entry) -> str:
    text = tex_text(cell.text)
    text = rf"\textbf{{{text}}}" if cell.bold else text
    text = rf"\underline{{{text}}}" if cell.underlined else text
    sub = rf"_{{\mathrm{{{tex_text(cell.sub)}}}}}" if cell.sub else ""
    marks = sub + (r"^{\dagger}" if cell.dagger else "")
    return f"{text}${marks}$" if marks else text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def to_csv(document: Document) -> str:
    """Return a row a cell: part, whose it is, row, column, text, and numbers in full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["part", "source", "row", "column", "text", *NUMBERS])
    for part in document.parts:
        source = "ours" if part.ours else "paper"
        for labels, cells in part.rows:
            row = " | ".join(label for label in labels if label)
            for i, cell in enumerate(cells):
                numbers = [cell.numbers.get(name, "") for name in NUMBERS]
                writer.writerow([part.title, source, row, part.column_name(i), cell.text, *numbers])
    for curve in document.curves:
        for name, points in curve.series.items():
            for x, values in sorted(points.items()):
                for seed, value in sorted(values.items()):
                    where = [curve.title, "ours", f"{name} | seed {seed}", f"{curve.x_title} {x:g}"]
                    numbers = [value, *[""] * (len(NUMBERS) - 1)]
                    writer.writerow([*where, f"{100 * value:.2f}", *numbers])
    return text.getvalue()


def write_document(document: Document, folder: Path) -> list[Path]:
    """Write ``<name>.tex``, ``.md``, ``.csv`` and ``.json``, whole or not at all; return the paths.

    ``.json`` is the document itself, from which the page is made.
    """
    texts = {
        "tex": to_latex(document), "md": to_markdown(document), "csv": to_csv(document),
        "json": document.to_json(),
    }  # fmt: skip
    return [write_page(folder / f"{document.name}.{kind}", text) for kind, text in texts.items()]
