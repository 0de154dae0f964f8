"""Box plots, bars, gains against costs, and the matching gaps of a model.

Matching gaps (COCO-Counterfactuals, section 4.2.2, Figure 3) are a model's scores of every pair,
saved beside its results as items (see ``items``) by the names of ``cfaug.stats.ranking``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.report.drawing import COLOURS, Drawing, limit_marks, overhang, printable, style
from cfaug.report.items import benchmarks_with_items, read_items
from cfaug.report.page import PERCENT, Measure, render, write_page
from cfaug.report.plots import (
    ACCENT,
    DOT,
    INK,
    LINE,
    QUIET,
    ROWS,
    SERIES,
    SERIES_NAME,
    SMALL,
    Band,
    Values,
    above,
    around,
    bar,
    dot,
    draw_chance,
    draw_none,
    is_drawable,
    keep_drawable_rows,
    limits_of,
    lines_of,
    mark_empty,
    mean_interval,
    mention_missing,
    name_rows,
    name_series,
    new_axes,
    note,
    series_colours,
    value_axis,
    write,
)
from cfaug.stats.ranking import (
    COUNTERFACTUAL,
    RANDOM,
    SCORES,
    Shift,
    gaps_where_scored,
    shift,
    summary,
)

if TYPE_CHECKING:
    from matplotlib.text import Annotation


# Box plots: one distribution per row, with its extremes named and chance behind it.

BOX_ROW, HEIGHT = 74, 20
"""Pixels of a row and of its box."""
FENCE = 1.5
"""Whiskers reach the farthest value within this many interquartile ranges of the box (Tukey)."""
NAME = 30
"""Most letters of an extreme's name."""


