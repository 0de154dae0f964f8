"""Tables on a terminal or in a log file: each number once, no line longer than the screen.

A table that is too wide is split between its groups of columns; long names are broken. Without
styles, as in a log file, ``*`` marks bold (the best of a column) and ``_`` underlined.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import Verbosity, verbosity, visible, write_out
from cfaug.report.comparison import describe_below_chance
from cfaug.report.document import Document, Entry, Part, curve_part
from cfaug.report.drawing import printable, wrap_text
from cfaug.report.layout import benchmark_parts, comparison_part, item_part, legend
from cfaug.report.metric_words import spell_out, with_columns
from cfaug.report.page import DASH, FRACTION, Measure
from cfaug.report.results import NAME_OF_PART, Cell, Result
from cfaug.report.significance_rows import Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

GAP = "  "
HEAD_LINES, GROUP_LINES = 3, 2
"""Lines of a column's header, and of one above several columns, if they are long."""
MOST_METRICS = 6
"""Most metrics of a benchmark that a command prints, unless it is verbose."""
MOST_PARTS = 6
"""Most parts of a benchmark that are printed by a usual command, besides those of ``EVERY``."""
EVERY = "kind"
"""The field whose parts are printed all, or none: one kind of edits says nothing of the others."""
KIND = re.compile(rf"[\[ ]{EVERY}=[^\[\]]*\]$")
CHANCE = "chance"
WHOLE = "all"
"""The name of a benchmark among its parts."""
MEASURED = "measured"
"""The name of the row of the only model of a table."""


def print_parts(
    parts: Iterable[Part | str], notes: Iterable[str] = (), console: Console | None = None
) -> None:
    """Print tables and sentences, with notes below, to ``console``; by default to stdout.

    A quiet command prints nothing.
    """
    from rich.text import Text

    if console is None:
        if verbosity() >= Verbosity.USUAL:
            written = io.StringIO()
            print_parts(parts, notes, _like_stdout(written))
            write_out(written.getvalue(), sys.stdout)  # knows readers that left, and full disks
        return
    lines: Iterable[Text]
    for part in parts:
        if isinstance(part, str):  # a sentence; a log file has it in one line
            text = visible(part)
            lines = map(Text, wrap_text(text, console.width) if console.is_terminal else [text])
        else:
            lines = part_lines(part, console.width, styled=is_styled(console))
        for line in lines:
            console.print(line, no_wrap=True, crop=False, soft_wrap=True)
    for sentence in notes:
        for words in wrap_text(sentence, console.width):
            console.print(Text(words, style="dim"), no_wrap=True)


def _like_stdout(written: io.StringIO) -> Console:
    """Return a console that writes to memory what stdout would show."""
    from rich.console import Console as RichConsole

    real = RichConsole(force_jupyter=False)  # a notebook shows what stdout gets
    system: Any = real.color_system
    return RichConsole(
        file=written, width=real.width, force_terminal=real.is_terminal, color_system=system,
        no_color=real.no_color, highlight=False, force_jupyter=False,
    )  # fmt: skip


def is_styled(console: Console) -> bool:
    """Say whether bold and underlined are shown; where they are not, signs replace them."""
    return console.color_system is not None


def bold_mark() -> str:
    """Return what stands for bold on stdout: ``*`` where there are no styles."""
    return "bold" if is_styled(_like_stdout(io.StringIO())) else "*"


def print_document(document: Document) -> None:
    """Print the tables, curves and notes of a document to stdout."""
    parts: list[Part | str] = [document.title] * bool(document.title)
    for part in (*document.parts, *map(curve_part, document.curves)):
        parts += [part, *part.notes]
    if document.pictures:
        parts.append(f"{len(document.pictures)} pictures: see report.html.")
    print_parts(parts, document.notes)


def print_table(
    table: Table, console: Console | None = None, shown: Collection[Cell] | None = None
) -> None:
    """Print a significance table with its notes; a verbose command prints its tests as well.

    Args:
        console: the console to print to; ``None`` for stdout.
        shown: the cells to print; ``None`` for every number. A verbose command prints all.
    """
    everything = shown is None or verbosity() == Verbosity.VERBOSE
    parts, left_out = list(benchmark_parts(table)), 0
    if not everything:
        cells = [(name, metric) for name, known in table.benchmarks.items() for metric in known]
        kept = _choose_cells([cell for cell in cells if cell in (shown or ())])
        left_out = len(cells) - len(kept)
        parts = [
            with_columns(part, [i for i, cell in enumerate(known) if cell in kept])
            for part in parts
            if (known := [(part.title, metric) for metric in table.benchmarks[part.title]])
            and kept.intersection(known)
        ]
    parts = join_parts([spell_out(part, table.benchmarks[part.title]) for part in parts])
    if verbosity() == Verbosity.VERBOSE:
        tests = (comparison_part(table), item_part(table))
        parts += [part for part in tests if part is not None]
    styled = is_styled(console or _like_stdout(io.StringIO()))
    marks = legend(table) if styled else legend(table, best="*", better="_")
    notes = [*(note for part in parts for note in part.notes), *marks, *table.all_notes()]
    if left_out:
        notes.append(f"{left_out} more numbers are in table.csv; verbose=true prints them.")
    print_parts(parts, notes, console)


