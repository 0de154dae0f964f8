"""The significance table as documents: the papers' layout, and its comparisons in full.

A row per arm, a column per metric, one part per benchmark. Bold is best in its column; underlined
is better than the first baseline by the papers' test (one-tailed Welch, p <= 0.05), an arrow is
worse by the same test, two-sided; a superscript number means the same for each further baseline; a
dagger marks what is significant in the paired test after Holm's correction. The subscript is the
standard deviation over seeds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from cfaug.report.arms import full_names
from cfaug.report.document import (
    Column,
    Document,
    Entry,
    Part,
    csv_text,
    make_part,
    text_column,
    to_latex,
    to_markdown,
)
from cfaug.report.metric_words import spell_out
from cfaug.report.page import DASH, p_text, span_text, write_page
from cfaug.report.results import Cell
from cfaug.report.significance_rows import ALPHA, ItemComparison, SignificanceRow, Table

WORSE, KEPT, LOST = "↓", "†", "‡"
KEPT_ITEMS, LOST_ITEMS = "§", "¶"
ITEM_COLUMNS = (
    "items_test", "items", "item_clusters", "items_low", "items_high", "p_items", "p_items_holm",
    "p_items_holm_two_sided",
)  # fmt: skip
"""Columns of the CSV with the tests over items."""
INTERVALS = (
    "Difference and its 95 % interval in percentage points: Student's, paired by seed, or Welch's "
    "where the two have other seeds."
)
DIRECTIONS = (
    "A difference is the arm minus the baseline: for a metric in which lower is better, a "
    "negative one is a gain. Every test is in the metric's own direction; values other than "
    "fractions are in their own unit."
)


def benchmark_parts(table: Table) -> list[Part]:
    """Return one part per benchmark, with the arms evaluated on it as rows, and chance below."""
    parts = []
    for benchmark, metrics in table.benchmarks.items():

        def value(cell: Cell, arm: str) -> Entry:
            return cell_entry(table, arm, cell) or Entry(DASH)

        cells = [(benchmark, metric) for metric in metrics]
        columns = [
            Column(table.measure(cell).header(cell[1]), partial(value, cell)) for cell in cells
        ]
        rows = [
            ((table.label(arm),), arm)
            for arm in table.arms
            if any(cell_entry(table, arm, cell) for cell in cells)
        ]
        part = make_part(benchmark, ("arm",), columns, rows)
        if any(cell in table.chance for cell in cells):
            chance = tuple(
                Entry(table.measure(cell).text(table.chance[cell]) if cell in table.chance else "")
                for cell in cells
            )
            part = replace(part, rows=(*part.rows, (("chance",), chance)), rules=(len(part.rows),))
        parts.append(part)
    return parts


def cell_entry(table: Table, arm: str, cell: Cell) -> Entry | None:
    """Return an arm's mean as printed, with every mark; ``None`` if it was not evaluated."""
    row = table.get(arm, cell)
    if row is None:
        return None
    column = [other.mean for a in table.arms if (other := table.get(a, cell))]
    further = [(i, table.get(arm, cell, b)) for i, b in enumerate(table.baselines[1:], 1)]
    above = [
        f"{WORSE * r.worse}{i}"
        for i, r in further
        if r is not None and (r.significant or r.worse) and not table.both_at_chance(r)
    ]
    measure = row.measure
    over_items = table.get_over_items(arm, cell)
    signs = WORSE * row.worse + KEPT * row.kept + LOST * row.lost
    if over_items is not None:
        signs += KEPT_ITEMS * over_items.kept + LOST_ITEMS * over_items.lost
    marked = not table.both_at_chance(row)
    return Entry(
        text=measure.text(row.mean),
        sub="" if math.isnan(row.sd) else measure.spread(row.sd),
        # Compared as printed, so that two arms that read the same are both bold.
        bold=cell in table.one_test
        and (arm, cell) not in table.at_chance
        and measure.text(row.mean) == measure.text(measure.best(column)),
        underlined=row.significant and marked,
        signs=signs if marked else "",
        above=tuple(above),
    )


