"""A comparison over tasks as a page: a verdict, a forest plot, tables, items that differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cfaug.core.errors import UserError
from cfaug.report.document import Column, Document, Entry, Part, make_part, text_column
from cfaug.report.drawing import Drawing, style
from cfaug.report.item_lists.item_cautions import is_wrongness
from cfaug.report.item_lists.task_comparison import (
    PooledDifference,
    TaskDifference,
    TaskResult,
    shown_p,
)
from cfaug.report.page import DASH, Measure, p_text, render, span_text, write_page
from cfaug.report.plots import (
    ACCENT,
    DOT,
    INK,
    LINE,
    QUIET,
    around,
    bar,
    is_drawable,
    lines_of,
    mark_empty,
    name_rows,
    new_axes,
    note,
    value_axis,
)
from cfaug.stats.power import FEWEST, Components, power_of

MOST_ITEMS = 40
"""Items on which two models differ that a page shows of a task, half for each model."""
FIXED = {"items", "difference [95 %]", "p (Holm)", "detectable, 80 %", "items needed"}
"""Columns of the table of tasks besides those of the models."""
LONGEST_NAME = 30
"""Letters of a model's name below a figure."""
PAGE = "a page of a comparison"
LONGEST = 600
"""Letters of a question or an answer on a page."""


@dataclass(frozen=True)
class DifferingItem:
    """An item that only one of two models answers right, or answers better."""

    item: str
    question: str
    target: str
    better: str
    worse: str


def overview_document(
    name: str,
    title: str,
    differences: Sequence[TaskDifference],
    pooled: Sequence[PooledDifference],
    notes: Sequence[str],
) -> Document:
    """Return the table with a row for each task, and what could have been found there."""
    many = _are_of_several_pairs(differences)

    def amount(d: TaskDifference) -> Entry:
        row, measure = d.row, d.row.measure
        text = span_text(measure.text, row.drawn.low, row.drawn.high, "")
        return Entry(
            measure.difference(row.drawn.mean),
            bold=d.shown,
            small=f"[{text}]" if text else "",
            numbers={"value": row.drawn.mean, "n": float(row.drawn.items)},
        )

    def needed(d: TaskDifference) -> str:
        count = d.items_needed
        return DASH if count is None or not d.row.drawn.mean else f"{count:,}"

    first, other = differences[0].row.first, differences[0].row.other
    # Folders may be called items, as a column is.
    heads = ("first", "other") if many or {first, other} & FIXED else (first, other)
    columns: list[Column[TaskDifference]] = [
        text_column("items", lambda d: f"{d.row.drawn.items:,}"),
        *(
            text_column(head, lambda d, i=i: d.row.measure.text(d.row.means[i], 1))  # type: ignore[misc]
            for i, head in enumerate(heads)
        ),
        Column("difference [95 %]", amount),
        text_column("p (Holm)", lambda d: shown_p(d.p_holm)),
        text_column(
            "detectable, 80 %",
            lambda d: DASH if math.isnan(d.visible) else d.row.measure.text(d.visible, 1),
        ),
        text_column("items needed", needed),
    ]
    labelled = [(_name_row(d, many), d) for d in differences]
    part = make_part("Task by task", ROW_LABELS[many], columns, labelled)
    return Document(name, title, (part,), (*explain(differences, pooled), *notes))


ROW_LABELS = {False: ("task", "metric"), True: ("first", "other", "task", "metric")}
"""Headers of the names of rows, by whether several pairs of models are compared."""


def _are_of_several_pairs(differences: Sequence[TaskDifference]) -> bool:
    return len({(d.row.first, d.row.other) for d in differences}) > 1


def _name_row(d: TaskDifference, many: bool) -> tuple[str, ...]:
    return (*((d.row.first, d.row.other) if many else ()), d.task, d.row.metric)