@dataclass(frozen=True)
class Box:
    """The ends of a distribution's whiskers, its quartiles, and the names of values beyond."""

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
    numbers = np.array(list(values.values()), np.float64)
    first, median, third = np.quantile(numbers, [0.25, 0.5, 0.75]).tolist()
    reach = FENCE * (third - first)
    within = numbers[(numbers >= first - reach) & (numbers <= third + reach)]
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
    names = sorted(name for name, number in values.items() if number == value)
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
    """
    rows, title = keep_drawable_rows(rows, title)
    if not any(rows.values()):
        return draw_none(title)
    chance = {row: band for row, band in (chance or {}).items() if is_drawable(*band)}
    height = max(BOX_ROW, LINE * lines_of(list(rows)) + 10)
    middles = {row: height * (number + 0.5) for number, row in enumerate(rows)}
    ends = [value for values in rows.values() for value in values.values()]
    ends += [end for band in chance.values() for end in band]
    axes = new_axes(height * len(rows) + 48)
    names: list[Annotation] = []
    for row, values in rows.items():
        y = middles[row]
        if row in chance:
            draw_chance(axes, chance[row], measure, y, 64)
        if not values:
            mark_empty(axes, y)
            continue
        box = summarise_box(values)
        for whisker in ((box.low, box.first), (box.third, box.high)):
            axes.plot(whisker, [y, y], color=DOT, linewidth=1.6)
        tooltip = f"{row}: median {measure.text(box.median, 1)} {measure.sign} of {len(values):,}"
        bar(axes, (box.first, box.third), y, HEIGHT, tooltip, fc=(DOT, 0.3), ec=DOT, linewidth=1.4)
        axes.plot([box.median] * 2, [y - HEIGHT / 2, y + HEIGHT / 2], color=INK, lw=2.2)
        for name in box.far:
            (far,) = axes.plot(values[name], y, "o", ms=5.2, color=DOT, fillstyle="none", mew=1.2)
            note(far, f"{name}: {measure.text(values[name], 1)} {measure.sign}")
        for largest in (True, False) if len(set(values.values())) > 1 else ():
            # A circle and its name, above it for the largest value.
            name, value = name_extreme(values, largest)
            short = limit_marks(printable(name))
            short = short if len(short) <= NAME else f"{short[: NAME - 1]}…"
            colour = COLOURS["most" if largest else "least"]
            (circle,) = axes.plot(value, y, "o", markersize=8.4, markeredgewidth=0, color=colour)
            note(circle, f"{name}: {value:.4g}")
            annotation = axes.annotate(
                short, (value, y), (0, 12 if largest else -24), textcoords="offset points",
                ha="center", color=colour, fontsize=SMALL, in_layout=False,
            )  # fmt: skip
            note(annotation, f"{name}: {value:.4g}")
            names.append(annotation)
    name_rows(axes, middles.items(), height * len(rows))
    value_axis(axes, "x", limits_of(ends, measure), _with_chance(title, chance), measure.factor)
    drawing = Drawing.of(axes, title)
    for text in names:
        text.xyann = (overhang(text, axes), text.xyann[1])
    return drawing


def _with_chance(title: str, chance: Mapping[str, Band]) -> str:
    """Return the title of an axis, with the meaning of the dashed lines if there are any."""
    return f"{title} (dashed: by chance)" if chance else title


# Groups of bars, with values by chance behind them.

BAR, GAP = 17, 12
"""Pixels of a bar, and between groups of them."""
BAR_COLOURS = (SERIES[1], SERIES[0], *SERIES[2:])
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
) -> Drawing:
    """Draw groups of horizontal bars from zero, with intervals as lines over them.

    Args:
        groups: bars of each group, by its name; at least one group. Bars at the same position have
            the same colour.
        legend: names of the bars of a group, printed above; empty for no legend.
    """
    chance = {group: band for group, band in (chance or {}).items() if is_drawable(*band)}
    ends = [
        v for bars in groups.values() for _, *numbers in bars for v in numbers if is_drawable(v)
    ]
    ends += [end for band in chance.values() for end in band]
    least = 0.05 if measure.is_fraction else 1e-9  # a scale even if all values are zero
    limits = min([0.0, *ends]) * 1.12, max([least, *ends]) * 1.12
    values = [bar[1] for bars in groups.values() for bar in bars if is_drawable(bar[1])]
    if values:
        within = limits_of([0.0, *values], measure, limits)
        limits = max(limits[0], within[0]), min(limits[1], within[1])
    heights = [max(BAR * len(bars), LINE * lines_of([group])) for group, bars in groups.items()]
    bottoms = list(accumulate(height + GAP for height in heights))
    middles = [end - (h + GAP) / 2 for end, h in zip(bottoms, heights, strict=True)]
    axes = new_axes(bottoms[-1] + 50 + 18 * len(legend))
    for (group, bars), middle in zip(groups.items(), middles, strict=True):
        half = BAR * len(bars) / 2
        if group in chance:
            draw_chance(axes, chance[group], measure, middle, 2 * half + 6)
        for i, (name, value, low, high) in enumerate(bars):
            if not is_drawable(value):
                continue
            y, colour = middle - half + BAR * (i + 0.5), BAR_COLOURS[i % len(BAR_COLOURS)]
            tooltip = f"{f'{group}, {name}'.strip(', ')}: {measure.text(value, 1)} {measure.sign}"
            bar(axes, (0.0, value), y, BAR - 2, tooltip, color=colour, alpha=0.7)
            if is_drawable(low, high):
                axes.plot([low, high], [y, y], color=INK, linewidth=1.8)
    name_rows(axes, zip(groups, middles, strict=True), bottoms[-1])
    value_axis(axes, "x", limits, _with_chance(title, chance), measure.factor)
    colours = [(name, BAR_COLOURS[i % len(BAR_COLOURS)]) for i, name in enumerate(legend)]
    name_series(axes, colours, swatches=True)
    return Drawing.of(axes, title)


# Gains against costs: a line through the means of its points, both intervals.

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
    """
    missing = 0
    drawn: dict[str, list[Point]] = {}
    for name, points in series.items():
        drawn[name] = []
        for point, xs, ys in points:
            seeds = [seed for seed in xs if is_drawable(xs[seed], ys[seed])]
            missing += len(xs) - len(seeds)
            if seeds:
                kept = [{seed: values[seed] for seed in seeds} for values in (xs, ys)]
                drawn[name].append((point, kept[0], kept[1]))
    x_title = mention_missing(x_title, missing)
    if not any(drawn.values()):
        return draw_none(x_title)
    axes = new_axes(320 + 18 * len(series))
    axes.axvline(0, color=DOT, linewidth=1, alpha=0.35)
    axes.axhline(0, color=DOT, linewidth=1, alpha=0.35)
    all_x, all_y = [0.0], [0.0]
    for name, colour in series_colours(series).items():
        places = [(mean_interval(xs), mean_interval(ys)) for _, xs, ys in drawn[name]]
        axes.plot([x[0] for x, _ in places], [y[0] for _, y in places], color=colour, linewidth=2)
        for (point, _, _), (x, y) in zip(drawn[name], places, strict=True):
            axes.plot(x[1:], [y[0], y[0]], color=colour, linewidth=1.6)
            axes.plot([x[0], x[0]], y[1:], color=colour, linewidth=1.6)
            tooltip = (
                f"{name}, {point}: {measures[0].difference(x[0])}, {measures[1].difference(y[0])}"
            )
            dot(axes, x[0], y[0], tooltip, colour)
            write(axes, point, (x[0], y[0]), (6, 10), color=QUIET, fontsize=SMALL)
            all_x += x
            all_y += y
    value_axis(axes, "x", limits_of(all_x, measures[0]), x_title, measures[0].factor)
    value_axis(axes, "y", limits_of(all_y, measures[1]), y_title, measures[1].factor)
    name_series(axes, list(series_colours(series).items()))
    return Drawing.of(axes, f"{y_title} by {x_title}")


