"""Figures as inline SVG, drawn by hand: no plotting library, and colours follow the page's theme.

Every string that comes from outside passes through ``markupsafe``; the classes are styled by
``templates/report.css``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from cfaug.errors import UserError
from cfaug.metrics.effects import t_interval
from cfaug.report.labels import wrap_text
from cfaug.report.numbers import PERCENT, Measure

WIDTH = 520
LABEL, LINE = 34, 14
"""Letters of a label's line at most, and pixels from one line to the next."""

LETTER = 7.1
"""Width of a letter of the 12 px label font, at most, in bold."""

SERIES = (" accent", "", " s2", " s3", " s4")
"""Classes of a curve's series, each of another colour; further ones are as the second."""

Values = Mapping[int, float]
"""{seed: value}."""

Band = tuple[float, float, float]
"""What chance gives: low end, mean and high end."""


@dataclass(frozen=True)
class Axis:
    """A linear scale from values to pixels, with round ticks."""

    low: float
    high: float
    start: float
    end: float

    @property
    def base(self) -> float:
        """The value from which bars start."""
        return 0.0

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float) -> Axis:
        """Return the scale from zero, or below it where values are, to a little beyond them."""
        return cls(min([0.0, *values]) * 1.12, max(values) * 1.12, start, end)

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Return round values inside the axis, about as many as asked.

        >>> Axis(0.31, 0.72, 0, 100).ticks()
        [0.4, 0.5, 0.6, 0.7]
        """
        rough = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 10) for i in range(first, last + 1)]


class LogAxis(Axis):
    """A logarithmic scale of values above 0, with the powers of ten as ticks."""

    @property
    def base(self) -> float:
        """The value from which bars start."""
        return self.low

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float) -> LogAxis:
        """Return the scale from the power of ten below the values to a little above them.

        Raises:
            UserError: if there is no value, or one is not above 0.
        """
        if not values or min(values) <= 0:
            raise UserError("a logarithmic axis needs values above 0")
        return cls(
            10.0 ** math.floor(math.log10(min(values)) - 1e-9), max(values) * 1.4, start, end
        )

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Return the powers of ten inside the axis.

        >>> LogAxis.of([0.02, 3.0], 0, 100).ticks()
        [0.01, 0.1, 1.0]
        """
        first, last = (math.log10(end) for end in (self.low, self.high))
        powers = range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)
        return [10.0**power for power in powers]


def axis(values: Sequence[float], start: float, end: float) -> Axis:
    """Fit an axis to values with a little room at both ends."""
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.05
    return Axis(low - room, high + room, start, end)


def strip_plot(
    arms: Mapping[str, Values],
    title: str,
    highlight: Collection[str] = (),
    measure: Measure = PERCENT,
) -> Markup:
    """Draw one row per arm and one dot per seed; a thin line joins a seed across the arms.

    The bar is the mean; the band around it is Student's 95 % interval for the mean.

    Args:
        arms: {name as shown: {seed: value}}, from top to bottom; each has at least one seed.
        title: what the x axis shows.
        highlight: the arms in the accent colour.
        measure: how values are printed.
    """
    names = {name: wrap_text(name, LABEL) for name in arms}
    gutter = 14 + LETTER * max(len(line) for lines in names.values() for line in lines)
    row, top = max(38, 10 + LINE * max(map(len, names.values()))), 8
    bottom = top + row * len(arms)
    spans = {name: mean_interval(values) for name, values in arms.items()}
    everything = [v for values in arms.values() for v in values.values()]
    everything += [edge for _, low, high in spans.values() for edge in (low, high)]
    x = axis(everything, gutter, WIDTH - 14)
    middle = {name: top + row * (i + 0.5) for i, name in enumerate(arms)}
    parts = [draw_grid(x, top, bottom, measure.factor)]
    parts += [_seed_lines(arms, middle, x)]
    for name, values in arms.items():
        kind = " accent" if name in highlight else ""
        parts += draw_label(names[name], gutter - 10, middle[name] + 4, kind)
        texts = {seed: _dot_text(name, f"seed {seed}", v, measure) for seed, v in values.items()}
        parts += _strip(values, texts, spans[name], middle[name], x, kind)
    return _svg(parts, bottom + 40, title, gutter)


