"""Building blocks of figures: axes, rows and series with their names, dots, bars, notes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from cfaug.core.processes import uncollected
from cfaug.report.drawing import COLOURS, NOTE, Drawing, elide_text, printable, style
from cfaug.report.page import PERCENT, Measure
from cfaug.stats.effects import t_interval

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec


PAPER, INK, QUIET, RULE, DOT, ACCENT = (
    COLOURS[name] for name in ("paper", "ink", "quiet", "rule", "dot", "accent")
)
SERIES = (ACCENT, DOT, COLOURS["blue"], COLOURS["green"], COLOURS["violet"])
"""Colours of series; any further ones have the second colour."""
WIDTH = 460
"""Width of a figure, in pixels of a page and points of a PDF."""
LABEL, LINE = 34, 14
"""Most letters of a label's line, and pixels from one line to the next."""
TITLE, UPRIGHT, SERIES_NAME = 60, 44, 46
"""Most letters in a line of a title, of an upright title, of a series's name above the axes."""
LINES, TITLE_LINES = 12, 3
"""The largest numbers of lines of a label and of a title; longer ones end with an ellipsis."""
NONE = "no values"
"""The text in place of a row or a figure without values."""
ROWS = ("axes fraction", "data")
"""Coordinates of texts beside a row."""
SMALL = 11.5
"""Font size of ticks and titles."""
Colour = str | tuple[str, float]
"""A colour, or one with its opacity."""
Band = tuple[float, float, float]
"""Values by chance: low end, mean and high end."""
Key = TypeVar("Key")


def is_drawable(*values: float) -> bool:
    """Say whether all values have a place on an axis: ``nan`` and infinity have none."""
    # matplotlib's sums overflow beyond this.
    return all(abs(value) < 1e100 for value in values)


def keep_drawable(values: Mapping[Key, float]) -> dict[Key, float]:
    """Return the values that have a place on an axis.

    >>> keep_drawable({"a": 1.0, "b": float("nan"), "c": float("inf")})
    {'a': 1.0}
    """
    return {name: value for name, value in values.items() if is_drawable(value)}


def keep_drawable_rows(
    rows: Mapping[str, Mapping[Key, float]], title: str
) -> tuple[dict[str, dict[Key, float]], str]:
    """Return the drawable values of every row, and the axis title that tells how many are missing.

    >>> keep_drawable_rows({"a": {1: 2.0}, "b": {1: float("nan")}}, "accuracy")
    ({'a': {1: 2.0}, 'b': {}}, 'accuracy (1 missing or infinite value left out)')
    """
    kept = {name: keep_drawable(values) for name, values in rows.items()}
    missing = sum(map(len, rows.values())) - sum(map(len, kept.values()))
    return kept, mention_missing(title, missing)


def mention_missing(title: str, missing: int) -> str:
    """Return an axis title that tells how many values have no place on the axis.

    >>> mention_missing("accuracy, %", 0), mention_missing("accuracy, %", 2)
    ('accuracy, %', 'accuracy, % (2 missing or infinite values left out)')
    """
    if not missing:
        return title
    return f"{title} ({missing:,} missing or infinite value{'s' * (missing > 1)} left out)"


