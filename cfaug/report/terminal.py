"""The table for a terminal or a log file: no number is cut, and no line is too long."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cfaug.core.messages import discard_output
from cfaug.report.document import Entry, Part
from cfaug.report.labels import printable, wrap_text
from cfaug.report.layout import benchmark_parts, legend
from cfaug.report.numbers import DASH
from cfaug.report.tables import Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

GAP = "  "
NARROWEST = 12
"""Smallest width of the arms' column, if a third of the line is less."""

Printed = tuple[str, str]
"""A number, and the marks after it."""


def print_table(table: Table, console: Console | None = None) -> None:
    """Print the table in the papers' layout, with its notes, to ``console`` (stdout by default).

    A benchmark too wide for the line is split between its groups of metrics; long names are broken.
    Without styles, as in a log file, ``*`` marks the best of a column and ``_`` a value better than
    the first baseline.

    Args:
        table: the table to print.
        console: destination; ``None`` for stdout.
    """
    from rich.console import Console as RichConsole
    from rich.text import Text

    class Patient(RichConsole):
        """Continue when the reader has left, like ``say``; rich would end the command."""

        def on_broken_pipe(self) -> None:
            discard_output(self.file)

    out = console or Patient()
    styled = out.color_system is not None
    for part in benchmark_parts(table):
        for line in part_lines(part, out.width, styled=styled):
            out.print(line, no_wrap=True, crop=False)
    marks = legend(table) if styled else legend(table, best="*", better="_")
    for said in [*marks, *table.all_notes()]:
        for words in wrap_text(said, out.width):
            out.print(Text(words, style="dim"), no_wrap=True)


def part_lines(part: Part, width: int, *, styled: bool) -> Iterator[Text]:
    """Return the lines of a part, if possible none wider than ``width`` cells.

    Args:
        part: the table to print.
        width: number of cells in a line.
        styled: whether bold and underlined are shown; otherwise ``*`` and ``_`` replace them.
    """
    from rich.cells import cell_len
    from rich.text import Text

    labels = [printable(" | ".join(names)) for names, _ in part.rows]
    head = " | ".join(part.labels)
    arm_width = min(max(map(cell_len, [*labels, head])), max(NARROWEST, width // 3))
    cells = [[_print(cell, styled) for cell in entries] for _, entries in part.rows]
    names = [part.column_name(i) for i in range(len(part.columns))]
    widths = [_column_width(name, [row[i] for row in cells]) for i, name in enumerate(names)]
    for chunk in _chunks(names, widths, width - arm_width):
        for words in wrap_text(part.title, width):
            yield Text(words, style="italic")
        yield from _head([names[i] for i in chunk], [widths[i] for i in chunk], head, arm_width)
        for label, row, (_, entries) in zip(labels, cells, part.rows, strict=True):
            first, *more = wrap_text(label, arm_width)
            line = Text(_fill(first, arm_width))
            for i in chunk:
                room = max(len(other[i][1]) for other in cells)
                line.append_text(_align(row[i], entries[i], room, widths[i]))
            line.rstrip()
            yield line
            yield from (Text(text) for text in more)
        yield Text("")


def _print(cell: Entry, styled: bool) -> Printed:
    number = f"{cell.text}±{cell.sub}" if cell.sub not in ("", DASH) else cell.text
    above = f"^{','.join(cell.above)}" if cell.above else ""
    looks = "" if styled else "*" * cell.bold + "_" * cell.underlined
    return number, f"{looks}{cell.signs}{above}"


def _column_width(metric: str, column: Sequence[Printed]) -> int:
    widest = max(len(number) for number, _ in column) + max(len(signs) for _, signs in column)
    return max(widest, *map(len, _words(metric)))


def _words(metric: str) -> list[str]:
    """Return the parts of a metric's name between which its heading may break."""
    return printable(metric).replace("_", " ").split() or ["–"]


def _chunks(metrics: Sequence[str], widths: Sequence[int], room: int) -> list[list[int]]:
    """Split columns so that each part fits, keeping groups of metrics (R@1, R@5, R@10) whole."""
    groups: dict[str, list[int]] = {}
    for i, metric in enumerate(metrics):
        groups.setdefault(re.sub(r"@?\d+$", "", metric), []).append(i)
    found: list[list[int]] = [[]]

    def fits(columns: Sequence[int]) -> bool:
        return sum(len(GAP) + widths[i] for i in columns) <= room

    for group in groups.values():
        pieces = [group] if fits(group) else [[i] for i in group]
        if len(pieces) > 1 and found[-1]:
            found.append([])
        for piece in pieces:
            if found[-1] and not fits([*found[-1], *piece]):
                found.append([])
            found[-1] = [*found[-1], *piece]
    return found


def _head(
    metrics: Sequence[str], widths: Sequence[int], label: str, arm_width: int
) -> Iterator[Text]:
    from rich.text import Text

    names = [wrap_text(" ".join(_words(m)), w) for m, w in zip(metrics, widths, strict=True)]
    height = max(map(len, names))
    for level in range(height):
        line = (label if level == height - 1 else "").ljust(arm_width)
        for name, width in zip(names, widths, strict=True):
            at = level - (height - len(name))
            line += GAP + (name[at] if at >= 0 else "").rjust(width)
        yield Text(line.rstrip())
    yield Text("─" * (arm_width + sum(len(GAP) + width for width in widths)), style="dim")


def _align(cell: Printed, entry: Entry, room: int, width: int) -> Text:
    """Return a cell with its number and its marks aligned with those of the other rows."""
    from rich.text import Text

    number, signs = cell
    text = Text(GAP + " " * (width - room - len(number)))
    look = " ".join(["bold"] * entry.bold + ["underline"] * entry.underlined)
    mean, plus, sd = number.partition("±")
    text.append(mean, style=look).append(plus + sd, style="dim")
    return text.append(signs.ljust(room))


def _fill(text: str, width: int) -> str:
    from rich.cells import cell_len

    return text + " " * (width - cell_len(text))
