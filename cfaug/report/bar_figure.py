"""Groups of bars, with values by chance behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from cfaug.core.errors import UserError
from cfaug.report.drawing import Drawing, style
from cfaug.report.numbers import PERCENT, Measure
from cfaug.report.plots import (
    INK,
    LINE,
    SERIES,
    Band,
    bar,
    draw_chance,
    draw_none,
    is_drawable,
    lines_of,
    name_rows,
    name_series,
    new_axes,
    value_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR, GAP = 17, 12
"""Pixels of a bar, and between groups of them."""

BAR_COLOURS, BAR_ALPHA = (SERIES[1], SERIES[0], *SERIES[2:]), 0.7

Bar = tuple[str, float, float, float]
"""A bar: its name, its value, ``nan`` for none, and the ends of an interval, ``nan`` for none.

Infinity is treated like ``nan``.
"""


@style()
def grouped_bars(
    groups: Mapping[str, Sequence[Bar]],
    title: str,
    measure: Measure = PERCENT,
    legend: Sequence[str] = (),
    chance: Mapping[str, Band] | None = None,
    logarithmic: bool = False,
) -> Drawing:
    """Draw groups of horizontal bars from zero, with intervals as lines over them.

    Args:
        groups: bars of each group, by its name; at least one group. Bars at the same position have
            the same colour.
        title: title of the x axis.
        measure: unit and format of printed values.
        legend: names of the bars of a group, printed above; empty for no legend.
        chance: values by chance, drawn behind the bars of their group, by its name.
        logarithmic: whether the axis is logarithmic; bars then start from the power of ten below
            all values.

    Raises:
        UserError: if an axis is logarithmic and a value is not above 0.
    """
    chance = {group: band for group, band in (chance or {}).items() if is_drawable(*band)}
    ends = [v for bars in groups.values() for _, *one in bars for v in one if is_drawable(v)]
    if logarithmic and not ends:
        return draw_none(title)
    ends += [end for band in chance.values() for end in band]
    limits = _log_limits(ends) if logarithmic else _limits(ends, measure)
    heights = [max(BAR * len(bars), LINE * lines_of([group])) for group, bars in groups.items()]
    bottoms = list(accumulate(height + GAP for height in heights))
    middles = [end - (h + GAP) / 2 for end, h in zip(bottoms, heights, strict=True)]
    axes = new_axes(bottoms[-1] + 50 + 18 * len(legend))
    if logarithmic:
        axes.set_xscale("log")
        axes.minorticks_off()
    for (group, bars), middle in zip(groups.items(), middles, strict=True):
        half = BAR * len(bars) / 2
        if group in chance:
            draw_chance(axes, chance[group], measure, middle, 2 * half + 6)
        for i, one in enumerate(bars):
            place = middle - half + BAR * (i + 0.5), limits[0] if logarithmic else 0.0
            _draw_bar(axes, group, one, place, BAR_COLOURS[i % len(BAR_COLOURS)], measure)
    name_rows(axes, zip(groups, middles, strict=True), bottoms[-1])
    value_axis(axes, "x", limits, title, measure.factor)
    colours = [(name, BAR_COLOURS[i % len(BAR_COLOURS)]) for i, name in enumerate(legend)]
    name_series(axes, colours, swatches=True)
    return Drawing.of(axes, title)


def _limits(ends: Sequence[float], measure: Measure) -> tuple[float, float]:
    """Return limits from zero, or the lowest value if negative, to a little beyond the values."""
    least = 0.05 if measure.is_fraction else 1e-9  # a scale even if all values are zero
    return min([0.0, *ends]) * 1.12, max([least, *ends]) * 1.12


def _log_limits(ends: Sequence[float]) -> tuple[float, float]:
    """Return limits from the power of ten below the values to a little above them."""
    if not ends or min(ends) <= 0:
        raise UserError("a logarithmic axis needs values above 0")
    return 10.0 ** math.floor(math.log10(min(ends)) - 1e-9), max(ends) * 1.4


def _draw_bar(
    axes: Axes, group: str, one: Bar, place: tuple[float, float], colour: str, measure: Measure
) -> None:
    """Draw a bar at a y, if it has a value."""
    name, value, low, high = one
    if not is_drawable(value):
        return
    y, base = place
    told = f"{f'{group}, {name}'.strip(', ')}: {measure.text(value, 1)} {measure.sign}"
    bar(axes, (base, value), y, BAR - 2, told, color=colour, alpha=BAR_ALPHA)
    if is_drawable(low, high):
        axes.plot([low, high], [y, y], color=INK, linewidth=1.8)
