"""Gains against costs: a line through the means of its points, both intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cfaug.report.drawing import Drawing, style
from cfaug.report.figures import Values, mean_interval, series_colours
from cfaug.report.numbers import PERCENT, Measure
from cfaug.report.plots import (
    DOT,
    QUIET,
    SMALL,
    around,
    dot,
    draw_none,
    is_drawable,
    mention_missing,
    name_series,
    new_axes,
    value_axis,
    write,
)

Point = tuple[str, Values, Values]
"""A point: its name, and its x and y by seed."""


@style()
def tradeoff_plot(
    series: Mapping[str, Sequence[Point]],
    x_title: str,
    y_title: str,
    measures: tuple[Measure, Measure] = (PERCENT, PERCENT),
) -> Drawing:
    """Draw the means of y over the means of x, a line per series in the order of its points.

    The whiskers are Student's 95 % intervals over seeds of either mean; lines at zero separate
    gains from losses.

    Args:
        series: points of each series, by its name, with the same seeds in x and y; seeds with
            ``nan`` or infinity are left out, as the title of the x axis says.
        x_title: title of the x axis, with its unit.
        y_title: title of the y axis, with its unit.
        measures: unit and format of the printed values of x and y.
    """
    given = sum(len(xs) for points in series.values() for _, xs, _ in points)
    series = {name: _keep_drawable(points) for name, points in series.items()}
    kept = sum(len(xs) for points in series.values() for _, xs, _ in points)
    x_title = mention_missing(x_title, given - kept)
    if not kept:
        return draw_none(x_title)
    axes = new_axes(320 + 18 * len(series))
    axes.axvline(0, color=DOT, linewidth=1, alpha=0.35)
    axes.axhline(0, color=DOT, linewidth=1, alpha=0.35)
    all_x, all_y = [0.0], [0.0]
    for name, colour in series_colours(series).items():
        places = [(mean_interval(xs), mean_interval(ys)) for _, xs, ys in series[name]]
        axes.plot([x[0] for x, _ in places], [y[0] for _, y in places], color=colour, linewidth=2)
        for (point, _, _), (x, y) in zip(series[name], places, strict=True):
            axes.plot(x[1:], [y[0], y[0]], color=colour, linewidth=1.6)
            axes.plot([x[0], x[0]], y[1:], color=colour, linewidth=1.6)
            told = (
                f"{name}, {point}: {measures[0].difference(x[0])}, {measures[1].difference(y[0])}"
            )
            dot(axes, x[0], y[0], told, colour)
            write(axes, point, (x[0], y[0]), (6, 10), color=QUIET, fontsize=SMALL)
            all_x += x
            all_y += y
    value_axis(axes, "x", around(all_x), x_title, measures[0].factor)
    value_axis(axes, "y", around(all_y), y_title, measures[1].factor)
    name_series(axes, list(series_colours(series).items()))
    return Drawing.of(axes, f"{y_title} by {x_title}")


def _keep_drawable(points: Sequence[Point]) -> list[Point]:
    """Return the points with their seeds that have a place in x and y; without any, no point."""
    kept: list[Point] = []
    for name, xs, ys in points:
        seeds = [seed for seed in xs if is_drawable(xs[seed], ys[seed])]
        if seeds:
            kept.append((name, {seed: xs[seed] for seed in seeds}, {s: ys[s] for s in seeds}))
    return kept
