"""Which comparisons are corrected together: those of a benchmark's primary metrics.

A benchmark that reports many numbers of one answer names the few that comparisons are about; the
others are shown and tested, but neither corrected nor counted, so that they cost those few nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cfaug.report.results import Cell, Result, cells_of

Primary = Mapping[str, Collection[str]]
"""{benchmark: its primary metrics}; of one that is not there, or has none of them, all are."""


def family_of(rows: Iterable[Result], primary: Primary | None) -> frozenset[Cell]:
    """Return the cells that comparisons are corrected for.

    A primary metric counts for all of a benchmark; where it is only of parts, for the largest
    parts, such as methods and not methods by label.

    Args:
        rows: all results.
        primary: the primary metrics; ``None`` is no choice.
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
    """Say which benchmarks are corrected for some of their metrics only; empty if none is.

    Args:
        rows: all results.
        family: the cells that are corrected for.
        primary: the primary metrics.
    """
    if not primary or all(cell in family for cell in cells_of(rows)):
        return ""
    told = [f"{benchmark}: {', '.join(own)}" for benchmark, own in primary.items() if own]
    return (
        f"Corrected for their primary metrics only ({'; '.join(told)}); other metrics and parts "
        "are shown without correction."
    )
