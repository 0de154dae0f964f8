"""``candidates.svg``: candidates' scores, what the thresholds reject, and the effect of p.

Drawn from the candidate logs beside the shards, one file at a time: millions of candidates become a
few hundred counts. The SVG is self-contained and follows the reader's colour scheme.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.report.drawing import Drawing, style
from cfaug.report.page import write_page
from cfaug.report.plots import (
    ACCENT,
    DOT,
    INK,
    RULE,
    SMALL,
    Colour,
    add_axes,
    name_series,
    new_figure,
    note,
    value_axis,
    write,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

BINS = 200
"""Bins of a score: of a cosine from -1 to 1, of any other from its lowest to its highest value."""
P_BINS = 20
"""Bins of p, from 0 to 1."""

PANEL = (510, 220)
"""Width and height of a panel in pixels; the lowest one is as wide as two."""


@dataclass(frozen=True)
class CandidateCounts:
    """Counts of the candidates in the logs.

    Attributes:
        ranges: lowest and highest bound of each counted score, by its column.
        scored: number of candidates by score and bin; edits of a larger set count one by one.
        accepted: number of accepted candidates, in the same form.
        by_p: number of candidates by bin of p and reason, with "" for accepted.
        has_p: whether candidates have a p; otherwise all are in the first bin.
    """

    ranges: Mapping[str, tuple[float, float]]
    scored: Mapping[str, np.ndarray]
    accepted: Mapping[str, np.ndarray]
    by_p: Sequence[Counter[str]]
    has_p: bool

    @property
    def total(self) -> int:
        """Number of candidates."""
        return sum(count.total() for count in self.by_p)


def _read(file: Path, columns: Sequence[str], optional: str | None = None) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        more = [optional] if optional in pq.read_schema(file).names else []
        return pq.read_table(file, columns=[*columns, *more])
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"{file} is not a readable candidate log: {error}. Remove it and its commit, "
            f"{file.stem}.json, and run the same generate.py command again, which makes this shard "
            "again"
        ) from error


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    """Return a column of scores, ``nan`` where there is none or it is infinite."""
    scores = table[name].to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(np.isfinite(scores), scores, np.nan)


def compute_ranges(logs: Sequence[Path], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return the bounds between which each score is drawn: a cosine's, or its extremes.

    Args:
        names: names of the scores, which are columns of every log.
    """
    ends: dict[str, list[float]] = {name: [] for name in names}
    for file in logs:
        table = _read(file, names)
        for name in names:
            values = _numbers(table, name)
            values = values[~np.isnan(values)]
            if len(values):
                ends[name] += [float(values.min()), float(values.max())]
    ranges = {}
    for name, extremes in ends.items():
        low, high = min(extremes, default=0.0), max(extremes, default=0.0)
        if max(-low, high) <= 1 + 1e-3:  # a cosine, but for rounding errors
            ranges[name] = (-1.0, 1.0)
        else:
            ranges[name] = (low, high) if low < high else (low - 1, high + 1)
    return ranges


def tally(logs: Sequence[Path], names: Sequence[str]) -> CandidateCounts:
    """Count the candidates of several logs by the scores that are columns of every log."""
    ranges = compute_ranges(logs, names)
    scored, accepted = ({name: np.zeros(BINS, np.int64) for name in ranges} for _ in range(2))
    by_p: list[Counter[str]] = [Counter() for _ in range(P_BINS)]
    has_p = False
    for file in logs:
        table = _read(file, [*ranges, "member", "accepted", "reason"], optional="p")
        is_accepted = table["accepted"].to_numpy()
        for name, limits in ranges.items():
            values = _numbers(table, name)
            there = ~np.isnan(values)
            for counts, chosen in ((scored, there), (accepted, there & is_accepted)):
                counts[name] += np.histogram(values[chosen].clip(*limits), BINS, limits)[0]
        first = table["member"].to_numpy() <= 1  # 0 stands alone: of a single text
        has_p = "p" in table.column_names
        p = table["p"].to_numpy()[first] if has_p else np.zeros(first.sum())
        bins = np.minimum((p * P_BINS).astype(int), P_BINS - 1)
        reasons = np.array(table["reason"].to_pylist(), dtype=object)[first]
        for at, reason in zip(bins.tolist(), reasons.tolist(), strict=True):
            by_p[at][reason] += 1
    return CandidateCounts(ranges, scored, accepted, by_p, has_p)


def write_candidates(
    folder: Path, meanings: Mapping[str, str], thresholds: Mapping[str, float | None]
) -> Path:
    """Draw ``candidates.svg`` of a folder of shards and return its path.

    Args:
        folder: folder of shards with their candidate logs, ``NNNNN.parquet``.
        meanings: the scores to draw, with a description of each, which may be empty.
        thresholds: smallest acceptable value of some scores; ``None`` for no threshold.
    """
    counts = tally(sorted(folder.glob("[0-9]*.parquet")), list(meanings))
    if not counts.total:
        raise UserError(f"{folder} has no candidate log (NNNNN.parquet) with a candidate in it")
    file = folder / "candidates.svg"
    drawn = candidates_figure(counts, meanings, thresholds)
    return write_page(file, drawn.svg_file())


