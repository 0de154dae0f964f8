"""Groups of bars as inline SVG, with what chance gives behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from cfaug.report.figures import LETTER, WIDTH, Axis, Band, draw_chance, draw_grid, wrap
from cfaug.report.numbers import PERCENT, Measure

BAR, GAP, ROOM = 17, 12, 22
"""Pixels of a bar, between groups of them, and of a line of a legend."""

KINDS = 5
"""Colours of bars."""

Bar = tuple[str, float, float, float]
"""A bar: its name, its value, ``nan`` for none, and the ends of an interval, ``nan`` for none."""


def grouped_bars(
    groups: Mapping[str, Sequence[Bar]],
    title: str,
    measure: Measure = PERCENT,
    legend: Sequence[str] = (),
    chance: Mapping[str, Band] | None = None,
    scale: type[Axis] = Axis,
) -> Markup:
    """Draw groups of horizontal bars from zero, with intervals as lines over them.

    Args:
        groups: {group: its bars}, at least one; bars of equal place have equal colours.
        title: below the axis.
        measure: how values are printed.
        legend: names of the bars of a group, printed above; none is not printed.
        chance: {group: what chance gives}, drawn behind the bars of that group.
        scale: of the values: ``Axis`` or ``LogAxis``.
    """
    widest = max(len(name) for name in groups)
    gutter = min(14 + LETTER * widest, 0.62 * WIDTH)
    ends = [v for bars in groups.values() for _, *bar in bars for v in bar if not math.isnan(v)]
    ends += [end for band in (chance or {}).values() for end in band]
    least = 0.05 if measure.is_fraction else 1e-9
    if scale is Axis:
        ends.append(least)  # equal zeros have a scale too
    x = scale.of(ends, gutter, WIDTH - 14)
    parts = [_legend(name, i, gutter) for i, name in enumerate(legend)]
    top = 6.0 + ROOM * len(legend)
    y = top
    for group, bars in groups.items():
        middle = y + BAR * len(bars) / 2 + 4
        parts.append(
            Markup('<text class="label" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>').format(
                gutter - 10, middle, group
            )
        )
        if chance and group in chance:
            parts.append(draw_chance(chance[group], x, y - 3, BAR * len(bars) + 6, measure))
        for i, bar in enumerate(bars):
            parts += _draw_bar(group, bar, y + BAR * i, x, i, measure)
        y += BAR * len(bars) + GAP
    grid = draw_grid(x, top - 4, y - GAP + 4, measure.factor)
    label = Markup('<text class="axis" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>')
    said = label.format((gutter + WIDTH - 14) / 2, y + 2 * ROOM - 12, title)
    return wrap([grid, *parts, said], y + 2 * ROOM, title)


def _legend(name: str, number: int, left: float) -> Markup:
    return Markup(
        '<rect class="bar b{}" x="{:.1f}" y="{}" width="11" height="11"/>'
        '<text class="tick" x="{:.1f}" y="{}">{}</text>'
    ).format(number % KINDS, left, 4 + ROOM * number, left + 17, 14 + ROOM * number, name)


def _draw_bar(
    group: str, bar: Bar, y: float, x: Axis, number: int, measure: Measure
) -> list[Markup]:
    name, value, low, high = bar
    if math.isnan(value):
        return []
    note = f"{f'{group}, {name}'.strip(', ')}: {measure.text(value, 1)} {measure.sign}"
    left, right = sorted((x.at(x.base), x.at(value)))
    parts = [
        Markup('<rect class="bar b{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}">'
               "<title>{}</title></rect>").format(
            number % KINDS, left, y + 1, right - left, BAR - 2, note)
    ]  # fmt: skip
    if low == low:
        parts.append(
            Markup('<path class="reach" d="M{:.1f} {:.1f}H{:.1f}"/>').format(
                x.at(low), y + BAR / 2, x.at(high)
            )
        )
    return parts
