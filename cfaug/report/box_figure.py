"""Box plots: one distribution per row, with its extremes named and chance behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cfaug.report.drawing import COLOURS, Drawing, overhang, style
from cfaug.report.labels import limit_marks, printable
from cfaug.report.numbers import PERCENT, Measure
from cfaug.report.plots import (
    DOT,
    INK,
    LINE,
    SMALL,
    Band,
    around,
    bar,
    draw_chance,
    draw_none,
    is_drawable,
    keep_drawable_rows,
    lines_of,
    mark_empty,
    name_rows,
    new_axes,
    note,
    value_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

ROW, HEIGHT = 74, 20
"""Pixels of a row and of its box."""

FENCE = 1.5
"""Whiskers reach the farthest value within this many interquartile ranges of the box (Tukey)."""

NAME = 30
"""Most letters of an extreme's name."""


@dataclass(frozen=True)
class Box:
    """Five numbers of a distribution, and the values beyond its whiskers.

    Attributes:
        low: end of the lower whisker.
        first: lower quartile.
        median: median of all values.
        third: upper quartile.
        high: end of the upper whisker.
        far: names of the values beyond the whiskers, in their order.
    """

    low: float
    first: float
    median: float
    third: float
    high: float
    far: tuple[str, ...]


def summarise_box(values: Mapping[str, float]) -> Box:
    """Return the box of named values, at least one; quartiles by linear interpolation.

    >>> summarise_box({"a": 1, "b": 2, "c": 3, "d": 4, "e": 100})
    Box(low=1.0, first=2.0, median=3.0, third=4.0, high=4.0, far=('e',))
    """
    found = np.array(list(values.values()), np.float64)
    first, median, third = np.quantile(found, [0.25, 0.5, 0.75]).tolist()
    reach = FENCE * (third - first)
    within = found[(found >= first - reach) & (found <= third + reach)]
    low, high = float(within.min()), float(within.max())
    far = tuple(name for name, value in values.items() if not low <= value <= high)
    return Box(low, first, median, third, high, far)


def name_extreme(values: Mapping[str, float], largest: bool) -> tuple[str, float]:
    """Return the largest or smallest value with the names that share it.

    >>> name_extreme({"pilot": 0.0, "nurse": 2.0, "cook": 0.0}, largest=False)
    ('cook, pilot', 0.0)
    >>> name_extreme(dict.fromkeys("abcd", 1.0), largest=True)
    ('a, b and 2 more', 1.0)
    """
    value = max(values.values()) if largest else min(values.values())
    names = sorted(name for name, own in values.items() if own == value)
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more, value


@style()
def box_plot(
    rows: Mapping[str, Mapping[str, float]],
    title: str,
    measure: Measure = PERCENT,
    chance: Mapping[str, Band] | None = None,
) -> Drawing:
    """Draw one box per row: quartiles, whiskers, outliers; the extremes are named.

    Args:
        rows: values of each row by name; ``nan`` and infinity are left out, as the title of the
            axis says.
        title: title of the x axis.
        measure: unit and format of printed values; the largest is red, the smallest green.
        chance: values by chance, drawn behind their row, by its name.
    """
    rows, title = keep_drawable_rows(rows, title)
    if not any(rows.values()):
        return draw_none(title)
    chance = {row: band for row, band in (chance or {}).items() if is_drawable(*band)}
    height = max(ROW, LINE * lines_of(list(rows)) + 10)
    middles = {row: height * (number + 0.5) for number, row in enumerate(rows)}
    ends = [value for values in rows.values() for value in values.values()]
    ends += [end for band in chance.values() for end in band]
    axes = new_axes(height * len(rows) + 48)
    names: list[Annotation] = []
    for row, values in rows.items():
        if row in chance:
            draw_chance(axes, chance[row], measure, middles[row], 64)
        if not values:
            mark_empty(axes, middles[row])
            continue
        _draw_box(axes, row, values, middles[row], measure)
        for largest in (True, False) if len(set(values.values())) > 1 else ():
            names.append(_name(axes, *name_extreme(values, largest), middles[row], largest))
    name_rows(axes, middles.items(), height * len(rows))
    value_axis(axes, "x", around(ends), title, measure.factor)
    drawing = Drawing.of(axes, title)
    for name in names:
        name.xyann = (overhang(name, axes), name.xyann[1])
    return drawing


def _draw_box(
    axes: Axes, row: str, values: Mapping[str, float], y: float, measure: Measure
) -> None:
    box = summarise_box(values)
    for ends in ((box.low, box.first), (box.third, box.high)):
        axes.plot(ends, [y, y], color=DOT, linewidth=1.6)
    told = f"{row}: median {measure.text(box.median, 1)} {measure.sign} of {len(values):,}"
    bar(axes, (box.first, box.third), y, HEIGHT, told, fc=(DOT, 0.3), ec=DOT, linewidth=1.4)
    half = HEIGHT / 2
    axes.plot([box.median] * 2, [y - half, y + half], color=INK, lw=2.2)
    for name in box.far:
        (far,) = axes.plot(values[name], y, "o", ms=5.2, color=DOT, fillstyle="none", mew=1.2)
        note(far, f"{name}: {measure.text(values[name], 1)} {measure.sign}")


def _name(axes: Axes, name: str, value: float, y: float, largest: bool) -> Annotation:
    """Draw a circle and its name, above it for the largest value; return the name."""
    short = limit_marks(printable(name))
    short = short if len(short) <= NAME else f"{short[: NAME - 1]}…"
    colour = COLOURS["most" if largest else "least"]
    (drawn,) = axes.plot(value, y, "o", markersize=8.4, markeredgewidth=0, color=colour)
    note(drawn, f"{name}: {value:.4g}")
    said = axes.annotate(
        short, (value, y), (0, 12 if largest else -24), textcoords="offset points",
        ha="center", color=colour, fontsize=SMALL, in_layout=False,
    )  # fmt: skip
    note(said, f"{name}: {value:.4g}")
    return said
