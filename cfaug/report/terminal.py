"""The table for people who read a terminal or a log file: no number is cut, no line is too long."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cfaug.report.labels import printable, wrapped
from cfaug.report.layout import Block, Mark, blocks, legend
from cfaug.report.tables import Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

GAP = "  "
NARROWEST = 12
"""Cells of the arms' column, at least, where a third of the line is less."""

Cell = tuple[str, str]
"""A number, and the signs after it."""


def print_table(table: Table, console: Console | None = None) -> None:
    """Print the table in the papers' layout, with its notes, to ``console`` (stdout by default).

    A benchmark too wide for the line is split between its groups of metrics; long names are broken.
    Without styles, as in a log file, ``*`` is the best of a column and ``_`` what is better than
    the first baseline.
    """
    from rich.console import Console as RichConsole
    from rich.text import Text

    out = console or RichConsole()
    styled = out.color_system is not None
    for block in blocks(table):
        for line in _block_lines(table, block, out.width, styled):
            out.print(line, no_wrap=True, crop=False)
    marks = legend(table) if styled else legend(table, best="*", better="_")
    for said in [*marks, *table.all_notes()]:
        for part in wrapped(said, out.width):
            out.print(Text(part, style="dim"), no_wrap=True)


def _block_lines(table: Table, block: Block, width: int, styled: bool) -> Iterator[Text]:
    from rich.cells import cell_len
    from rich.text import Text

    labels = [printable(table.label(arm)) for arm, _ in block.lines]
    arm_width = min(max(map(cell_len, [*labels, "arm"])), max(NARROWEST, width // 3))
    cells = [[_cell(mark, styled) for mark in marks] for _, marks in block.lines]
    widths = [_column_width(name, column) for name, column in _columns(block, cells)]
    for chunk in _chunks(block.metrics, widths, width - arm_width):
        for part in wrapped(block.benchmark, width):
            yield Text(part, style="italic")
        yield from _head([block.metrics[i] for i in chunk], [widths[i] for i in chunk], arm_width)
        for label, row, (_, marks) in zip(labels, cells, block.lines, strict=True):
            first, *more = wrapped(label, arm_width)
            line = Text(_filled(first, arm_width))
            for i in chunk:
                line.append_text(_shown(row[i], marks[i], cells, i, widths[i]))
            line.rstrip()
            yield line
            yield from (Text(part) for part in more)
        yield Text("")


def _columns(block: Block, cells: Sequence[Sequence[Cell]]) -> Iterator[tuple[str, list[Cell]]]:
    for i, metric in enumerate(block.metrics):
        yield metric, [row[i] for row in cells]


def _cell(mark: Mark | None, styled: bool) -> Cell:
    if mark is None:
        return "–", ""
    number = mark.mean if mark.sd == "–" else f"{mark.mean}±{mark.sd}"
    also = f"^{','.join(mark.also)}" if mark.also else ""
    looks = "" if styled else "*" * mark.best + "_" * mark.significant
    return number, f"{looks}{mark.signs}{also}"


def _column_width(metric: str, column: Sequence[Cell]) -> int:
    widest = max(len(number) for number, _ in column) + max(len(signs) for _, signs in column)
    return max(widest, *map(len, _words(metric)))


def _words(metric: str) -> list[str]:
    """Return the parts of a metric's name between which its heading may be broken."""
    return printable(metric).replace("_", " ").split() or ["–"]


def _chunks(metrics: Sequence[str], widths: Sequence[int], room: int) -> list[list[int]]:
    """Part columns so that each part fits, groups of metrics (R@1, R@5, R@10) kept whole."""
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


def _head(metrics: Sequence[str], widths: Sequence[int], arm_width: int) -> Iterator[Text]:
    from rich.text import Text

    names = [wrapped(" ".join(_words(m)), w) for m, w in zip(metrics, widths, strict=True)]
    height = max(map(len, names))
    for level in range(height):
        line = ("arm" if level == height - 1 else "").ljust(arm_width)
        for name, width in zip(names, widths, strict=True):
            at = level - (height - len(name))
            line += GAP + (name[at] if at >= 0 else "").rjust(width)
        yield Text(line.rstrip())
    yield Text("─" * (arm_width + sum(len(GAP) + width for width in widths)), style="dim")


def _shown(
    cell: Cell, mark: Mark | None, cells: Sequence[Sequence[Cell]], column: int, width: int
) -> Text:
    """Return a cell, its number and its signs each below those of the other rows."""
    from rich.text import Text

    number, signs = cell
    room = max(len(row[column][1]) for row in cells)
    text = Text(GAP + " " * (width - room - len(number)))
    look = "" if mark is None else " ".join(["bold"] * mark.best + ["underline"] * mark.significant)
    mean, plus, sd = number.partition("±")
    text.append(mean, style=look).append(plus + sd, style="dim")
    return text.append(signs.ljust(room))


def _filled(text: str, width: int) -> str:
    from rich.cells import cell_len

    return text + " " * (width - cell_len(text))