def explain(
    differences: Sequence[TaskDifference],
    pooled: Sequence[PooledDifference],
    mark: str = "bold",
) -> list[str]:
    """Return the notes under the table of tasks: what is subtracted, which tests, which means.

    Args:
        mark: the name of what marks a difference that is shown, in the form of the table.
    """
    tests = dict.fromkeys(d.row.drawn.test for d in differences)
    unit = "in points"
    if not all(d.row.measure.is_fraction for d in differences):
        unit += ", or in the metric's unit where it is not of right and wrong"
    lines = [
        f"Difference: first minus other, {unit}. p: {' or '.join(filter(None, tests))}, "
        f"two-sided; corrected (Holm) over {len(differences)} "
        f"comparison{'s' * (len(differences) != 1)}; {mark}: p of at most 0.05. Intervals are of "
        "one comparison each, without the correction. Each place is one model: this says nothing "
        "about what training again would give.",
        "Detectable: the smallest true difference that 80 % of tests of this size find. Items "
        "needed: how many such items find a true difference as large as the measured one in 80 % "
        "of tests. Both are for one test at the level of 5 %, without the correction.",
    ]
    for mean in pooled:
        low, high = mean.interval
        what = f"{mean.metric} of " * bool(mean.metric)
        about = f"95 % {100 * low:+.1f} to {100 * high:+.1f}, p = {p_text(mean.p)}"
        text = (
            f"Mean over {what}{mean.tasks} tasks, each counted once: {mean.first} minus "
            f"{mean.other} {100 * mean.mean:+.1f} points ({about}), for these tasks and no others."
        )
        tasks = dict.fromkeys(
            d.base for d in differences if (d.row.first, d.row.other) == (mean.first, mean.other)
        )
        if missing := [task for task in tasks if task not in mean.names]:
            text += f" Not in it: {', '.join(missing)}."
        if mean.shared:
            text += (
                f" {mean.shared:,} clusters or questions are in several of them, by their names: "
                "the interval counts each once where that makes it wider."
            )
        if mean.heterogeneity_p <= 0.05:
            text += (
                f" The tasks differ among each other by more than chance (Cochran's Q, p = "
                f"{p_text(mean.heterogeneity_p)}): read them one by one."
            )
        lines.append(text)
    return lines


@style()
def forest_plot(
    differences: Sequence[TaskDifference], pooled: Sequence[PooledDifference], title: str
) -> Drawing:
    """Draw the difference of each task with its 95 % interval, and the means over tasks below.

    All differences are of one pair of models and in percent.
    """
    named: list[tuple[str, float, float, float, bool, bool]] = []
    tasks = [d.task for d in differences]
    for d in differences:
        name = d.task if tasks.count(d.task) == 1 else f"{d.task}: {d.row.metric}"
        name += " (lower is better)" * d.is_lower_better
        named.append((name, d.row.drawn.mean, *d.interval, d.shown, False))
    for mean in pooled:
        name = f"mean of {mean.tasks} tasks" + f" ({mean.metric})" * bool(mean.metric)
        low, high = mean.interval
        named.append((name, mean.mean, low, high, False, True))
    measure = Measure()
    row = max(34, 10 + LINE * lines_of([name for name, *_ in named]))
    axes = new_axes(row * len(named) + 48)
    middles = [row * (i + 0.5) for i in range(len(named))]
    name_rows(
        axes, [(name, y) for (name, *_), y in zip(named, middles, strict=True)], row * len(named)
    )
    ends = [0.0]
    axes.plot([0, 0], [0, row * len(named)], color=INK, linewidth=1.2)
    for (name, value, low, high, shown, pools), y in zip(named, middles, strict=True):
        if not is_drawable(value):
            mark_empty(axes, y)
            continue
        # A mean is in no correction: its colour says nothing of significance.
        colour = INK if pools else ACCENT if shown else DOT
        said = f"{name}: {measure.difference(value)} points"
        if is_drawable(low, high):
            bar(axes, (low, high), y, 16 if pools else 8, said, color=colour, alpha=0.3)
            ends += [low, high]
        (drawn,) = axes.plot(value, y, "o", markersize=9 if pools else 7, color=colour)
        note(drawn, said)
        ends.append(value)
    if pooled:
        line = row * len(differences)
        axes.axhline(line, color=QUIET, linewidth=1, linestyle=(0, (3, 2)))
    value_axis(axes, "x", around(ends), title, measure.factor)
    return Drawing.of(axes, title)