def draw_label(lines: Sequence[str], x: float, y: float, kind: str = "") -> list[Markup]:
    """Return lines of text that end at ``x``, the middle of them at ``y``."""
    text = Markup('<text class="label{}" x="{}" y="{:.1f}" text-anchor="end">{}</text>')
    top = y - LINE * (len(lines) - 1) / 2
    return [text.format(kind, x, top + LINE * i, line) for i, line in enumerate(lines)]


def _dot_text(name: str, which: str, value: float, measure: Measure) -> str:
    return f"{name}, {which}: {measure.text(value, 1)} {measure.sign}"


def _strip(
    values: Values,
    texts: Mapping[int, str],
    span: tuple[float, float, float],
    y: float,
    x: Axis,
    kind: str,
) -> list[Markup]:
    mean, low, high = span
    band = Markup('<rect class="band{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="20"/>')
    bar = Markup('<path class="mean" d="M{:.1f} {:.1f}v26"/>')
    dots = [draw_dot(x.at(value), y, texts[seed], kind) for seed, value in values.items()]
    return [
        band.format(kind, x.at(low), y - 10, x.at(high) - x.at(low)),
        *dots,
        bar.format(x.at(mean), y - 13),
    ]


def mean_interval(values: Values) -> tuple[float, float, float]:
    """Return the mean over seeds, and the ends of Student's 95 % interval; the mean without one."""
    mean = sum(values.values()) / len(values)
    low, high = t_interval(list(values.values()))
    return (mean, mean, mean) if math.isnan(low) else (mean, low, high)


def _seed_lines(arms: Mapping[str, Values], middle: Mapping[str, float], x: Axis) -> Markup:
    lines = []
    names = list(arms)
    for upper, lower in pairwise(names):
        for seed in arms[upper].keys() & arms[lower].keys():
            lines.append(
                Markup('<path class="seed" d="M{:.1f} {:.1f}L{:.1f} {:.1f}"/>').format(
                    x.at(arms[upper][seed]), middle[upper], x.at(arms[lower][seed]), middle[lower]
                )
            )
    return Markup("").join(sorted(lines))


def curve(
    series: Mapping[str, Mapping[float, Values]],
    x_title: str,
    y_title: str,
    measure: Measure = PERCENT,
    chance: Band | None = None,
) -> Markup:
    """Draw means over x with Student's 95 % intervals and the seeds as dots, a line per series.

    Args:
        series: {name: {x: {seed: value}}}.
        x_title: what x is.
        y_title: what y is, with its unit.
        measure: how values are printed.
        chance: what chance gives at every x, drawn behind the lines; ``None`` is not drawn.
    """
    left, top = 52, 14 + 18 * len(series)
    bottom = top + 240
    xs = [x for points in series.values() for x in points]
    spans = {n: {x: mean_interval(v) for x, v in sorted(p.items())} for n, p in series.items()}
    ys = [v for p in series.values() for values in p.values() for v in values.values()]
    ys += [edge for p in spans.values() for _, low, high in p.values() for edge in (low, high)]
    ys += chance or ()
    x, y = axis(xs, left, WIDTH - 14), axis(ys, bottom, top)
    parts = [draw_grid_y(y, left, WIDTH - 14, measure.factor)]
    if chance is not None:
        parts.append(_draw_chance_across(chance, y, left, WIDTH - 14, measure))
    parts += [
        Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{:g}</text>').format(
            x.at(value), bottom + 18, value
        )
        for value in sorted(set(xs))
    ]
    for i, (name, points) in enumerate(spans.items()):
        kind = SERIES[i] if i < len(SERIES) else ""
        texts = {
            (at, seed): _dot_text(name, f"{at:g}, seed {seed}", value, measure)
            for at, values in series[name].items()
            for seed, value in values.items()
        }
        parts += _curve_series(points, series[name], texts, (x, y), kind)
        parts.append(
            Markup('<text class="name{}" x="{}" y="{}">{}</text>').format(
                kind, left, 14 + 18 * i, name
            )
        )
    parts.append(
        Markup('<text class="axis" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            (left + WIDTH) / 2, bottom + 40, x_title
        )
    )
    return wrap(parts, bottom + 46, f"{y_title} by {x_title}")