READABLE = {
    "IR_r": "image, random", "IR_c": "image, counterfactual",
    "TR_r": "text, random", "TR_c": "text, counterfactual",
}  # fmt: skip
ORDER = tuple(READABLE)
ROW = 52
"""Pixels of a gap's distribution."""

BINS = 400
"""Bins of the histogram before smoothing."""

Gaps = Mapping[str, np.ndarray]
"""{gap: float64 (pairs,)}, ``nan`` where a pair lacks it."""


@dataclass(frozen=True)
class PairGaps:
    """The gaps of all pairs of one benchmark and model.

    Attributes:
        kind: kind of the scores: ``cosine x scale``, ``probability`` or ``logit``.
        gaps: gap of every pair, float64 (pairs,), by the gap's name; ``nan`` where a pair lacks it.
    """

    kind: str
    gaps: Gaps

    def __len__(self) -> int:
        return max(map(len, self.gaps.values()), default=0)


def read_gaps(folder: Path) -> dict[str, PairGaps]:
    """Return the gaps saved beside a run's results, by benchmark."""
    gaps = {}
    for name in benchmarks_with_items(folder):
        items = read_items(folder, name)
        if items is not None and {"kind", *SCORES["c"]} <= items.columns.keys():
            scores = {column: items.metric(column) for some in SCORES.values() for column in some
                      if column in items.columns}  # fmt: skip
            gaps[name] = PairGaps(str(items.columns["kind"][0]), gaps_where_scored(scores))
    return gaps


def shifts(gaps: Gaps) -> dict[str, Shift]:
    """Compare random with counterfactual gaps of the same anchors: {"IR": ..., "TR": ...}."""
    return {
        random[:2]: shift(gaps[random], gaps[counterfactual])
        for random, counterfactual in zip(RANDOM, COUNTERFACTUAL, strict=True)
        if random in gaps and counterfactual in gaps
        if np.isfinite(gaps[random] + gaps[counterfactual]).any()
    }


def _known(gaps: Gaps) -> dict[str, np.ndarray]:
    """Return the finite values of every gap that has any, in the order of figures."""
    finite = {name: gaps[name][np.isfinite(gaps[name])] for name in ORDER if name in gaps}
    return {name: values for name, values in finite.items() if len(values)}


def sentences(gaps: Gaps) -> list[str]:
    """Describe the gaps of one model in words."""
    lines = []
    for name, values in _known(gaps).items():
        stats = summary(values)
        spread = "" if stats.n == 1 else f" (SD {stats.sd:.3g})"
        lines.append(
            f"{name}: mean {stats.mean:.3g}{spread}, {100 * stats.below_zero:.1f} % below zero, "
            f"{stats.n} pair{'s' * (stats.n > 1)}"
        )
    for name, moved in shifts(gaps).items():
        p = f"p = {moved.p:.2g}" if moved.p >= 1e-4 else "p < 0.0001"
        lines.append(
            f"{name}_c is smaller than {name}_r by {moved.mean:.3g} on average, for "
            f"{100 * moved.smaller:.1f} % of {moved.n} anchor{'s' * (moved.n > 1)} (Wilcoxon, "
            f"one-sided: {p})"
        )
    return lines