def legend(
    table: Table,
    best: str = "Bold",
    better: str = "Underlined",
    benchmark: str | None = None,
) -> list[str]:
    """Return sentences that explain the marks which occur.

    Args:
        best: name of the mark of the best value in a column.
        better: name of the mark of a value better than the first baseline.
        benchmark: the benchmark, or part of one, whose marks they are; ``None`` for all.
    """
    first, *others = map(table.label, table.baselines)
    cells = [
        (name, metric)
        for name, metrics in table.benchmarks.items()
        for metric in metrics
        if benchmark in (None, name)
    ]
    entries = [e for arm in table.arms for cell in cells if (e := cell_entry(table, arm, cell))]
    signs = {sign for entry in entries for sign in entry.signs}
    above = {sign for entry in entries for sign in entry.above}
    welch = f"by a one-tailed Welch t-test (p <= {ALPHA})"
    paired = "by the test paired by seed after Holm's correction"
    over_items = "by a test over items after Holm's correction, where there is one seed"
    units = "Percent" if table.plain else "Percent, or the unit above the column"
    counts = sorted({row.n for row in table.rows})
    several = f"{counts[0]} to {counts[-1]}" if counts[1:] else str(counts[0])
    number = "one seed" if table.one_seed else f"mean over {several} seeds with standard deviation"
    sentences = [
        (True, f"{units}, {number}."),
        (any(entry.bold for entry in entries), f"{best}: best in its column."),
        (any(e.underlined for e in entries), f"{better}: better than {first} {welch}."),
        (WORSE in signs, f"{WORSE}: worse than {first} by a two-sided Welch t-test."),
        (KEPT in signs, f"{KEPT}: better than {first} {paired}."),
        (LOST in signs, f"{LOST}: worse than {first} {paired}, two-sided."),
        (KEPT_ITEMS in signs, f"{KEPT_ITEMS}: better than {first} {over_items}."),
        (LOST_ITEMS in signs, f"{LOST_ITEMS}: worse than {first} {over_items}, two-sided."),
    ]
    for i, other in enumerate(others, 1):
        sentences += [
            (str(i) in above, f"Superscript {i}: better than {other} {welch}."),
            (f"{WORSE}{i}" in above, f"{WORSE}{i}: worse than {other}, two-sided."),
        ]
    return [" ".join(sentence for occurs, sentence in sentences if occurs)]


COMPARED = ("arm", "baseline", "benchmark", "metric")
"""Columns that name a row of a comparison."""


def _name_comparison(table: Table, row: SignificanceRow) -> tuple[str, ...]:
    return (table.label(row.arm), table.label(row.baseline), *row.cell)


def comparison_part(table: Table) -> Part | None:
    """Return the most important tests over seeds; ``None`` if all are tested over items."""
    rows = [
        (_name_comparison(table, row), row)
        for row in table.comparisons
        if table.get_over_items(row.arm, row.cell, row.baseline) is None
    ]
    columns: tuple[Column[SignificanceRow], ...] = (
        text_column("difference", lambda row: row.measure.text(row.diff)),
        text_column("95 % interval", interval_text),
        text_column("p_welch", lambda row: p_text(row.p_welch)),
        text_column("p_paired", lambda row: p_text(row.p_paired)),
        text_column("p_holm", lambda row: p_text(row.p_holm)),
        text_column("p_permutation", lambda row: p_text(row.p_permutation)),
    )
    notes = (INTERVALS, *(() if table.plain else (DIRECTIONS,)))
    return make_part("Comparisons", COMPARED, columns, rows, notes) if rows else None


def item_part(table: Table) -> Part | None:
    """Return the tests over items, one row each; ``None`` if there are none."""
    if not table.over_items:
        return None

    def difference(item: ItemComparison) -> str:
        return item.measure.text(item.measure.gain(item.test.gain))

    columns: tuple[Column[ItemComparison], ...] = (
        text_column("difference", difference),
        text_column("95 % interval", lambda item: span_text(item.measure.text, *item.interval)),
        text_column("standard error", lambda item: item.measure.text(item.test.error)),
        text_column("items", lambda item: f"{item.test.items:,}"),
        text_column("clusters", lambda item: f"{item.test.clusters:,}"),
        text_column("arm better", lambda item: f"{item.test.better:,}"),
        text_column("baseline better", lambda item: f"{item.test.worse:,}"),
        text_column("p McNemar, two-sided", lambda item: p_text(item.test.p_exact)),
        text_column("p", lambda item: p_text(item.test.p)),
        text_column("p_holm", lambda item: p_text(item.p_holm)),
        text_column("p_holm, two-sided", lambda item: p_text(item.p_holm_two_sided)),
        text_column("test", lambda item: item.test.test),
    )
    # What a difference means on a set of this size, for each benchmark's first metric.
    sizes: dict[str, str] = {}
    for item in table.over_items:
        about = f"{item.row.benchmark} {item.row.metric}, {item.test.describe(item.measure)}"
        sizes.setdefault(item.row.benchmark, about)
    return make_part(
        "Comparisons over items",
        COMPARED,
        columns,
        [(_name_comparison(table, item.row), item) for item in table.over_items],
        (
            "McNemar's exact test of right and wrong answers treats items as independent; p is "
            "McNemar's if every item was sampled by itself (with Tango's interval), else the signs "
            "of whole clusters are flipped (docs/statistics.md).",
            f"Differences paired item by item: {'; '.join(sizes.values())}.",
        ),
    )


def full_comparison_part(table: Table) -> Part:
    """Return the comparisons with every test and both effect sizes, one row each."""

    def size(value: float) -> str:
        return DASH if math.isnan(value) else f"{value:.2f}"

    columns: tuple[Column[SignificanceRow], ...] = (
        text_column("n", lambda row: str(row.n)),
        text_column("difference", lambda row: row.measure.difference(row.diff, 2)),
        text_column("95 %", interval_text),
        text_column("p Welch", lambda row: p_text(row.p_welch)),
        text_column("p paired", lambda row: p_text(row.p_paired)),
        text_column("p Holm", lambda row: p_text(row.p_holm)),
        text_column("p Holm, two-sided", lambda row: p_text(row.p_holm_two_sided)),
        text_column("p Wilcoxon", lambda row: p_text(row.p_wilcoxon)),
        text_column("p sign flip", lambda row: p_text(row.p_permutation)),
        text_column("Hedges g", lambda row: size(row.g)),
        text_column("Cohen d_z", lambda row: size(row.d_z)),
    )
    rows = [(_name_comparison(table, row), row) for row in table.comparisons]
    return make_part("", COMPARED, columns, rows)


