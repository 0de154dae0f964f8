"""Box plots as inline SVG: a distribution a row, its extremes named, chance behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from cfaug.report.figures import (
    LABEL,
    LETTER,
    LINE,
    WIDTH,
    Axis,
    Band,
    axis,
    draw_chance,
    draw_grid,
    draw_label,
    wrap,
)
from cfaug.report.labels import wrap_text
from cfaug.report.numbers import PERCENT, Measure

ROW, HEIGHT = 74, 20
"""Pixels of a row and of its box."""

FENCE = 1.5
"""Whiskers reach the farthest value within this many interquartile ranges of the box (Tukey)."""

NAME = 30
"""Letters of an extreme's name at most."""

NARROW = 6.1
"""Width of a letter of the names, in pixels."""


@dataclass(frozen=True)
class Box:
    """Five numbers of a distribution, and what lies beyond its whiskers.

    Attributes:
        low: end of the lower whisker.
        first: lower quartile.
        median: of all values.
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


def box_plot(
    rows: Mapping[str, Mapping[str, float]],
    title: str,
    measure: Measure = PERCENT,
    chance: Mapping[str, Band] | None = None,
) -> Markup:
    """Draw one box a row: quartiles, whiskers, what lies beyond; the extremes are named.

    Args:
        rows: {row: {name: value}}, at least one value a row.
        title: below the axis.
        measure: how values are printed; the largest is red, the smallest green.
        chance: {row: what chance gives}, drawn behind that row.
    """
    chance = chance or {}
    names = {row: wrap_text(row, LABEL) for row in rows}
    gutter = 14 + LETTER * max(len(line) for lines in names.values() for line in lines)
    height = max(ROW, LINE * max(map(len, names.values())) + 10)
    everything = [value for values in rows.values() for value in values.values()]
    everything += [end for band in chance.values() for end in band]
    x = axis(everything, gutter, WIDTH - 14)
    bottom = 6 + height * len(rows)
    parts = [draw_grid(x, 6, bottom, measure.factor)]
    for number, (row, values) in enumerate(rows.items()):
        middle = 6 + height * (number + 0.5)
        if row in chance:
            parts.append(draw_chance(chance[row], x, middle - 32, 64, measure))
        parts += draw_label(names[row], gutter - 10, middle + 4)
        parts += _draw_box(row, values, x, middle, measure)
    label = Markup('<text class="axis" x="{:.1f}" y="{}" text-anchor="middle">{}</text>')
    parts.append(label.format((gutter + WIDTH - 14) / 2, bottom + 36, title))
    return wrap(parts, bottom + 44, title)


def _draw_box(
    row: str, values: Mapping[str, float], x: Axis, y: float, measure: Measure
) -> list[Markup]:
    box = summarise_box(values)
    low, first, median, third, high = (
        x.at(end) for end in (box.low, box.first, box.median, box.third, box.high)
    )
    top, half = y - HEIGHT / 2, HEIGHT / 2
    told = f"{row}: median {measure.text(box.median, 1)} {measure.sign} of {len(values):,}"
    drawn = [
        Markup('<path class="whisker" d="M{:.1f} {:.1f}H{:.1f}M{:.1f} {:.1f}H{:.1f}"/>').format(
            low, y, first, third, y, high
        ),
        Markup('<rect class="box" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}">'
               "<title>{}</title></rect>").format(
            first, top, max(1.0, third - first), HEIGHT, told),
        Markup('<path class="mean" d="M{:.1f} {:.1f}v{}"/>').format(median, y - half, HEIGHT),
    ]  # fmt: skip
    for name in box.far:
        text = f"{name}: {measure.text(values[name], 1)} {measure.sign}"
        drawn.append(
            Markup('<circle class="far" cx="{:.1f}" cy="{:.1f}" r="2.6"><title>{}</title></circle>')
            .format(x.at(values[name]), y, text)
        )  # fmt: skip
    for largest in (True, False) if len(set(values.values())) > 1 else ():
        drawn += _name(*name_extreme(values, largest), x, y, largest)
    return drawn


def _name(name: str, value: float, x: Axis, y: float, largest: bool) -> Sequence[Markup]:
    """Return a circle and a name that stays inside the picture; the largest's stands above."""
    short = name if len(name) <= NAME else f"{name[: NAME - 1]}…"
    at, width = x.at(value), NARROW * len(short)
    start = min(max(at - width / 2, x.start - 4), x.end + 10 - width)
    return [
        Markup(
            '<g class="{}"><circle cx="{:.1f}" cy="{:.1f}" r="4.2"/>'
            '<text x="{:.1f}" y="{:.1f}">{}</text><title>{}</title></g>'
        ).format(
            "most" if largest else "least", at, y, start, y - 16 if largest else y + 25, short,
            f"{name}: {value:.4g}",
        )
    ]  # fmt: skip
