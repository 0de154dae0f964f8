"""Families of comparisons that are corrected together: those of a benchmark's primary metrics.

A benchmark that reports many numbers per answer names its few primary ones; the others are shown
and tested, but neither corrected nor counted, so that the primary ones lose no power.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cfaug.report.results import Cell, Result, cells_of

Primary = Mapping[str, Collection[str]]
"""{benchmark: its primary metrics}; for a benchmark without any, all metrics are primary."""


def family_of(rows: Iterable[Result], primary: Primary | None) -> frozenset[Cell]:
    """Return the cells over which comparisons are corrected.

    A primary metric counts for a whole benchmark or, if it exists only for parts, for the largest
    parts, such as methods rather than methods by label.

    Args:
        rows: results of all arms.
        primary: the primary metrics; ``None`` uses all metrics.
    """
    own = list(rows)
    measured = {(row.benchmark, row.metric) for row in own}
    chosen = {
        benchmark: {metric for metric in metrics if (benchmark, metric) in measured}
        for benchmark, metrics in (primary or {}).items()
    }
    widest: dict[tuple[str, str], int] = {}
    for row in own:
        key = (row.benchmark, row.metric)
        widest[key] = min(len(row.by), widest.get(key, len(row.by)))
    return frozenset(
        row.cell
        for row in own
        if not chosen.get(row.benchmark)
        or (
            row.metric in chosen[row.benchmark] and len(row.by) == widest[row.benchmark, row.metric]
        )
    )


def describe_family(
    rows: Iterable[Result], family: Collection[Cell], primary: Primary | None
) -> str:
    """Return a sentence on benchmarks that are corrected over some metrics only; empty without any.

    Args:
        rows: results of all arms.
        family: the cells over which p is corrected.
        primary: the primary metrics.
    """
    if not primary or all(cell in family for cell in cells_of(rows)):
        return ""
    told = [f"{benchmark}: {', '.join(own)}" for benchmark, own in primary.items() if own]
    return (
        f"Corrected for their primary metrics only ({'; '.join(told)}); other metrics and parts "
        "are shown without correction."
    )