def _curve_series(
    points: Mapping[float, tuple[float, float, float]],
    values: Mapping[float, Values],
    texts: Mapping[tuple[float, int], str],
    axes: tuple[Axis, Axis],
    kind: str,
) -> list[Markup]:
    x, y = axes
    path = " ".join(f"{x.at(at):.1f},{y.at(mean):.1f}" for at, (mean, _, _) in points.items())
    parts = [Markup('<polyline class="curve{}" points="{}"/>').format(kind, path)]
    for at, (_, low, high) in points.items():
        parts.append(
            Markup('<line class="whisker{2}" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{3:.1f}"/>')
            .format(x.at(at), y.at(low), kind, y.at(high))
        )  # fmt: skip
        parts += [draw_dot(x.at(at), y.at(v), texts[at, s], kind) for s, v in values[at].items()]
    return parts


def draw_dot(x: float, y: float, text: str, kind: str) -> Markup:
    """Return a seed's dot; ``text`` is shown when it is pointed at."""
    return Markup(
        '<circle class="dot{}" cx="{:.1f}" cy="{:.1f}" r="3.6"><title>{}</title></circle>'
    ).format(kind, x, y, text)


def draw_grid(x: Axis, top: float, bottom: float, factor: int) -> Markup:
    """Return vertical lines at round values, with the values below ``bottom``."""
    return Markup("").join(
        Markup(
            '<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>'
            '<text class="tick" x="{0:.1f}" y="{3}" text-anchor="middle">{4:g}</text>'
        ).format(x.at(value), top, bottom, bottom + 16, factor * value)
        for value in x.ticks()
    )


def draw_grid_y(y: Axis, left: float, right: float, factor: int) -> Markup:
    """Return horizontal lines at round values, with the values left of ``left``."""
    return Markup("").join(
        Markup(
            '<line class="grid" x1="{1}" x2="{2}" y1="{0:.1f}" y2="{0:.1f}"/>'
            '<text class="tick" x="{3}" y="{4:.1f}" text-anchor="end">{5:g}</text>'
        ).format(y.at(value), left, right, left - 8, y.at(value) + 4, factor * value)
        for value in y.ticks()
    )


def _svg(parts: Sequence[Markup], height: float, title: str, left: float) -> Markup:
    label = Markup('<text class="axis" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
        (left + WIDTH - 14) / 2, height - 4, title
    )
    return wrap([*parts, label], height, title)


def wrap(parts: Sequence[Markup], height: float, label: str) -> Markup:
    """Return the parts as one picture ``WIDTH`` wide, which screen readers call ``label``."""
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
        WIDTH, height, escape(label)
    )
    return head + Markup("").join(parts) + Markup("</svg>")


def draw_chance(band: Band, x: Axis, y: float, height: float, measure: Measure) -> Markup:
    """Return what chance gives as a band with its mean as a line.

    Args:
        band: low end, mean and high end.
        x: the axis of the values.
        y: top of the band, in pixels.
        height: of the band, in pixels.
        measure: how values are printed.
    """
    low, mean, high = band
    return _CHANCE.format(
        x.at(low), y, max(1.0, x.at(high) - x.at(low)), height, x.at(mean), y, f"v{height:.1f}",
        _chance_text(band, measure),
    )  # fmt: skip


def _draw_chance_across(band: Band, y: Axis, left: float, right: float, measure: Measure) -> Markup:
    """Return what chance gives as a band from left to right; ``y`` is the axis of the values."""
    low, mean, high = band
    return _CHANCE.format(
        left, y.at(high), right - left, max(1.0, y.at(low) - y.at(high)), left, y.at(mean),
        f"h{right - left:.1f}", _chance_text(band, measure),
    )  # fmt: skip


_CHANCE = Markup(
    '<g class="chance"><rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>'
    '<path d="M{:.1f} {:.1f}{}"/><title>{}</title></g>'
)


def _chance_text(band: Band, measure: Measure) -> str:
    low, mean, high = (measure.text(one, 1) for one in band)
    return f"by chance {mean} ({low} to {high}) {measure.sign}".strip()
