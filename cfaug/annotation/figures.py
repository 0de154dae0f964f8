"""Outcomes as bars, and who disagrees about what as a matrix: inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from cfaug.annotation.findings import Agreement, Tally
from cfaug.metrics.summary import wilson_interval
from cfaug.report.bar_figure import grouped_bars
from cfaug.report.figures import wrap
from cfaug.report.numbers import percent

CELL = 78


def outcome_bars(tallies: Sequence[Tally], names: Mapping[str, str]) -> Markup:
    """Draw a bar per outcome and set of images, with Wilson's 95 % interval over the images.

    Args:
        tallies: one a set of images.
        names: {outcome: how it is named}, in the order of the figure.
    """
    groups = {
        name: [(t.name, t.counts[outcome], t.images) for t in tallies]
        for outcome, name in names.items()
    }
    return _grouped(groups, "share of the images, %")


def category_bars(
    categories: Mapping[str, float], sampled: int, names: Mapping[str, str]
) -> Markup:
    """Draw a bar per category of rejected images, most frequent first, with Wilson's 95 % interval.

    Args:
        categories: {category: images}.
        sampled: how many images were sorted.
        names: {category: how it is named}.
    """
    ordered = sorted(categories, key=lambda name: -categories[name])
    groups = {names[name]: [("", categories[name], sampled)] for name in ordered}
    return _grouped(groups, "share of the sorted images, %")


def _grouped(groups: Mapping[str, Sequence[tuple[str, float, int]]], title: str) -> Markup:
    """Draw shares as groups of bars: {group: [(name, count, of how many)]}."""
    spans = {
        group: [(name, c / n if n else 0.0, *wilson_interval(c, n)) for name, c, n in bars]
        for group, bars in groups.items()
    }
    return grouped_bars(spans, title)


def disagreement_matrix(agreement: Agreement, names: Sequence[str]) -> Markup:
    """Draw how often one answer to an image goes with another: rows sum to 100 %.

    A row is an answer, a column what another annotator of the same image says. Darker is more.

    Args:
        agreement: has the matrix.
        names: how its rows and columns are named.
    """
    totals = agreement.matrix.sum(axis=1)
    left, top = 84, 44
    parts = [
        Markup('<text class="tick" x="{:.1f}" y="16" text-anchor="middle">{}</text>').format(
            left + CELL * len(names) / 2, "what another annotator says of the same image"
        )
    ]
    for i, name in enumerate(names):
        y = top + CELL / 2 * i
        parts += [
            Markup('<text class="label" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
                left - 10, y + CELL / 4 + 4, name
            ),
            Markup('<text class="label" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
                left + CELL * (i + 0.5), top - 8, name
            ),
        ]
        for j, other in enumerate(names):
            share = float(agreement.matrix[i, j] / totals[i]) if totals[i] else float("nan")
            parts.append(_cell(left + CELL * j, y, share, f"{name}, another: {other}"))
    return wrap(parts, top + CELL / 2 * len(names) + 6, "Disagreement between annotators")


def _cell(x: float, y: float, share: float, text: str) -> Markup:
    shown = percent(share, 1)
    kind = " strong" if share > 0.55 else ""
    return Markup(
        '<rect class="heat" x="{:.1f}" y="{:.1f}" width="{}" height="{}" fill-opacity="{:.3f}">'
        "<title>{}: {}</title></rect>"
        '<text class="value{}" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>'
    ).format(
        x + 1, y + 1, CELL - 2, CELL / 2 - 2, share if share == share else 0.0, text, shown,
        kind, x + CELL / 2, y + CELL / 4 + 4, shown,
    )  # fmt: skip