def results_parts(rows: Sequence[Result], known: str) -> list[Part | str]:
    """Return the results of runs that are compared with nothing, a table for each benchmark.

    A benchmark of many numbers is cut to its first ones, unless the command is verbose.

    Args:
        rows: the results, of one run or of several seeds and arms.
        known: the file or folder with all numbers.
    """
    rows = _join_repeated(rows)
    cells = list(dict.fromkeys(row.cell for row in rows))
    kept = set(cells) if verbosity() == Verbosity.VERBOSE else _choose_cells(cells)
    runs = list(dict.fromkeys((row.arm, row.seed) for row in rows))
    arms = list(dict.fromkeys(arm for arm, _ in runs))
    values = {(row.arm, row.seed, row.cell): row for row in rows}
    parts = []
    for benchmark in dict.fromkeys(name for name, _ in cells):
        shown = [cell for cell in cells if cell[0] == benchmark and cell in kept]
        if not shown:
            continue
        first = {cell: next(row for row in rows if row.cell == cell) for cell in shown}
        measures = {cell: Measure(row.unit, row.better) for cell, row in first.items()}
        lines: list[tuple[tuple[str, ...], tuple[Entry, ...]]] = []
        for arm, seed in runs:
            label = arm if len(runs) == len(arms) else f"{arm}, seed {seed}"
            measured = [values.get((arm, seed, cell)) for cell in shown]
            entries = tuple(
                Entry(DASH if row is None else measures[cell].text(row.value))
                for cell, row in zip(shown, measured, strict=True)
            )
            if any(row is not None for row in measured):
                lines.append(((label if len(runs) > 1 else MEASURED,), entries))
        chance = [first[cell].chance for cell in shown]
        if any(value is not None for value in chance):
            texts = (
                "" if value is None else measures[cell].text(value)
                for cell, value in zip(shown, chance, strict=True)
            )
            lines.append(((CHANCE,), tuple(map(Entry, texts))))
        columns = tuple(measures[cell].header(cell[1]) for cell in shown)
        part = Part(benchmark, ("model" if len(runs) > 1 else "",), (), columns, tuple(lines))
        parts.append(spell_out(part, [cell[1] for cell in shown]))
    about = f" of {arms[0]}" if len(runs) == 1 else ""
    printed = [replace(part, title=f"{part.title}{about}") for part in join_parts(parts)]
    counts = sorted({row.n for row in rows})
    items = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    plain = all(row.unit == FRACTION for row in rows)
    note = f"{'Percent' if plain else 'Percent, or the unit above the column'}; {items} items."
    if len(kept) < len(cells):
        more = len(cells) - len(kept)
        note += f" {more} more numbers are in {known}; verbose=true prints them."
    notes = [line for part in printed for line in part.notes]
    return [*printed, *notes, note, *describe_below_chance(rows), ""]


def _join_repeated(rows: Sequence[Result]) -> list[Result]:
    """Return results without those of parts that hold the same items as a larger part.

    If all photos are edited, the photos with an edit are the photos. What is only known of such a
    part is told of the larger one.
    """
    numbers: dict[tuple[str, frozenset[tuple[str, str]]], dict[Any, tuple[float, int]]] = {}
    for row in rows:
        part = numbers.setdefault((row.benchmark, frozenset(row.by.items())), {})
        part[row.arm, row.seed, row.metric] = (row.value, row.n)
    joined = []
    for row in rows:
        by = frozenset(row.by.items())
        here, larger = numbers[row.benchmark, by], by
        for item in by:
            there = numbers.get((row.benchmark, by - {item}), {})
            shared = here.keys() & there.keys()
            if item[0] != EVERY and shared and all(here[key] == there[key] for key in shared):
                larger = by - {item}
        if larger == by:
            joined.append(row)
        elif (row.arm, row.seed, row.metric) not in numbers[row.benchmark, larger]:
            joined.append(replace(row, by=dict(larger)))
    return joined


