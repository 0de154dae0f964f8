"""Bar charts of outcomes, and a matrix of the disagreement between annotators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cfaug.annotation.findings import Agreement, AnswerCounts
from cfaug.report.bar_figure import grouped_bars
from cfaug.report.drawing import Drawing, style
from cfaug.report.numbers import percent
from cfaug.report.plots import (
    ACCENT,
    LINE,
    PAPER,
    QUIET,
    RULE,
    SMALL,
    bar,
    lines_of,
    name_rows,
    new_axes,
    write,
)
from cfaug.stats.effects import wilson_interval

CELL, COLUMN = 39, 14
"""Height of a cell of the matrix in pixels, and letters in a line of a column's name."""

STRONG = 0.55
"""Shares above this are written in the colour of the paper."""


def outcome_bars(tallies: Sequence[AnswerCounts], names: Mapping[str, str]) -> Drawing:
    """Draw a bar per outcome and set of images, with Wilson's 95 % interval over the images.

    Args:
        tallies: the counts of outcomes, one tally per set of images.
        names: {outcome: its name in the figure}, in the order of the figure.
    """
    groups = {
        name: [(t.name, t.counts[outcome], t.images) for t in tallies]
        for outcome, name in names.items()
    }
    return _grouped(groups, "share of the images, %")


def category_bars(
    categories: Mapping[str, float], sampled: int, names: Mapping[str, str]
) -> Drawing:
    """Draw a bar per category of rejected images, most frequent first, with Wilson's 95 % interval.

    Args:
        categories: {category: number of images}.
        sampled: number of images that were sorted.
        names: {category: its name in the figure}.
    """
    ordered = sorted(categories, key=lambda name: -categories[name])
    groups = {names[name]: [("", categories[name], sampled)] for name in ordered}
    return _grouped(groups, "share of the sorted images, %")


def _grouped(groups: Mapping[str, Sequence[tuple[str, float, int]]], title: str) -> Drawing:
    """Draw shares as groups of bars: {group: [(name, count, total)]}."""
    spans = {
        group: [(name, c / n if n else 0.0, *wilson_interval(c, n)) for name, c, n in bars]
        for group, bars in groups.items()
    }
    return grouped_bars(spans, title)


@style()
def disagreement_matrix(agreement: Agreement, names: Sequence[str]) -> Drawing:
    """Draw how often each pair of answers to the same image occurs; rows sum to 100 %.

    A row is an answer, a column the answer of another annotator of the image. Darker is more.

    Args:
        agreement: the agreement, with its matrix of pairs of answers.
        names: names of the rows and columns of the matrix, in order.
    """
    totals = agreement.matrix.sum(axis=1)
    row, above = max(CELL, LINE * lines_of(names)), LINE * lines_of(names, COLUMN)
    axes = new_axes(row * len(names) + above + 50)
    middles = [(name, row * (i + 0.5)) for i, name in enumerate(names)]
    for i, (name, y) in enumerate(middles):
        for j, other in enumerate(names):
            share = float(agreement.matrix[i, j] / totals[i]) if totals[i] else float("nan")
            told = f"{name}, another: {other}: {percent(share, 1)}"
            fill = (ACCENT, share if share == share else 0.0)
            bar(axes, (j - 0.485, j + 0.485), y, row - 2, told, facecolor=fill, edgecolor=RULE)
            strong = {"color": PAPER, "fontweight": "bold"} if share > STRONG else {}
            write(axes, percent(share, 1), (j, y), ha="center", **strong)
        up = (0, 10 + above / 2)
        write(axes, name, (i, 0), up, width=COLUMN, ha="center")
    name_rows(axes, middles, row * len(names))
    axes.set(xlim=(-0.5, len(names) - 0.5), xticks=[])
    title = "answer of another annotator of the same image"
    axes.set_title(title, fontsize=SMALL, color=QUIET, pad=above + 18)
    return Drawing.of(axes, "Disagreement between annotators")
