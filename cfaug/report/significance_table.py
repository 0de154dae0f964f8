"""Make the significance table: every arm against every baseline, on all common benchmarks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from cfaug.core.errors import UserError
from cfaug.report.comparable import (
    OTHER_DATA,
    Answers,
    answers,
    different_tests,
    equal_weights,
    measures,
    obstacle,
    one_test,
    unknown_tests,
    values,
)
from cfaug.report.families import Primary, describe_family, family_of
from cfaug.report.item_comparisons import ItemSource, compare_over_items
from cfaug.report.numbers import Measure
from cfaug.report.results import Cell, Result, arms_of, cells_of, require_equal_seeds
from cfaug.report.tables import (
    NO_SPREAD,
    ONE_SEED,
    OTHER_SEEDS,
    SPELLED_OUT,
    SignificanceRow,
    Table,
    no_spread_says,
)
from cfaug.stats.effects import ArmComparison, compare
from cfaug.stats.significance import holm, summarise


def significance_table(
    rows: Sequence[Result],
    baseline: str | Sequence[str] = "real",
    untrained: Collection[str] = (),
    *,
    labels: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    cautions: Sequence[str] = (),
    items: ItemSource | None = None,
    primary: Primary | None = None,
) -> Table:
    """Compare every arm with every baseline on all benchmarks of both.

    Arms with different test data, or with the same weights, are shown but not compared
    (``cfaug.report.comparable``).

    Args:
        rows: results of all runs; each metric is tested in its own direction.
        baseline: name of one arm or of several; each also has its own rows, without p.
        untrained: names of arms that may have other seeds than the baseline; they are printed
            first.
        labels: label of each arm in tables, by its name.
        notes: sentences to print under the table, after its own.
        cautions: sentences on what weakens the results, printed after the table's own.
        items: reader of the arms' items; comparisons with one seed are tested over them.
        primary: metrics over which p is corrected, for some benchmarks; for others, all metrics.

    Returns:
        The table; Holm's correction covers all its primary rows with a ``p_paired`` and,
        separately, all primary tests over items.

    Raises:
        UserError: if there are no rows, a baseline has none, or sets of seeds are unequal.
    """
    baselines = (baseline,) if isinstance(baseline, str) else tuple(baseline)
    if not rows or not baselines:
        raise UserError("a table needs results and a baseline: run evaluate.py first")
    for name in baselines:
        require_equal_seeds(rows, name, untrained)
    found, cells, known = answers(rows), cells_of(rows), measures(rows)
    arms = arms_of(rows, [*sorted(untrained), *baselines])
    pieces = [
        _compare(arm, name, cell, (found[arm, cell], found[name, cell]), known[cell])
        for name in baselines
        for arm in arms
        for cell in cells
        if (arm, cell) in found and (name, cell) in found
    ]
    family = family_of(rows, primary)
    corrected, two_sided = (
        holm([
            piece[name] if (piece["benchmark"], piece["metric"]) in family else math.nan
            for piece in pieces
        ])
        for name in ("p_paired", "p_paired_two_sided")
    )  # fmt: skip
    made = tuple(
        SignificanceRow(**piece, p_holm=float(p), p_holm_two_sided=float(q))
        for piece, p, q in zip(pieces, corrected, two_sided, strict=True)
    )
    over_items, refused = (
        compare_over_items(made, rows, items, labels or {}, family) if items else ([], [])
    )
    told = describe_family(rows, family, primary)
    return Table(
        made,
        baselines,
        labels=labels or {},
        over_items=tuple(over_items),
        one_test=frozenset(
            cell for cell in cells if one_test([found[a, cell] for a in arms if (a, cell) in found])
        ),
        notes=(
            *unknown_tests(rows, labels),
            *_describe_untested(made, labels or {}),
            *refused,
            *([told] if told else []),
            *notes,
        ),
        cautions=(
            *different_tests(rows, labels),
            *equal_weights(rows, baselines, labels),
            *cautions,
        ),
    )


def _compare(
    arm: str, baseline: str, cell: Cell, both: tuple[Answers, Answers], measure: Measure
) -> dict[str, Any]:
    """Return the fields of a row except those of Holm's correction."""
    ours, theirs = both
    summary = summarise(list(values(ours).values()))
    shared: dict[str, Any] = {
        f.name: math.nan
        for f in fields(ArmComparison)
        if f.name in SignificanceRow.__dataclass_fields__
    }
    reason = obstacle(ours, theirs) if arm != baseline else ""
    if arm != baseline:
        found = compare(values(ours), values(theirs), better=measure.better)
        shared |= {name: getattr(found, name) for name in shared if not reason or name == "diff"}
        reason = reason or _without_test(ours, theirs, found)
    if reason == OTHER_DATA:
        shared["diff"] = math.nan
    return {
        **shared, "arm": arm, "baseline": baseline, "benchmark": cell[0], "metric": cell[1],
        "n": summary.n, "mean": summary.mean, "sd": summary.sd, "reason": reason,
        "unit": measure.unit, "better": measure.better,
    }  # fmt: skip


def _without_test(ours: Answers, theirs: Answers, found: ArmComparison) -> str:
    """Return why seeds allow no test or interval of a difference; empty if they do."""
    if min(len(ours), len(theirs)) < 2:
        return ONE_SEED
    if ours.keys() != theirs.keys():
        return OTHER_SEEDS
    return NO_SPREAD if math.isnan(found.t_low) else ""


def _describe_untested(rows: Sequence[SignificanceRow], labels: Mapping[str, str]) -> list[str]:
    """Name the comparisons without a test over these seeds."""
    said = []
    for reason, means in (
        (ONE_SEED, "one seed, so no test over seeds"),
        (OTHER_SEEDS, "other seeds, so nothing is paired"),
    ):
        pairs = dict.fromkeys((r.arm, r.baseline) for r in rows if r.reason == reason)
        told = [f"{labels.get(a, a)} against {labels.get(b, b)}" for a, b in pairs]
        said += [f"{', '.join(told)}: {means}."] if told else []
    flat = [row for row in rows if row.reason == NO_SPREAD]
    for row in flat[:SPELLED_OUT]:
        names = f"{labels.get(row.arm, row.arm)} against {labels.get(row.baseline, row.baseline)}"
        said.append(
            f"{names} on {row.benchmark} {row.metric}: {no_spread_says(row.diff, row.measure)}."
        )
    if len(flat) > SPELLED_OUT:
        more = len(flat) - SPELLED_OUT
        said.append(f"The same holds of {more} more comparison{'s' * (more > 1)}.")
    return said