def _choose_cells(cells: Sequence[Cell]) -> set[Cell]:
    """Return the first metrics of the first parts of each benchmark, and of all parts by kind."""
    metrics: dict[str, dict[str, None]] = {}
    parts: dict[str, dict[str, None]] = {}
    for name, metric in cells:
        benchmark = NAME_OF_PART.sub("", name)
        metrics.setdefault(benchmark, {})[metric] = None
        parts.setdefault(benchmark, {})[name] = None
    first = {
        (name, metric)
        for benchmark, known in metrics.items()
        for place, name in enumerate(parts[benchmark])
        if place < MOST_PARTS or KIND.search(name)
        for metric in list(known)[:MOST_METRICS]
    }
    return first.intersection(cells)


def join_parts(parts: Sequence[Part]) -> list[Part]:
    """Join the tables of a benchmark's parts, "stress [kind=colour]", into one with a row for each.

    A table of one model names its parts alone.
    """
    of_benchmark: dict[str, list[Part]] = {}
    for part in parts:
        of_benchmark.setdefault(NAME_OF_PART.sub("", part.title), []).append(part)
    joined = []
    for name, some in of_benchmark.items():
        if len(some) == 1:
            joined += some
            continue
        columns = list(dict.fromkeys(column for part in some for column in _columns_of(part)))
        names = {labels[0] for part in some for labels, _ in part.rows} - {CHANCE}
        several = names != {MEASURED}
        rows = []
        # By column: what a model scores that answers at random; once, if it is equal in all parts.
        chances: dict[tuple[str, str], set[str]] = {}
        for part in some:
            for (label, *_), cells in part.rows:
                for column, cell in zip(_columns_of(part), cells, strict=True):
                    if label == CHANCE and cell.text:
                        chances.setdefault(column, set()).add(cell.text)
        once = all(len(values) == 1 for values in chances.values())
        for part in some:
            about = part.title[len(name) :].strip(" []") or WHOLE
            places = {column: i for i, column in enumerate(_columns_of(part))}
            for (label, *_), cells in part.rows:
                if label == CHANCE and once:
                    continue
                labels = (about, label) if several or label == CHANCE else (about, "")
                row = [cells[places[c]] if c in places else Entry("") for c in columns]
                rows.append((labels, tuple(row)))
        if chances and once:
            texts = ("".join(chances.get(column, ())) for column in columns)
            rows.append(((CHANCE, ""), tuple(map(Entry, texts))))
        spans = tuple((g, len(list(s))) for g, s in groupby(columns, key=lambda column: column[0]))
        notes = list(dict.fromkeys(note for part in some for note in part.notes))
        # Those of lower metrics become one sentence.
        start = "Lower is better: "
        lower = [note[len(start) : -1].split(", ") for note in notes if note.startswith(start)]
        named = ", ".join(dict.fromkeys(name for metrics in lower for name in metrics))
        notes = [note for note in notes if not note.startswith(start)]
        notes += [f"{start}{named}."] if named else []
        joined.append(
            Part(
                name,
                ("part", some[0].labels[0]),
                spans if any(g for g, _ in spans) else (),
                tuple(column for _, column in columns),
                tuple(rows),
                notes=tuple(notes),
            )
        )
    return joined


def _columns_of(part: Part) -> list[tuple[str, str]]:
    """Return the columns of a table with their groups."""
    groups = [name for name, span in part.groups for _ in range(span)] or [""] * len(part.columns)
    return list(zip(groups, part.columns, strict=True))


# A table as lines: which columns stand side by side, and how headers, names and numbers fill them.