def interval_text(row: SignificanceRow) -> str:
    """Return Student's interval of a difference in points, or the reason for none."""
    missing = f"n/a ({row.reason})" if row.reason else "n/a"
    return span_text(row.measure.text, row.t_low, row.t_high, missing)


def table_document(table: Table, name: str = "table") -> Document:
    """Return the table with its notes once, and the comparisons, for formats read top to bottom."""
    *parts, last = benchmark_parts(table)
    last = replace(last, notes=(*legend(table), *table.all_notes()))
    comparisons = [part for part in (comparison_part(table), item_part(table)) if part is not None]
    return Document(name=name, title="", parts=(*parts, last, *comparisons, *table.more))


def float_document(table: Table, name: str = "table") -> Document:
    """Return the table with each benchmark's notes below its part, as parts may float.

    Metrics are words, in two header rows. Below a part stands what its reader needs; what is about
    p, which it does not print, about the names of files or for the user of the command are notes of
    the document, which LaTeX has as comments.
    """
    parts = []
    cautions = [f"Caution: {line}" for line in table.cautions]
    for part in benchmark_parts(table):
        signs = {sign for _, cells in part.rows for cell in cells for sign in cell.signs}
        corrected = []
        if signs & {KEPT, LOST}:
            corrected.append(f"Holm's correction is over {table.describe_corrected()}.")
        if signs & {KEPT_ITEMS, LOST_ITEMS}:
            corrected.append(table.item_note())
        spelled = spell_out(part, table.benchmarks[part.title])
        notes = (
            *legend(table, benchmark=part.title),
            *spelled.notes,
            *corrected,
            *table.at_chance_note(part.title),
            *table.untested_notes(part.title),
            *concerning([*table.notes, *cautions], part.title, table.benchmarks),
        )
        parts.append(replace(spelled, notes=notes))
    names = full_names(table.labels, table.arms)
    comments = (*table.test_notes(), *table.asides, *([names] if names else []))
    return Document(name=name, title="", parts=tuple(parts), notes=comments)


def concerning(sentences: Sequence[str], benchmark: str, known: Collection[str]) -> list[str]:
    """Return the sentences that name a benchmark, or one it is a part of, or no known one."""
    kept = []
    for line in sentences:
        named = [name for name in known if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", line)]
        if not named or any(
            benchmark == name or benchmark.startswith(f"{name} [") for name in named
        ):
            kept.append(line)
    return kept


def comparisons_csv(table: Table) -> str:
    """Return a row per arm, baseline, benchmark and metric: numbers in full precision.

    A cell is empty if a test was not made. ``label`` is the arm's label in the other formats;
    ``note`` has the notes of these that concern the row. ``unit`` and ``better`` exist if any
    metric is not a fraction, or is better if lower; ``ITEM_COLUMNS`` if there are tests over items;
    ``chance`` if that is known of any metric.
    """
    names = [
        f.name
        for f in fields(SignificanceRow)
        if not table.plain or f.name not in ("unit", "better")
    ]
    more = (*(ITEM_COLUMNS if table.over_items else ()), *(("chance",) if table.chance else ()))
    lines = [*table.notes, *table.asides, *(f"Caution: {line}" for line in table.cautions)]
    remarks = {
        name: " ".join([*table.untested_notes(name), *concerning(lines, name, table.benchmarks)])
        for name in table.benchmarks
    }
    rows: list[list[Any]] = []
    for row in table.rows:
        known: dict[str, Any] = {"chance": table.chance.get(row.cell, "")}
        item = table.get_over_items(row.arm, row.cell, row.baseline)
        if item is not None:
            numbers = (
                item.test.test, item.test.items, item.test.clusters, *item.interval, item.test.p,
                item.p_holm, item.p_holm_two_sided,
            )  # fmt: skip
            known |= zip(ITEM_COLUMNS, numbers, strict=True)
        values = [getattr(row, name) for name in names]
        values += [table.label(row.arm), remarks[row.benchmark]]
        rows.append([*values, *(known.get(name, "") for name in more)])
    return csv_text([*names, "label", "note", *more], rows)


def write_tables(table: Table, folder: Path, stem: str = "table") -> list[Path]:
    """Write ``table.csv``, ``table.md`` and ``table.tex``, and return their paths."""
    texts = {
        "csv": comparisons_csv(table),
        "md": to_markdown(table_document(table)),
        "tex": to_latex(float_document(table)),
    }
    return [write_page(folder / f"{stem}.{kind}", text) for kind, text in texts.items()]
