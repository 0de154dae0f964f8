"""Comparisons over seeds and items at once (``cfaug.report.joint_tests``) as a table and as CSV."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from cfaug.report.document import Entry, Part
from cfaug.report.joint_tests import JointComparison
from cfaug.report.numbers import DASH, p_text, percent
from cfaug.report.page import write_page
from cfaug.report.spreadsheet import csv_text
from cfaug.stats.variance_parts import FEW_SEEDS

TITLE = "Comparisons over seeds and items"
CSV = "seeds_and_items.csv"

SHOWN = 500
"""Most comparisons in a table; the CSV has all."""

COLUMNS = (
    "difference", "95 % interval", "p", "p_holm", "bootstrap 95 %", "p bootstrap",
    "standard error", "seeds", "items", "interaction",
)  # fmt: skip


def seeds_and_items_parts(
    comparisons: Sequence[JointComparison],
    labels: Mapping[str, str] | None = None,
    refused: Sequence[str] = (),
) -> tuple[Part, ...]:
    """Return the comparisons as a table, one row each; empty without any.

    Args:
        comparisons: comparisons from ``compare_over_seeds_and_items``.
        labels: label of each arm in tables, by its name.
        refused: sentences on what could not be compared.
    """
    if not comparisons:
        return ()
    names = labels or {}
    rows = tuple(
        (
            (names.get(one.row.arm, one.row.arm), names.get(one.row.baseline, one.row.baseline),
             *one.row.cell),
            _cells(one),
        )
        for one in comparisons[:SHOWN]
    )  # fmt: skip
    part = Part(
        title=TITLE,
        labels=("arm", "baseline", "benchmark", "metric"),
        groups=(("", 7), ("share of the squared standard error, %", 3)),
        columns=COLUMNS,
        rows=rows,
        notes=(
            *_explain(comparisons),
            *_caution_few_seeds(comparisons),
            *_sizes_of_sets(comparisons, names),
            *_not_shown(comparisons),
            *refused,
        ),
    )
    return (part,)


def _cells(one: JointComparison) -> tuple[Entry, ...]:
    measure, parts = one.row.measure, one.parts

    def interval(low: float, high: float) -> str:
        return "n/a" if math.isnan(low) else f"{measure.text(low)} to {measure.text(high)}"

    def share(name: str) -> Entry:
        value = parts.share(getattr(parts, name))
        return Entry(percent(value, 0) + "*" * (name in parts.truncated))

    texts = (
        measure.text(one.found.mean), interval(*one.interval), p_text(one.p), p_text(one.p_holm),
        interval(one.found.low, one.found.high), p_text(one.p_bootstrap),
        measure.text(parts.standard_error) if parts.total else DASH,
    )  # fmt: skip
    return (*map(Entry, texts), share("seeds"), share("items"), share("rest"))


def _explain(comparisons: Sequence[JointComparison]) -> list[str]:
    count = sum(not math.isnan(one.p_holm) for one in comparisons)
    said = [
        "Would training again, tested on other items of this kind, give the same result? Interval "
        "and p (one-sided: the arm is better; Holm over "
        f"{count} comparison{'s' * (count > 1)}) are Student's, with the squared standard error "
        "that seeds and clusters of items add up to. The bootstrap draws seeds and clusters; its "
        "intervals are too narrow where a few seeds cause most of the variance. Metrics that are "
        "not means over items are left out.",
    ]
    if any(one.parts.truncated for one in comparisons):
        said.append("*: estimated below 0 and set to 0.")
    if any(one.own_tests for one in comparisons):
        said.append(
            "Where every seed has items of its own, the interaction (–) is part of the items, and "
            "the bootstrap counts items twice."
        )
    return said


def _caution_few_seeds(comparisons: Sequence[JointComparison]) -> list[str]:
    """Return a sentence for each number of seeds with which p is too small."""
    counts = {min(one.found.seeds, one.found.baseline_seeds) for one in comparisons}
    return [
        f"Caution: where an arm has only {count} seeds, p is too small and the interval too short. "
        f"In simulations without a difference, p was .05 or less in up to {percent(p, 0)} %, and "
        f"the 95 % interval left out 0 in up to {percent(missed, 0)} %. Use four seeds or more."
        for count, (p, missed) in sorted(FEW_SEEDS.items())
        if count in counts
    ]


def _sizes_of_sets(comparisons: Sequence[JointComparison], labels: Mapping[str, str]) -> list[str]:
    """Return a sentence on what the most precise comparison of each benchmark can show."""
    least: dict[str, JointComparison] = {}
    for one in comparisons:
        if not one.item_error > 0:
            continue
        best = least.setdefault(one.row.benchmark, one)
        if one.row.metric == best.row.metric and one.item_error < best.item_error:
            least[one.row.benchmark] = one
    if not least:
        return []
    said = "; ".join(one.describe(labels) for one in least.values())
    return [f"For these seeds, the most precise differences paired item by item: {said}."]


def _not_shown(comparisons: Sequence[JointComparison]) -> list[str]:
    more = len(comparisons) - SHOWN
    return [f"{more:,} more comparisons are in {CSV}."] if more > 0 else []


CSV_COLUMNS = (
    "arm", "baseline", "label", "benchmark", "metric", "unit", "better", "seeds", "baseline_seeds",
    "items", "clusters", "difference", "low", "high", "p", "p_holm", "bootstrap_low",
    "bootstrap_high", "p_bootstrap", "p_two_sided", "standard_error", "degrees", "share_seeds",
    "share_items", "share_rest", "truncated", "own_tests", "item_error",
)  # fmt: skip


def seeds_and_items_csv(
    comparisons: Sequence[JointComparison], labels: Mapping[str, str] | None = None
) -> str:
    """Return a row per comparison, numbers in full precision, missing ones empty.

    Args:
        comparisons: comparisons from ``compare_over_seeds_and_items``.
        labels: label of each arm in tables, by its name.
    """
    names, rows = labels or {}, []
    for one in comparisons:
        row, found, parts = one.row, one.found, one.parts
        rows.append([
            row.arm, row.baseline, names.get(row.arm, row.arm), *row.cell, row.unit, row.better,
            found.seeds, found.baseline_seeds, found.items, found.clusters, found.mean,
            *one.interval, one.p, one.p_holm, found.low, found.high, one.p_bootstrap,
            one.p_two_sided, parts.standard_error, parts.degrees,
            *(parts.share(part) for part in (parts.seeds, parts.items, parts.rest)),
            " ".join(parts.truncated), one.own_tests, one.item_error,
        ])  # fmt: skip
    return csv_text(CSV_COLUMNS, rows)


def write_seeds_and_items(
    comparisons: Sequence[JointComparison], labels: Mapping[str, str], folder: Path
) -> list[Path]:
    """Write ``seeds_and_items.csv`` beside the table of an experiment, if there are comparisons.

    Args:
        comparisons: comparisons from ``compare_over_seeds_and_items``.
        labels: label of each arm in tables, by its name.
        folder: folder of the experiment, where ``seeds_and_items.csv`` is written.
    """
    file = folder / CSV
    if not comparisons:
        file.unlink(missing_ok=True)  # from an earlier call, for other benchmarks
        return []
    return [write_page(file, seeds_and_items_csv(comparisons, labels))]