def part_lines(part: Part, width: int, *, styled: bool) -> Iterator[Text]:
    """Return the lines of a part, if possible none wider than ``width`` cells.

    Args:
        styled: whether bold and underlined are shown; otherwise ``*`` and ``_`` replace them.
    """
    from rich.cells import cell_len
    from rich.text import Text

    labels = [printable(" | ".join(filter(None, names))) for names, _ in part.rows]
    head = " | ".join(filter(None, part.labels))
    name_width = min(max(map(cell_len, [*labels, head])), max(12, width // 3))
    cells = [[_print(cell, styled) for cell in entries] for _, entries in part.rows]
    columns = _columns_of(part)
    rooms = [max((len(row[i][1]) for row in cells), default=0) for i in range(len(columns))]
    widths = [
        max(
            room + max((cell_len(row[i][0]) for row in cells), default=0),
            _narrowest(columns[i][1], HEAD_LINES),
        )
        for i, room in enumerate(rooms)
    ]
    for group, places in _runs_of_groups(columns, range(len(columns))):
        room = sum(len(GAP) + widths[i] for i in places) - len(GAP)
        widths[places[0]] += max(0, _narrowest(group, GROUP_LINES) - room)
    for title in wrap_text(part.title, width) if part.title else ():
        yield Text(title, style="bold" if styled else "")
    for chunk in _chunks(columns, widths, width - name_width):
        yield from _heading(columns, widths, chunk, head, name_width)
        rule = Text("─" * (name_width + sum(len(GAP) + widths[i] for i in chunk)), style="dim")
        yield rule
        for at, (label, row, (_, entries)) in enumerate(zip(labels, cells, part.rows, strict=True)):
            if not any(row[i][0] for i in chunk) and any(number for number, _ in row):
                continue  # its numbers are in other columns
            if at in part.rules:
                yield rule
            first, *more = wrap_text(label, name_width)
            line = Text(first + " " * (name_width - cell_len(first)))
            for i in chunk:
                number, marks = row[i]
                entry = entries[i]
                line.append(GAP + " " * (widths[i] - rooms[i] - cell_len(number)))
                style = " ".join(["bold"] * entry.bold + ["underline"] * entry.underlined)
                mean, plus, sd = number.partition("±")
                line.append(mean, style=style).append(plus + sd, style="dim")
                line.append(marks.ljust(rooms[i]))
            line.rstrip()
            yield line
            yield from map(Text, more)
        yield Text("")


def _runs_of_groups(
    columns: Sequence[tuple[str, str]], places: Iterable[int]
) -> Iterator[tuple[str, list[int]]]:
    """Yield each header above several columns with the places of its columns."""
    for group, some in groupby(places, key=lambda i: columns[i][0]):
        yield group, list(some)


def _heading(
    columns: Sequence[tuple[str, str]],
    widths: Sequence[int],
    chunk: Sequence[int],
    head: str,
    name_width: int,
) -> Iterator[Text]:
    """Yield the lines of the groups' headers, then those of the columns'."""
    from rich.text import Text

    blocks = []
    for group, places in _runs_of_groups(columns, chunk):
        room = sum(len(GAP) + widths[i] for i in places) - len(GAP)
        blocks.append((wrap_text(group, room) if group else [], room))
    heads = [(wrap_text(" ".join(_words(columns[i][1])), widths[i]), widths[i]) for i in chunk]
    above = max((len(words) for words, _ in blocks), default=0)
    below = max((len(words) for words, _ in heads), default=1)
    for level in range(above):
        line = " " * name_width
        for words, room in blocks:
            at = level - (above - len(words))
            line += GAP + (words[at] if at >= 0 else "").center(room)
        yield Text(line.rstrip())
    for level in range(below):
        line = (head if level == below - 1 else "").ljust(name_width)
        for words, room in heads:
            at = level - (below - len(words))
            line += GAP + (words[at] if at >= 0 else "").rjust(room)
        yield Text(line.rstrip())


def _print(cell: Entry, styled: bool) -> tuple[str, str]:
    """Return a cell's number, and the marks after it."""
    number = f"{cell.text}±{cell.sub}" if cell.sub not in ("", DASH) else cell.text
    number = printable(f"{number} {cell.small}" if cell.small else number)
    above = f"^{','.join(cell.above)}" if cell.above else ""
    looks = "" if styled else "*" * cell.bold + "_" * cell.underlined
    return number, f"{looks}{cell.signs}{above}"


def _words(header: str) -> list[str]:
    """Return the parts of a header between which it may break."""
    return printable(header).replace("_", " ").split() or [DASH]


def _narrowest(header: str, lines: int) -> int:
    """Return the cells that a header needs to be broken into as many lines, if it can be."""
    from rich.cells import cell_len

    words = _words(header)
    width = max(map(cell_len, words))
    while len(wrap_text(" ".join(words), width)) > lines:
        width += 1
    return width


def _chunks(
    columns: Sequence[tuple[str, str]], widths: Sequence[int], room: int
) -> list[list[int]]:
    """Split columns so that each part fits, keeping groups (R@1, R@5, R@10) whole if they can be.

    Columns without a header above them are groups if their names differ in a number alone.
    """

    def kind(place: int) -> tuple[str, str]:
        group, name = columns[place]
        return group, "" if group else re.sub(r"@?\d+$", "", name)

    groups = [list(some) for _, some in groupby(range(len(columns)), key=kind)]
    chunks: list[list[int]] = [[]]

    def fits(places: Sequence[int]) -> bool:
        return sum(len(GAP) + widths[i] for i in places) <= room

    for group in groups:
        pieces = [group] if fits(group) else [[i] for i in group]
        if len(pieces) > 1 and chunks[-1]:
            chunks.append([])
        for piece in pieces:
            if chunks[-1] and not fits([*chunks[-1], *piece]):
                chunks.append([])
            chunks[-1] = [*chunks[-1], *piece]
    return chunks
