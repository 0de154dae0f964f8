"""Matching gaps: what a model said of every pair, kept beside its results, and Figure 3 of it.

COCO-Counterfactuals, section 4.2.2. The scores are items (see ``items``) by the names of
``cfaug.metrics.matching``. Earlier versions wrote ``matching.jsonl``, a line a pair with its scores
and gaps, ``null`` where a caption has no photograph; it is still read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from cfaug.errors import UserError
from cfaug.files import require_regular
from cfaug.metrics.matching import (
    COUNTERFACTUAL,
    GAPS,
    RANDOM,
    SCORES,
    Shift,
    gaps_where_scored,
    shift,
    summary,
)
from cfaug.report.figures import LETTER, WIDTH, Axis, axis, wrap
from cfaug.report.items import benchmarks_with_items, read_items
from cfaug.report.page import render, write_page

FILE = "matching.jsonl"
PAGE = "matching.html"

READABLE = {
    "IR_r": "image, random", "IR_c": "image, counterfactual",
    "TR_r": "text, random", "TR_c": "text, counterfactual",
}  # fmt: skip
ORDER = ("IR_r", "IR_c", "TR_r", "TR_c")
ROW, TOP, POINTS = 52, 34, 120

Gaps = Mapping[str, np.ndarray]
"""{gap: float64 (pairs,)}, ``nan`` where a pair has none."""


def read_pairs(path: Path) -> list[dict[str, Any]]:
    """Return every line of ``matching.jsonl``; none if there is no such file.

    Raises:
        UserError: naming the line that is not one of a pair.
    """
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(require_regular(path).read_text().splitlines(), 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number} is not JSON: {error}") from error
        if not isinstance(row, dict) or not {"benchmark", "pair", "kind"} <= row.keys():
            raise UserError(f"{path}, line {number} should have benchmark, pair, kind and gaps")
        rows.append(row)
    return rows


@dataclass(frozen=True)
class PairGaps:
    """The gaps of all pairs of one benchmark and model.

    Attributes:
        kind: what its scores are: ``cosine x scale``, ``probability`` or ``logit``.
        gaps: {gap: float64 (pairs,)}, ``nan`` where a pair has none.
    """

    kind: str
    gaps: Gaps

    def __len__(self) -> int:
        return max(map(len, self.gaps.values()), default=0)


def read_gaps(folder: Path) -> dict[str, PairGaps]:
    """Return the gaps that lie beside a run's results, by benchmark.

    They are items; runs evaluated before items were kept have ``matching.jsonl``.

    Args:
        folder: of the run.

    Raises:
        UserError: if a file cannot be read.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in read_pairs(folder / FILE):
        rows.setdefault(row["benchmark"], []).append(row)
    found = {name: PairGaps(str(own[0]["kind"]), gaps_of(own)) for name, own in rows.items()}
    for name in benchmarks_with_items(folder):
        items = read_items(folder, name)
        if items is not None and {"kind", *SCORES["c"]} <= items.columns.keys():
            scores = {one: items.metric(one) for some in SCORES.values() for one in some
                      if one in items.columns}  # fmt: skip
            found[name] = PairGaps(str(items.columns["kind"][0]), gaps_where_scored(scores))
    return found