@style()
def gap_figure(gaps: Gaps, title: str, kind: str) -> Drawing:
    """Draw the distribution of each gap, one above the other, on one axis with zero marked.

    The axis leaves out the outermost 0.2 % on either side; shares below zero count every pair.

    Args:
        gaps: the gaps of one model; values that are not finite are left out.
    """
    known = _known(gaps)
    if not known:
        return draw_none(title)
    edges = [float(np.quantile(v, q)) for v in known.values() for q in (0.002, 0.998)]
    limits = around([*edges, 0.0])
    lines = lines_of([title], SERIES_NAME)
    axes = new_axes(ROW * len(known) + 54 + LINE * lines)
    rows = []
    for i, (name, values) in enumerate(known.items(), 1):
        base = ROW * float(i)
        rows.append((READABLE[name], base - 24))
        below = f"{100 * float((values < 0).mean()):.1f} % < 0"
        position = (0, ROW * i - 9)
        write(axes, below, position, (-10, 0), coords=ROWS, ha="right", color=QUIET, fontsize=SMALL)
        at, density = estimate_density(values, limits)
        ridge = np.concatenate([[base], base - (ROW - 12) * density / density.max(), [base]])
        ends = np.concatenate([at[:1], at, at[-1:]])
        colour = ACCENT if name in COUNTERFACTUAL else DOT
        (drawn,) = axes.fill(ends, ridge, facecolor=(colour, 0.3), edgecolor=colour, linewidth=1.3)
        note(drawn, f"{name}: mean {values.mean():.3g}, {len(values)} pairs")
        mean = float(np.clip(values.mean(), *limits))
        axes.plot([mean, mean], [base, base - 12], color=INK, linewidth=2.2)
    axes.axvline(0, color=INK, linewidth=1, linestyle=(0, (3, 3)))
    name_rows(axes, rows, ROW * len(known), [READABLE[name] for name in COUNTERFACTUAL])
    height = 12 + LINE * (lines - 1) / 2
    write(axes, title, (0, 1), (0, height), coords=above([title]), width=SERIES_NAME)
    value_axis(axes, "x", limits, f"score of the right pair minus that of the wrong one ({kind})")
    return Drawing.of(axes, f"Matching gaps: {title}")


def estimate_density(
    values: np.ndarray, limits: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return points between limits and a Gaussian kernel estimate there, up to a factor.

    The kernel's width is Silverman's, or a pixel of the figure if that is more. A smoothed
    histogram is used because scipy's ``gaussian_kde`` fails on equal values and takes longer the
    more pairs there are.
    """
    from scipy.ndimage import gaussian_filter1d

    spread = min(values.std(), (np.quantile(values, 0.75) - np.quantile(values, 0.25)) / 1.349)
    width = max(0.9 * spread * len(values) ** -0.2, (limits[1] - limits[0]) / 100)
    counts, edges = np.histogram(values, BINS, (limits[0] - 4 * width, limits[1] + 4 * width))
    at = (edges[1:] + edges[:-1]) / 2
    smooth = gaussian_filter1d(counts.astype(np.float64), width / (edges[1] - edges[0]))
    inside = (at >= limits[0]) & (at <= limits[1])
    density = smooth[inside]
    return at[inside], density if density.max() > 0 else np.ones_like(density)


def write_gaps_page(folder: Path, name: str) -> Path:
    """Write ``matching.html`` beside a run's results: the figure and its numbers; return it."""
    parts = [
        (
            gap_figure(pair_gaps.gaps, f"{name}, {benchmark}", pair_gaps.kind),
            sentences(pair_gaps.gaps),
        )
        for benchmark, pair_gaps in read_gaps(folder).items()
    ]
    if not parts:
        raise UserError(f"{folder} has no scores of pairs; run evaluate.py benchmark=matching")
    text = render("matching.html", title=f"Matching gaps of {name}", parts=parts)
    return write_page(folder / "matching.html", text)