def draw_none(title: str) -> Drawing:
    """Return a figure that says there are no values, above the title of their axis.

    It has to be called under ``style``.
    """
    axes = new_axes(96)
    value_axis(axes, "x", (0, 1), title)
    axes.set(xticks=[], yticks=[])
    write(axes, NONE, (0.5, 0.5), coords="axes fraction", ha="center", color=QUIET)
    return Drawing.of(axes, f"{title}: {NONE}")


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure of a size in pixels, with automatic layout."""
    with uncollected():
        from matplotlib.figure import Figure

    return Figure(figsize=(width / 72, height / 72), frameon=False)


def add_axes(figure: Figure, cell: SubplotSpec | None = None) -> Axes:
    """Add bare axes to a figure, filling it or in one cell of its grid."""
    axes = figure.add_subplot(cell or 111, frameon=False)
    axes.tick_params(length=0, labelsize=SMALL, labelcolor=QUIET, pad=6)
    axes.set_axisbelow(True)
    return axes


def new_axes(height: float) -> Axes:
    """Return bare axes on a figure of a height in pixels."""
    return add_axes(new_figure(height))


def value_axis(
    axes: Axes, which: str, limits: tuple[float, float], title: str = "", factor: float = 1
) -> None:
    """Give an axis its limits, round ticks with lines across, and a title.

    Args:
        which: name of the axis, ``x`` or ``y``.
    """
    from matplotlib.ticker import MaxNLocator

    axes.set(**{f"{which}lim": limits})
    axis = axes.xaxis if which == "x" else axes.yaxis
    if axis.get_scale() == "linear":
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(lambda value, _: f"{factor * value:g}")
    axis.grid(color=RULE, linewidth=1)
    lines = elide_text(title, TITLE if which == "x" else UPRIGHT, TITLE_LINES)
    axis.set_label_text("\n".join(lines), color=QUIET, fontsize=SMALL)


def around(values: Sequence[float]) -> tuple[float, float]:
    """Return limits with a little room around values.

    >>> around([0.0, 1.0]), around([2.0])
    ((-0.06, 1.06), (1.95, 2.05))
    """
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.05
    return low - room, high + room


def limits_of(
    values: Sequence[float], measure: Measure, intervals: Sequence[float] = ()
) -> tuple[float, float]:
    """Return the limits of an axis, with a little room where the metric may have values.

    A share has none below 0 or above 1, and a difference of shares none below -1, though the
    interval of its mean may.

    Args:
        intervals: ends of intervals, which may lie where no value can.

    >>> limits_of([0.2, 1.0], PERCENT, [-0.1, 1.1]), limits_of([-0.5, 0.5], PERCENT)
    ((0.0, 1.0), (-0.56, 0.56))
    """
    low, high = around([*values, *intervals])
    if not measure.is_fraction or not all(-1 <= value <= 1 for value in values):
        return low, high
    return max(low, -1.0 if min(values) < 0 else 0.0), min(high, 1.0)


def lines_of(names: Sequence[str], width: int = LABEL) -> int:
    """Return the number of lines of the longest label."""
    return max(len(elide_text(name, width, LINES)) for name in names)


def write(
    axes: Axes,
    text: str,
    position: tuple[float, float],
    offset: tuple[float, float] = (0, 0),
    *,
    coords: str | tuple[str, str] = "data",
    width: int = LABEL,
    **style: Any,
) -> None:
    """Write a text literally, in a block of lines centred vertically.

    Every line is a separate text, as matplotlib aligns the lines of one text by their widths in its
    own font, which differ from those on a page.

    Args:
        text: text to write; control characters, and what follows ``LINES`` lines, are omitted.
        offset: pixels right of the place and above it.
    """
    lines = elide_text(text, width, LINES)
    for i, line in enumerate(lines):
        up = offset[1] + LINE * ((len(lines) - 1) / 2 - i)
        axes.annotate(
            line, position, (offset[0], up), xycoords=coords, textcoords="offset points",
            **{"va": "center", **style},
        )  # fmt: skip


def mark_empty(axes: Axes, y: float) -> None:
    """Write that a row has no values, beside its middle, in pixels from the top."""
    write(axes, NONE, (0, y), (6, 0), coords=ROWS, color=QUIET, fontsize=SMALL)


def name_rows(
    axes: Axes, names: Iterable[tuple[str, float]], bottom: float, accent: Collection[str] = ()
) -> None:
    """Write the names of rows left of the axes, and set y to pixels from the top."""
    axes.set_ylim(bottom, 0)
    axes.set_yticks([])
    for name, y in names:
        style = {"color": ACCENT, "fontweight": "bold"} if name in accent else {}
        write(axes, name, (0, y), (-10, 0), coords=ROWS, ha="right", **style)


def name_series(axes: Axes, names: Sequence[tuple[str, Colour]], swatches: bool = False) -> None:
    """Write the names of series above the axes, each in a line and colour of its own.

    Args:
        swatches: whether a square of the colour is drawn before the name, which is then grey.
    """
    block: dict[str, Any] = {"coords": above([name for name, _ in names]), "width": SERIES_NAME}
    for number, (name, colour) in enumerate(names):
        height = 14 + 18 * (len(names) - 1 - number)
        style: dict[str, Any] = {"color": colour}
        if swatches:
            write(axes, "■", (0, 1), (0, height), **block, color=colour)
            style = {"color": QUIET}
        elif colour != DOT:
            style["fontweight"] = "bold"
        first = elide_text(name, SERIES_NAME, LINES)[0]
        write(axes, first, (0, 1), (16 * swatches, height), **block, **style)


def above(names: Iterable[str]) -> tuple[str, str]:
    """Return the coordinates of names above the axes: long ones begin where the figure does."""
    fits = all(len(name) <= LABEL for name in names)
    return "axes fraction" if fits else "figure fraction", "axes fraction"


def note(artist: Artist, text: str) -> None:
    """Show a text on a page when the pointer is over an artist."""
    artist.set_gid(NOTE + printable(text))


def dot(axes: Axes, x: float, y: float, text: str, colour: str = DOT) -> None:
    """Draw a point with its note."""
    (drawn,) = axes.plot(
        x, y, "o", markersize=7.2, markeredgewidth=0, color=colour, alpha=0.75, clip_on=False
    )
    note(drawn, text)


def bar(
    axes: Axes, ends: tuple[float, float], y: float, height: float, text: str = "", **style: Any
) -> None:
    """Draw a rectangle between two values around a y, with a note if there is a text."""
    (drawn,) = axes.barh(y, ends[1] - ends[0], height, left=ends[0], **style)
    if text:
        note(drawn, text)


def draw_chance(axes: Axes, band: Band, measure: Measure, y: float, height: float) -> None:
    """Draw the values by chance behind a row: a band, and its mean as a line."""
    low, mean, high = band
    bar(axes, (low, high), y, height, chance_text(band, measure), color=QUIET, alpha=0.16)
    rows = [y - height / 2, y + height / 2]
    axes.plot([mean, mean], rows, color=QUIET, linewidth=1.4, linestyle=(0, (3, 2)))


def chance_text(band: Band, measure: Measure) -> str:
    """Return the values by chance in words."""
    low, mean, high = (measure.text(value, 1) for value in band)
    return f"by chance {mean} ({low} to {high}) {measure.sign}".strip()


# Values of seeds as figures: a strip of dots per arm, and curves over x.

Values = Mapping[int, float]
"""{seed: value}."""


@style()
def strip_plot(
    arms: Mapping[str, Values],
    title: str,
    highlight: Collection[str] = (),
    measure: Measure = PERCENT,
    chance: float | None = None,
) -> Drawing:
    """Draw one row per arm and one dot per seed; a thin line joins a seed across the arms.

    The bar is the mean; the band around it is Student's 95 % interval for the mean.

    Args:
        arms: values of each arm by seed, from top to bottom, by its printed name; ``nan`` and
            infinity are left out, as the title of the axis says.
        chance: the value by chance: a line, or, where that is so far from every value that these
            would be one point, a remark in the title of the axis; ``None`` if it is not known.
    """
    arms, title = keep_drawable_rows(arms, title)
    if not any(arms.values()):
        return draw_none(title)
    row = max(38, 10 + LINE * lines_of(list(arms)))
    middle = {name: row * (i + 0.5) for i, name in enumerate(arms)}
    values = [value for by_seed in arms.values() for value in by_seed.values()]
    shown = chance is not None and _is_near(chance, values)
    if chance is not None and not shown:
        title += f" (by chance {measure.text(chance, 1)})"
    axes = new_axes(row * len(arms) + 48 + (LINE if shown else 0))
    name_rows(axes, middle.items(), row * len(arms), highlight)
    for upper, lower in pairwise(arms):
        for seed in sorted(arms[upper].keys() & arms[lower].keys()):
            ends = [arms[upper][seed], arms[lower][seed]]
            axes.plot(ends, [middle[upper], middle[lower]], color=DOT, linewidth=1, alpha=0.35)
    ends = []
    for name, of_seed in arms.items():
        if not of_seed:
            mark_empty(axes, middle[name])
            continue
        mean, low, high = mean_interval(of_seed)
        ends += [low, high]
        colour, y = ACCENT if name in highlight else DOT, middle[name]
        bar(axes, (low, high), y, 20, color=colour, alpha=0.19)
        for seed, value in of_seed.items():
            dot(axes, value, y, dot_text(name, f"seed {seed}", value, measure), colour)
        axes.plot([mean, mean], [y - 13, y + 13], color=INK, linewidth=2.2)
    if shown:
        assert chance is not None
        axes.axvline(chance, color=QUIET, linewidth=1.4, linestyle=(0, (3, 2)))
        write(
            axes, f"chance {measure.text(chance, 1)}", (chance, 1), (0, 8), ha="center",
            coords=("data", "axes fraction"), color=QUIET, fontsize=SMALL,
        )  # fmt: skip
        values.append(chance)
    value_axis(axes, "x", limits_of(values, measure, ends), title, measure.factor)
    return Drawing.of(axes, title)


def _is_near(chance: float, values: Sequence[float]) -> bool:
    """Say whether values can still be told apart on an axis that shows chance as well."""
    low, high = min(values), max(values)
    return max(low - chance, chance - high) <= 3 * (high - low)


def dot_text(name: str, which: str, value: float, measure: Measure) -> str:
    """Return the note of a seed's dot.

    Args:
        which: seed, and x if there is one, in words.
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
        chance: values by chance at every x, drawn behind the lines and named; ``None`` for none.
    """

    def count() -> int:
        return sum(len(values) for points in series.values() for values in points.values())

    given = count()
    series = {
        name: {x: keep_drawable(values) for x, values in points.items() if is_drawable(x)}
        for name, points in series.items()
    }
    x_title = mention_missing(x_title, given - count())
    if not count():
        return draw_none(x_title)
    axes = new_axes(300 + 18 * len(series))
    colours = series_colours(series)
    chance = chance if is_drawable(*(chance or ())) else None
    values, ends = list(chance or ()), []
    if chance is not None:
        low, mean, high = chance
        note(axes.axhspan(low, high, color=QUIET, alpha=0.16, linewidth=1),
             chance_text(chance, measure))  # fmt: skip
        axes.axhline(mean, color=QUIET, linewidth=1.4, linestyle=(0, (3, 2)))
        write(
            axes, "chance", (1, mean), (0, 8), ha="right", coords=("axes fraction", "data"),
            color=QUIET, fontsize=SMALL,
        )  # fmt: skip
    for name, points in series.items():
        spans = {x: mean_interval(values) for x, values in sorted(points.items())}
        axes.plot(list(spans), [mean for mean, _, _ in spans.values()], color=colours[name], lw=2)
        for x, (_, low, high) in spans.items():
            if not points[x]:
                continue
            axes.plot([x, x], [low, high], color=colours[name], linewidth=1.6)
            ends += [low, high]
            values += points[x].values()
            for seed, value in points[x].items():
                tooltip = dot_text(name, f"{x:g}, seed {seed}", value, measure)
                dot(axes, x, value, tooltip, colours[name])
    xs = sorted({x for points in series.values() for x in points})
    value_axis(axes, "x", around(xs), x_title)
    axes.set_xticks(xs)
    axes.grid(visible=False, axis="x")
    value_axis(axes, "y", limits_of(values, measure, ends), "", measure.factor)
    name_series(axes, list(colours.items()))
    return Drawing.of(axes, f"{y_title} by {x_title}")


def series_colours(names: Collection[str]) -> dict[str, str]:
    """Return the colour of each series."""
    return {name: SERIES[i] if i < len(SERIES) else DOT for i, name in enumerate(names)}