def gaps_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return the gaps of rows of ``matching.jsonl``, of one benchmark and model, pair by pair."""
    return {
        name: np.array([np.nan if row[name] is None else row[name] for row in rows], np.float64)
        for name in GAPS
        if any(row.get(name) is not None for row in rows)
    }


def shifts(found: Gaps) -> dict[str, Shift]:
    """Compare random with counterfactual gaps of the same anchors: {"IR": ..., "TR": ...}."""
    return {
        random[:2]: shift(found[random], found[counterfactual])
        for random, counterfactual in zip(RANDOM, COUNTERFACTUAL, strict=True)
        if random in found and counterfactual in found
    }


def sentences(found: Gaps) -> list[str]:
    """Say in plain words what the gaps of one model are."""
    said = []
    for name in (name for name in ORDER if name in found):
        one = summary(found[name][np.isfinite(found[name])])
        spread = "" if one.n == 1 else f" (SD {one.sd:.3g})"
        said.append(
            f"{name}: mean {one.mean:.3g}{spread}, {100 * one.below_zero:.1f} % below zero, "
            f"{one.n} pair{'s' * (one.n > 1)}"
        )
    for name, moved in shifts(found).items():
        p = f"p = {moved.p:.2g}" if moved.p >= 1e-4 else "p < 0.0001"
        said.append(
            f"{name}_c is smaller than {name}_r by {moved.mean:.3g} on average, for "
            f"{100 * moved.smaller:.1f} % of {moved.n} anchor{'s' * (moved.n > 1)} (Wilcoxon, "
            f"one-sided: {p})"
        )
    return said


def gap_figure(found: Gaps, title: str, kind: str) -> Markup:
    """Draw the distribution of each gap, one above the other, on one axis with zero marked.

    The axis leaves out the outermost 0.2 % on either side; shares below zero count every pair.

    Args:
        found: the gaps of one model, at least one of them.
        title: what the picture is called, such as the model.
        kind: the unit of the scores.
    """
    names = [name for name in ORDER if name in found]
    known = {name: found[name][np.isfinite(found[name])] for name in names}
    gutter = 14 + LETTER * max(len(READABLE[name]) for name in names)
    edges = [float(np.quantile(v, q)) for v in known.values() for q in (0.002, 0.998)]
    x = axis([*edges, 0.0], gutter, WIDTH - 14)
    bottom = TOP + ROW * len(names)
    parts = [Markup('<text class="label" x="{:.1f}" y="18">{}</text>').format(gutter, title)]
    parts += [_grid(x, bottom)]
    parts += [
        part
        for i, name in enumerate(names)
        for part in _ridge(name, known[name], TOP + ROW * (i + 1), x, gutter)
    ]
    zero = '<line class="zero" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>'
    parts.append(Markup(zero).format(x.at(0.0), TOP, bottom))
    label = '<text class="axis" x="{:.1f}" y="{}" text-anchor="middle">{}</text>'
    says = f"score of the right pair less that of the wrong one ({kind})"
    parts.append(Markup(label).format((gutter + WIDTH - 14) / 2, bottom + 36, says))
    return wrap(parts, bottom + 42, f"Matching gaps: {title}")


def _ridge(name: str, values: np.ndarray, base: float, x: Axis, gutter: float) -> list[Markup]:
    at = np.linspace(x.low, x.high, POINTS)
    density = _density(values, at)
    height = (ROW - 12) * density / density.max()
    line = " ".join(f"L{x.at(a):.1f} {base - h:.1f}" for a, h in zip(at, height, strict=True))
    accent = " accent" if name in COUNTERFACTUAL else ""
    below = 100 * float((values < 0).mean())
    label = '<text class="label{}" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>'
    note = '<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="end">{:.1f} % &lt; 0</text>'
    path = '<path class="ridge{}" d="M{:.1f} {:.1f}{}L{:.1f} {:.1f}z"><title>{}</title></path>'
    mean = '<path class="mean" d="M{:.1f} {:.1f}v-12"/>'
    return [
        Markup(label).format(accent, gutter - 10, base - 20, READABLE[name]),
        Markup(note).format(gutter - 10, base - 5, below),
        Markup(path).format(
            accent, x.at(x.low), base, Markup(line), x.at(x.high), base,
            f"{name}: mean {values.mean():.3g}, {len(values)} pairs",
        ),
        Markup(mean).format(x.at(float(np.clip(values.mean(), x.low, x.high))), base),
    ]  # fmt: skip


def _density(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return a Gaussian kernel estimate with Silverman's bandwidth, never below a pixel."""
    spread = min(values.std(), (np.quantile(values, 0.75) - np.quantile(values, 0.25)) / 1.349)
    step = (at[-1] - at[0]) / (POINTS - 1)
    width = max(0.9 * spread * len(values) ** -0.2, 1.2 * step)
    counts, edges = np.histogram(values, bins=2048, range=(at[0] - 4 * width, at[-1] + 4 * width))
    centres = (edges[1:] + edges[:-1]) / 2
    kernel = np.exp(-0.5 * ((at[:, None] - centres) / width) ** 2)
    found: np.ndarray = kernel @ counts
    return found if found.max() > 0 else np.ones_like(at)


def _grid(x: Axis, bottom: float) -> Markup:
    return Markup("").join(
        Markup(
            '<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>'
            '<text class="tick" x="{0:.1f}" y="{3}" text-anchor="middle">{4:g}</text>'
        ).format(x.at(value), TOP, bottom, bottom + 16, value)
        for value in x.ticks()
    )


def write_gaps_page(folder: Path, name: str) -> Path:
    """Write ``matching.html`` beside a run's results: the figure and its numbers; return it.

    Args:
        folder: of the run.
        name: what the page calls the model.

    Raises:
        UserError: if there are no gaps, or they cannot be read.
    """
    parts = [
        (gap_figure(found.gaps, f"{name}, {benchmark}", found.kind), sentences(found.gaps))
        for benchmark, found in read_gaps(folder).items()
    ]
    if not parts:
        raise UserError(f"{folder} has no scores of pairs; run evaluate.py benchmark=matching")
    text = render("matching.html", title=f"Matching gaps of {name}", parts=parts)
    return write_page(folder / PAGE, text)
