"""``candidates.svg``: where the candidates' scores lie, what the thresholds cut off, what p does.

Drawn from the candidate logs beside the shards, a file at a time: millions of candidates become a
few hundred counts. The file stands by itself and follows the reader's colour scheme.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from cfaug.errors import UserError
from cfaug.report.figures import LETTER, Axis

if TYPE_CHECKING:
    import pyarrow as pa

BINS = 200
"""Of a score: of a cosine from -1 to 1, of any other from its lowest to its highest value."""

COSINE = (-1.0, 1.0)
ROUNDING = 1e-3
"""By how much a cosine may exceed 1."""

P_BINS = 20
"""Of p, from 0 to 1."""

PANEL = (500, 190)
"""Width and height of a panel in pixels; the lowest one is as wide as two."""

STYLE = """
svg { --paper: #fcfcfa; --ink: #1d1f22; --quiet: #63676e; --rule: #dcdcd6; --dot: #6b7683;
  --accent: #b3470b; background: var(--paper); }
@media (prefers-color-scheme: dark) { svg { --paper: #16181b; --ink: #e6e6e1; --quiet: #9aa0a8;
  --rule: #34383d; --dot: #98a3b0; --accent: #f39a54; } }
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.tick { fill: var(--quiet); font-size: 11.5px; }
.title { font-weight: 600; }
.grid { stroke: var(--rule); }
.all { fill: var(--dot); fill-opacity: .45; }
.accepted { fill: var(--accent); }
.threshold { stroke: var(--ink); stroke-width: 1.6; stroke-dasharray: 4 3; }
.reason { fill: var(--dot); }
"""


@dataclass
class Tally:
    """Counts of what the logs say.

    Attributes:
        ranges: the lowest and the highest bound of each score that is counted, by its column.
        scored: candidates by score and bin; edits of a larger set count one by one.
        accepted: those of them that were accepted.
        by_p: candidates by bin of p and reason, "" for accepted.
        has_p: whether candidates have a p; without, all are in the first bin.
    """

    ranges: Mapping[str, tuple[float, float]]
    scored: dict[str, np.ndarray] = field(init=False)
    accepted: dict[str, np.ndarray] = field(init=False)
    by_p: list[Counter[str]] = field(default_factory=lambda: [Counter() for _ in range(P_BINS)])
    has_p: bool = False

    def __post_init__(self) -> None:
        self.scored = {name: np.zeros(BINS, np.int64) for name in self.ranges}
        self.accepted = {name: np.zeros(BINS, np.int64) for name in self.ranges}

    def add(self, file: Path) -> None:
        """Count the rows of one log.

        Raises:
            UserError: if it is not a candidate log.
        """
        table = _read(file, [*self.ranges, "member", "accepted", "reason"], optional="p")
        accepted = table["accepted"].to_numpy()
        for name, limits in self.ranges.items():
            values = _numbers(table, name)
            there = ~np.isnan(values)
            self.scored[name] += _count(values[there], limits)
            self.accepted[name] += _count(values[there & accepted], limits)
        first = table["member"].to_numpy() <= 1  # 0 stands alone: of a single text
        self.has_p = "p" in table.column_names
        p = table["p"].to_numpy()[first] if self.has_p else np.zeros(first.sum())
        bins = np.minimum((p * P_BINS).astype(int), P_BINS - 1)
        reasons = np.array(table["reason"].to_pylist(), dtype=object)[first]
        for at, reason in zip(bins.tolist(), reasons.tolist(), strict=True):
            self.by_p[at][reason] += 1

    @property
    def total(self) -> int:
        """How many candidates there are."""
        return sum(count.total() for count in self.by_p)


def _read(file: Path, columns: Sequence[str], optional: str | None = None) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        more = [optional] if optional in pq.read_schema(file).names else []
        return pq.read_table(file, columns=[*columns, *more])
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{file} is no candidate log that can be read: {error}") from error


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    """Return a column of scores, ``nan`` where there is none."""
    return table[name].to_numpy(zero_copy_only=False).astype(np.float64)


def _count(values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    return np.histogram(values.clip(*limits), BINS, limits)[0]


def find_ranges(logs: Sequence[Path], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return the bounds between which each score is drawn: a cosine's, or its extremes.

    Args:
        logs: the files.
        names: the scores, columns of each.

    Raises:
        UserError: if a file is not a candidate log.
    """
    ends: dict[str, list[float]] = {name: [] for name in names}
    for file in logs:
        table = _read(file, names)
        for name in names:
            values = _numbers(table, name)
            values = values[~np.isnan(values)]
            if len(values):
                ends[name] += [float(values.min()), float(values.max())]
    return {name: _range(found) for name, found in ends.items()}


def _range(ends: Sequence[float]) -> tuple[float, float]:
    if max(map(abs, ends), default=0.0) <= 1 + ROUNDING:
        return COSINE
    low, high = min(ends), max(ends)
    return (low, high) if low < high else (low - 1, high + 1)


def tally(logs: Sequence[Path], names: Sequence[str]) -> Tally:
    """Count the candidates of several logs.

    Args:
        logs: the files.
        names: the scores to count, columns of each.
    """
    counts = Tally(find_ranges(logs, names))
    for file in logs:
        counts.add(file)
    return counts


def write_candidates(
    folder: Path, meanings: Mapping[str, str], thresholds: Mapping[str, float | None]
) -> Path:
    """Draw ``candidates.svg`` of a folder of shards and return its path.

    Args:
        folder: with ``NNNNN.parquet`` beside the shards.
        meanings: the scores to draw, and what each is, which may be empty.
        thresholds: the least acceptable value of some of them; ``None`` for none.

    Raises:
        UserError: if there is no log, or one cannot be read.
    """
    counts = tally(sorted(folder.glob("[0-9]*.parquet")), list(meanings))
    if not counts.total:
        raise UserError(f"{folder} holds no candidate log (NNNNN.parquet) with a candidate in it")
    file = folder / "candidates.svg"
    file.write_text(candidates_figure(counts, meanings, thresholds), encoding="utf-8")
    return file


def candidates_figure(
    counts: Tally, meanings: Mapping[str, str], thresholds: Mapping[str, float | None]
) -> Markup:
    """Draw a histogram of each score, and what becomes of candidates by p; a whole SVG file."""
    width, height = PANEL
    parts = [
        _moved(
            _histogram(counts, name, meanings[name], thresholds.get(name)),
            (i % 2) * (width + 20),
            (i // 2) * (height + 30),
        )
        for i, name in enumerate(counts.ranges)
    ]
    rows = -(-len(counts.ranges) // 2)
    parts.append(_moved(_by_p(counts), 0, rows * (height + 30)))
    head = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 {} {}" role="img" '
        'aria-label="Scores of {} candidates"><style>{}</style>'
    ).format(2 * width + 40, rows * (height + 30) + height + 70, counts.total, Markup(STYLE))
    return head + Markup("").join(parts) + Markup("</svg>\n")


def _moved(parts: Sequence[Markup], x: float, y: float) -> Markup:
    return (
        Markup('<g transform="translate({} {})">').format(x, y)
        + Markup("").join(parts)
        + Markup("</g>")
    )


def _histogram(counts: Tally, name: str, meaning: str, threshold: float | None) -> list[Markup]:
    width, height = PANEL
    top, bottom = 30, height - 20
    scored, accepted = counts.scored[name], counts.accepted[name]
    title = Markup('<text class="title" x="0" y="12">{}</text>').format(
        f"{name}{meaning and ': '}{meaning} ({scored.sum():,})"
    )
    shown = np.flatnonzero(scored)
    if not len(shown):
        return [title]
    edges = np.linspace(*counts.ranges[name], BINS + 1)
    margin = 0.01 * (edges[-1] - edges[0])
    ends = [edges[shown[0]], edges[shown[-1] + 1], *([] if threshold is None else [threshold])]
    x = Axis(min(ends) - margin, max(ends) + margin, 0, width - 10)
    y = Axis(0, float(scored.max()), bottom, top)
    parts = [title, _ticks(x, bottom)]
    for kind, column in (("all", scored), ("accepted", accepted)):
        for at in np.flatnonzero(column).tolist():
            parts.append(
                Markup(
                    '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                    "<title>{}</title></rect>"
                ).format(
                    kind, x.at(edges[at]), y.at(column[at]), x.at(edges[at + 1]) - x.at(edges[at]),
                    bottom - y.at(column[at]),
                    f"{edges[at]:.2f} to {edges[at + 1]:.2f}: {scored[at]:,}, "
                    f"{accepted[at]:,} accepted",
                )
            )  # fmt: skip
    if threshold is not None:
        parts.append(
            Markup(
                '<path class="threshold" d="M{0:.1f} {1}V{2}"/><text x="{3:.1f}" y="{4}">{5:g}'
                "</text>"
            ).format(x.at(threshold), top, bottom, x.at(threshold) + 4, top - 2, threshold)
        )
    return parts


def _ticks(x: Axis, bottom: float) -> Markup:
    line = Markup('<path class="grid" d="M{:.1f} {}H{:.1f}"/>').format(x.start, bottom, x.end)
    return line + Markup("").join(
        Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{:g}</text>').format(
            x.at(value), bottom + 15, value
        )
        for value in x.ticks()
    )


def _by_p(counts: Tally) -> list[Markup]:
    """Draw the shares of acceptance and of each reason as one stack a bin of p."""
    width, height = 2 * PANEL[0] + 20, PANEL[1]
    top, bottom = 48, height + 60
    total: Counter[str] = sum(counts.by_p, Counter())
    reasons = ["", *sorted(set(total) - {""})]
    looks = {reason: _look(i) for i, reason in enumerate(reasons)}
    share = total[""] / total.total()
    parts = [
        Markup('<text class="title" x="0" y="12">{}</text>').format(
            f"what becomes of a candidate{', by p' if counts.has_p else ''} ({total.total():,}; "
            f"{share:.1%} accepted)"
        ),
        *_legend({reason or "accepted": look for reason, look in looks.items()}),
    ]
    used = [at for at, count in enumerate(counts.by_p) if count.total()]
    x = Axis(used[0] / P_BINS, (used[-1] + 1) / P_BINS, 0, width - 10)
    y = Axis(0, 1, bottom, top)
    for at in used:
        count = counts.by_p[at]
        heights = [count[reason] / count.total() for reason in reasons]
        for reason, high, part in zip(reasons, accumulate(heights), heights, strict=True):
            parts.append(
                Markup(
                    '<rect {} x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                    "<title>{}</title></rect>"
                ).format(
                    looks[reason], x.at(at / P_BINS) + 1, y.at(high),
                    x.at((at + 1) / P_BINS) - x.at(at / P_BINS) - 2, y.at(high - part) - y.at(high),
                    f"p {at / P_BINS:.2f} to {(at + 1) / P_BINS:.2f}: "
                    f"{count[reason]:,} of {count.total():,} {reason or 'accepted'}",
                )
            )  # fmt: skip
    return [*parts, _ticks(x, bottom)]


def _look(number: int) -> Markup:
    if number == 0:
        return Markup('class="accepted"')
    return Markup('class="reason" fill-opacity="{:.2f}"').format(0.95 * 0.66 ** (number - 1))


def _legend(looks: Mapping[str, Markup]) -> list[Markup]:
    parts, x = [], 0.0
    for name, look in looks.items():
        parts.append(
            Markup(
                '<rect {} x="{:.1f}" y="24" width="11" height="11"/><text x="{:.1f}" y="34">{}'
                "</text>"
            ).format(look, x, x + 16, name)
        )
        x += 16 + LETTER * len(name) + 24
    return parts
