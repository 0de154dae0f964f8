"""Values of seeds as figures: a strip of dots per arm, and curves over x."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from cfaug.report.drawing import Drawing, style
from cfaug.report.numbers import PERCENT, Measure
from cfaug.report.plots import (
    ACCENT,
    DOT,
    INK,
    LINE,
    QUIET,
    SERIES,
    Band,
    around,
    bar,
    chance_text,
    dot,
    draw_none,
    is_drawable,
    keep_drawable,
    keep_drawable_rows,
    lines_of,
    mark_empty,
    mention_missing,
    name_rows,
    name_series,
    new_axes,
    note,
    value_axis,
)
from cfaug.stats.effects import t_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = Mapping[int, float]
"""{seed: value}."""


@style()
def strip_plot(
    arms: Mapping[str, Values],
    title: str,
    highlight: Collection[str] = (),
    measure: Measure = PERCENT,
) -> Drawing:
    """Draw one row per arm and one dot per seed; a thin line joins a seed across the arms.

    The bar is the mean; the band around it is Student's 95 % interval for the mean.

    Args:
        arms: values of each arm by seed, from top to bottom, by its printed name; ``nan`` and
            infinity are left out, as the title of the axis says.
        title: title of the x axis.
        highlight: names of the arms drawn in the accent colour.
        measure: unit and format of printed values.
    """
    arms, title = keep_drawable_rows(arms, title)
    if not any(arms.values()):
        return draw_none(title)
    row = max(38, 10 + LINE * lines_of(list(arms)))
    middle = {name: row * (i + 0.5) for i, name in enumerate(arms)}
    axes = new_axes(row * len(arms) + 48)
    name_rows(axes, middle.items(), row * len(arms), highlight)
    _join_seeds(axes, arms, middle)
    ends = []
    for name, values in arms.items():
        if not values:
            mark_empty(axes, middle[name])
            continue
        mean, low, high = mean_interval(values)
        ends += [low, high, *values.values()]
        colour, y = ACCENT if name in highlight else DOT, middle[name]
        bar(axes, (low, high), y, 20, color=colour, alpha=0.19)
        for seed, value in values.items():
            dot(axes, value, y, dot_text(name, f"seed {seed}", value, measure), colour)
        axes.plot([mean, mean], [y - 13, y + 13], color=INK, linewidth=2.2)
    value_axis(axes, "x", around(ends), title, measure.factor)
    return Drawing.of(axes, title)


def dot_text(name: str, which: str, value: float, measure: Measure) -> str:
    """Return the note of a seed's dot.

    Args:
        name: printed name of the arm or series.
        which: seed, and x if there is one, in words.
        value: value of the seed.
        measure: unit and format of printed values.
    """
    return f"{name}, {which}: {measure.text(value, 1)} {measure.sign}"


def mean_interval(values: Values) -> tuple[float, float, float]:
    """Return the mean over seeds, and the ends of Student's 95 % interval; the mean without one.

    All three are ``nan`` without a value.
    """
    if not values:
        return math.nan, math.nan, math.nan
    mean = sum(values.values()) / len(values)
    low, high = t_interval(list(values.values()))
    return (mean, mean, mean) if math.isnan(low) else (mean, low, high)


def _join_seeds(axes: Axes, arms: Mapping[str, Values], middle: Mapping[str, float]) -> None:
    for upper, lower in pairwise(arms):
        for seed in sorted(arms[upper].keys() & arms[lower].keys()):
            xs = [arms[upper][seed], arms[lower][seed]]
            axes.plot(xs, [middle[upper], middle[lower]], color=DOT, linewidth=1, alpha=0.35)


@style()
def curve(
    series: Mapping[str, Mapping[float, Values]],
    x_title: str,
    y_title: str,
    measure: Measure = PERCENT,
    chance: Band | None = None,
) -> Drawing:
    """Draw means over x with Student's 95 % intervals and the seeds as dots, a line per series.

    Args:
        series: values of each series by x and seed, {name: {x: {seed: value}}}; ``nan`` and
            infinity are left out, as the title of the x axis says, and leave a gap in the line
            at an x without any other value.
        x_title: title of the x axis.
        y_title: title of the y axis, with its unit.
        measure: unit and format of printed values.
        chance: values by chance at every x, drawn behind the lines; ``None`` for no band.
    """
    given = sum(len(values) for points in series.values() for values in points.values())
    series = {
        name: {x: keep_drawable(values) for x, values in points.items() if is_drawable(x)}
        for name, points in series.items()
    }
    kept = sum(len(values) for points in series.values() for values in points.values())
    x_title = mention_missing(x_title, given - kept)
    if not kept:
        return draw_none(x_title)
    axes = new_axes(300 + 18 * len(series))
    colours = series_colours(series)
    chance = chance if is_drawable(*(chance or ())) else None
    ends = list(chance or ())
    if chance is not None:
        low, mean, high = chance
        note(axes.axhspan(low, high, color=QUIET, alpha=0.16, linewidth=1),
             chance_text(chance, measure))  # fmt: skip
        axes.axhline(mean, color=QUIET, linewidth=1.4, linestyle=(0, (3, 2)))
    for name, points in series.items():
        spans = {x: mean_interval(values) for x, values in sorted(points.items())}
        axes.plot(list(spans), [mean for mean, _, _ in spans.values()], color=colours[name], lw=2)
        for x, (_, low, high) in spans.items():
            if not points[x]:
                continue
            axes.plot([x, x], [low, high], color=colours[name], linewidth=1.6)
            ends += [low, high, *points[x].values()]
            for seed, value in points[x].items():
                told = dot_text(name, f"{x:g}, seed {seed}", value, measure)
                dot(axes, x, value, told, colours[name])
    xs = sorted({x for points in series.values() for x in points})
    value_axis(axes, "x", around(xs), x_title)
    axes.set_xticks(xs)
    axes.grid(visible=False, axis="x")
    value_axis(axes, "y", around(ends), "", measure.factor)
    name_series(axes, list(colours.items()))
    return Drawing.of(axes, f"{y_title} by {x_title}")


def series_colours(names: Collection[str]) -> dict[str, str]:
    """Return the colour of each series."""
    return {name: SERIES[i] if i < len(SERIES) else DOT for i, name in enumerate(names)}