@style()
def candidates_figure(
    counts: CandidateCounts, meanings: Mapping[str, str], thresholds: Mapping[str, float | None]
) -> Drawing:
    """Draw a histogram of each score, and the outcomes of candidates by p."""
    width, height = PANEL
    rows = -(-len(counts.ranges) // 2)
    reasons = ["", *sorted({reason for count in counts.by_p for reason in count} - {""})]
    lowest = height + 18 * len(reasons)
    figure = new_figure(rows * height + lowest, 2 * width)
    grid = figure.add_gridspec(rows + 1, 2, height_ratios=[*[height] * rows, lowest])
    for i, name in enumerate(counts.ranges):
        axes = add_axes(figure, grid[i // 2, i % 2])
        _draw_histogram(axes, counts, name, meanings[name], thresholds.get(name))
    # The shares of each reason, the first of which is acceptance, in a stack per bin of p.
    axes = add_axes(figure, grid[rows, :])
    accepted = sum(count[""] for count in counts.by_p)
    looks: dict[str, Colour] = {
        reason: ACCENT if i == 0 else (DOT, 0.95 * 0.66 ** (i - 1))
        for i, reason in enumerate(reasons)
    }
    title = (
        f"outcomes of candidates{', by p' if counts.has_p else ''} ({counts.total:,}; "
        f"{accepted / counts.total:.1%} accepted)"
    )
    above = 18 * len(looks) + 14
    write(axes, title, (0, 1), (0, above), coords="axes fraction", width=120, fontweight="bold")
    names = [(reason or "accepted", colour) for reason, colour in looks.items()]
    name_series(axes, names, swatches=True)
    used = [at for at, count in enumerate(counts.by_p) if count.total()]
    gap = (used[-1] + 1 - used[0]) / P_BINS / width / 2  # a pixel
    for at in used:
        count = counts.by_p[at]
        tops = list(accumulate((count[reason] / count.total() for reason in looks), initial=0.0))
        ends = (at / P_BINS + gap, (at + 1) / P_BINS - gap)
        for reason, span in zip(looks, pairwise(tops), strict=True):
            tooltip = (
                f"p {at / P_BINS:.2f} to {(at + 1) / P_BINS:.2f}: "
                f"{count[reason]:,} of {count.total():,} {reason or 'accepted'}"
            )
            _draw_column(axes, ends, span, looks[reason], tooltip)
    axes.set(ylim=(0, 1), yticks=[])
    _finish(axes, (used[0] / P_BINS, (used[-1] + 1) / P_BINS))
    return Drawing.of(axes, f"Scores of {counts.total} candidates")


def _draw_histogram(
    axes: Axes, counts: CandidateCounts, name: str, meaning: str, threshold: float | None
) -> None:
    scored, accepted = counts.scored[name], counts.accepted[name]
    title = f"{name}{meaning and ': '}{meaning} ({scored.sum():,})"
    write(axes, title, (0, 1), (0, 24), coords="axes fraction", width=62, fontweight="bold")
    shown = np.flatnonzero(scored)
    axes.set(xticks=[], yticks=[])
    if not len(shown):
        return
    edges = np.linspace(*counts.ranges[name], BINS + 1)
    margin = 0.01 * (edges[-1] - edges[0])
    ends = [edges[shown[0]], edges[shown[-1] + 1], *([] if threshold is None else [threshold])]
    for column, colour in ((scored, (DOT, 0.45)), (accepted, ACCENT)):
        for at in np.flatnonzero(column).tolist():
            tooltip = (
                f"{edges[at]:.2f} to {edges[at + 1]:.2f}: {scored[at]:,}, {accepted[at]:,} accepted"
            )
            _draw_column(axes, (edges[at], edges[at + 1]), (0, column[at]), colour, tooltip)
    axes.set_ylim(0, scored.max())
    _finish(axes, (min(ends) - margin, max(ends) + margin))
    if threshold is not None:
        axes.axvline(threshold, color=INK, linewidth=1.6, linestyle=(0, (3, 2)))
        position, coords = (threshold, 1), ("data", "axes fraction")
        write(axes, f"{threshold:g}", position, (4, 6), coords=coords, fontsize=SMALL)


def _draw_column(
    axes: Axes, ends: tuple[float, float], span: tuple[float, float], colour: Colour, tooltip: str
) -> None:
    (low, high), (bottom, top) = ends, span
    note(axes.bar(low, top - bottom, high - low, bottom, align="edge", color=colour)[0], tooltip)


def _finish(axes: Axes, limits: tuple[float, float]) -> None:
    """Give the values their axis, with one line below the columns."""
    value_axis(axes, "x", limits)
    axes.grid(visible=False)
    axes.axhline(0, color=RULE, linewidth=1)