def list_differing(result: TaskResult) -> list[tuple[str, str, list[DifferingItem], int]]:
    """Return the items on which two models differ, of the first metric: those each is better on.

    Returns:
        (better model, worse model, items, how many there are in all), twice.
    """
    answers = result.answers
    metric = next(iter(answers.metrics))
    values = answers.metrics[metric]
    if is_wrongness(metric):
        values = -values
    first, other = answers.names[:2]
    listed = []
    for ahead, behind in ((0, 1), (1, 0)):
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero(values[ahead] > values[behind])
        shown = [
            DifferingItem(
                answers.labels[row],
                _cut(answers.questions[row]),
                _cut(answers.targets[row]),
                _cut(answers.said[ahead][row]),
                _cut(answers.said[behind][row]),
            )
            for row in rows[: MOST_ITEMS // 2].tolist()
        ]
        names = (first, other) if ahead == 0 else (other, first)
        listed.append((*names, shown, len(rows)))
    return listed


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST].rstrip()} ..."


def _shorten(name: str) -> str:
    """Return the beginning and the end of a long name, of which either may tell two apart."""
    if len(name) <= LONGEST_NAME:
        return name
    half = LONGEST_NAME // 2 - 2
    return f"{name[:half]}...{name[-half:]}"


def write_comparison_page(
    file: Path,
    overview: Document,
    answer: Sequence[str],
    details: Sequence[tuple[TaskResult, Part]],
    differences: Sequence[TaskDifference],
    pooled: Sequence[PooledDifference],
) -> Path:
    """Write the page of a comparison, and return its path.

    Args:
        answer: its verdict, a sentence for each pair of models.
        details: each task with the table of its metrics and parts.
    """
    figures = []
    for first, other in dict.fromkeys((d.row.first, d.row.other) for d in differences):
        rows = [
            d
            for d in differences
            if (d.row.first, d.row.other) == (first, other) and d.row.measure.is_fraction
        ]
        means = [m for m in pooled if (m.first, m.other) == (first, other)]
        if rows:
            ours, theirs = _shorten(first), _shorten(other)
            axis = f"points by which {ours} is better than {theirs}"
            if any(d.is_lower_better for d in rows):
                axis = f"{ours} minus {theirs}, points"
            figures.append(forest_plot(rows, means, axis))
    text = render(
        "comparison.html",
        title=overview.title,
        verdict=answer,
        overview=overview,
        figures=figures,
        details=[
            (
                result.task,
                part,
                list_differing(result) if len(result.answers.names) == 2 else [],
            )
            for result, part in details
        ],
    )
    return write_page(file, text, PAGE)


def plan_part(differences: Sequence[TaskDifference], points: float) -> Part:
    """Return how large a test has to be to find a difference, by task, from these answers.

    Args:
        points: the difference to find, in points of a percentage.
    """
    if points > 100:
        raise UserError(f"plan={points:g}: a difference is at most 100 points")
    # A task, the components of its differences, and the clusters of a test of another size.
    rows: list[tuple[TaskDifference, Components, int]] = [
        (d, d.components, max(2, round(d.components.clusters * share)))
        for d in differences
        if d.components is not None and d.row.measure.is_fraction
        for share in (0.5, 1, 2, 4)
    ]

    def power(row: tuple[TaskDifference, Components, int]) -> str:
        _, components, clusters = row
        if not components.has_spread:
            return DASH
        share = 0.0
        if clusters >= FEWEST:
            share = power_of(points / 100, components.error(clusters), clusters)
        return f"{100 * share:.0f} %"

    def needed(row: tuple[TaskDifference, Components, int]) -> str:
        _, components, _ = row
        clusters = components.clusters_needed(points / 100)
        return DASH if clusters is None else f"{math.ceil(clusters * components.per_cluster):,}"

    columns: list[Column[tuple[TaskDifference, Components, int]]] = [
        text_column("clusters", lambda row: f"{row[2]:,}"),
        text_column("items", lambda row: f"{round(row[2] * row[1].per_cluster):,}"),
        text_column("SE, points", lambda row: f"{100 * row[1].error(row[2]):.2f}"),
        text_column(f"power for {points:g} point{'s' * (points != 1)}", power),
        text_column("items for 80 %", needed),
    ]
    note = (
        "From the variances of the item differences of this pilot, between clusters and within "
        "them: tests of half, equal, double and four times its size. Two-sided, at the level of "
        "5 %, for one comparison; a family of several needs more."
    )
    title = f"Is a difference of {points:g} point{'s' * (points != 1)} found?"
    many = _are_of_several_pairs(differences)
    labelled = [(_name_row(row[0], many), row) for row in rows]
    return make_part(title, ROW_LABELS[many], columns, labelled, [note])
