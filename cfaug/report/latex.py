r"""A document as LaTeX, a ``table`` per part, with ``booktabs`` only; everything is escaped."""

from __future__ import annotations

import re

from cfaug.report.document import Document, Entry, Part

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

NUMBER = re.compile(r"[\d.]+")


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
    titles = [f"{one}." for one in (title, part.title) if one]
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
    sub = f"_{{{_subscript(cell.sub)}}}" if cell.sub else ""
    raised = [cell.signs.translate(SIGNS)] if cell.signs else []
    raised += [sign.translate(SIGNS).strip() for sign in cell.above]
    above = f"^{{{','.join(raised)}}}" if raised else ""
    small = f" {tex_text(cell.small)}" if cell.small else ""
    return (f"{text}${sub}{above}$" if sub or above else text) + small


def _subscript(text: str) -> str:
    """Return text for a formula, upright if it is more than a number."""
    if NUMBER.fullmatch(text):
        return text
    return "-" if text == "–" else rf"\mathrm{{{tex_text(text)}}}"
