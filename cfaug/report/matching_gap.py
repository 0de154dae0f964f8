"""Matching gaps: a model's scores of every pair, saved beside its results, and Figure 3.

COCO-Counterfactuals, section 4.2.2. The scores are items (see ``items``) by the names of
``cfaug.stats.ranking``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.report.drawing import Drawing, style
from cfaug.report.items import benchmarks_with_items, read_items
from cfaug.report.page import render, write_page
from cfaug.report.plots import (
    ACCENT,
    DOT,
    INK,
    LINE,
    QUIET,
    ROWS,
    SERIES_NAME,
    SMALL,
    above,
    around,
    draw_none,
    lines_of,
    name_rows,
    new_axes,
    note,
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

READABLE = {
    "IR_r": "image, random", "IR_c": "image, counterfactual",
    "TR_r": "text, random", "TR_c": "text, counterfactual",
}  # fmt: skip
ORDER = tuple(READABLE)
ROW = 52
"""Pixels of a gap's distribution."""

BINS = 400
"""Bins of the histogram before smoothing."""

if TYPE_CHECKING:
    pass

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
