"""Gains against costs as inline SVG: a line through the means of its points, both intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from cfaug.report.figures import (
    SERIES,
    WIDTH,
    Axis,
    Values,
    axis,
    draw_dot,
    draw_grid,
    draw_grid_y,
    mean_interval,
    wrap,
)
from cfaug.report.numbers import PERCENT, Measure

HEIGHT = 260
"""Pixels of the plotted area."""

Point = tuple[str, Values, Values]
"""Its name, and x and y by seed."""

Place = tuple[tuple[float, float, float], tuple[float, float, float]]
"""Mean, low and high end of x and of y."""


def tradeoff_plot(
    series: Mapping[str, Sequence[Point]],
    x_title: str,
    y_title: str,
    measures: tuple[Measure, Measure] = (PERCENT, PERCENT),
) -> Markup:
    """Draw the means of y over the means of x, a line per series in the order of its points.

    The whiskers are Student's 95 % intervals over seeds of either mean; lines at zero part gains
    from losses.

    Args:
        series: {name: points}; every point has a seed or more, its seeds the same in x and y.
        x_title: what x is, with its unit.
        y_title: what y is, with its unit.
        measures: how values of x and y are printed.
    """
    left, top = 62, 14 + 18 * len(series)
    bottom = top + HEIGHT
    places = {
        name: [(mean_interval(xs), mean_interval(ys)) for _, xs, ys in points]
        for name, points in series.items()
    }
    every = [place for points in places.values() for place in points]
    x = axis([0.0, *(end for xs, _ in every for end in xs)], left, WIDTH - 14)
    y = axis([0.0, *(end for _, ys in every for end in ys)], bottom, top)
    parts = [
        draw_grid(x, top, bottom, measures[0].factor),
        draw_grid_y(y, left, WIDTH - 14, measures[1].factor),
        Markup('<path class="seed" d="M{0:.1f} {1:.1f}V{2:.1f}M{3:.1f} {4:.1f}H{5:.1f}"/>').format(
            x.at(0), top, bottom, left, y.at(0), WIDTH - 14
        ),
    ]
    for number, (name, points) in enumerate(series.items()):
        kind = SERIES[number] if number < len(SERIES) else ""
        parts += _draw_series(name, points, places[name], (x, y), kind, measures)
        parts.append(
            Markup('<text class="name{}" x="{}" y="{}">{}</text>').format(
                kind, left, 14 + 18 * number, name
            )
        )
    parts.append(
        Markup('<text class="axis" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            (left + WIDTH) / 2, bottom + 38, x_title
        )
    )
    parts.append(
        Markup(
            '<text class="axis" x="14" y="{0:.1f}" text-anchor="middle" '
            'transform="rotate(-90 14 {0:.1f})">{1}</text>'
        ).format((top + bottom) / 2, y_title)
    )
    return wrap(parts, bottom + 46, f"{y_title} by {x_title}")


def _draw_series(
    name: str,
    points: Sequence[Point],
    places: Sequence[Place],
    axes: tuple[Axis, Axis],
    kind: str,
    measures: tuple[Measure, Measure],
) -> list[Markup]:
    x, y = axes
    path = " ".join(f"{x.at(xs[0]):.1f},{y.at(ys[0]):.1f}" for xs, ys in places)
    parts = [Markup('<polyline class="curve{}" points="{}"/>').format(kind, path)]
    for (point, _, _), (xs, ys) in zip(points, places, strict=True):
        across = (x.at(xs[1]), y.at(ys[0]), x.at(xs[2]), y.at(ys[0]))
        upright = (x.at(xs[0]), y.at(ys[1]), x.at(xs[0]), y.at(ys[2]))
        parts += [
            Markup(
                '<line class="whisker{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'
            ).format(kind, *ends)
            for ends in (across, upright)
        ]
        told = f"{name}, {point}: {measures[0].difference(xs[0])}, {measures[1].difference(ys[0])}"
        parts.append(draw_dot(x.at(xs[0]), y.at(ys[0]), told, kind))
        parts.append(
            Markup('<text class="tick" x="{:.1f}" y="{:.1f}">{}</text>').format(
                x.at(xs[0]) + 6, y.at(ys[0]) - 6, point
            )
        )
    return parts
