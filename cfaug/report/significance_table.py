"""Make the significance table: every arm against every baseline, on all common benchmarks."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.report.arm_results import Runs
from cfaug.report.comparison import (
    OTHER_DATA,
    Answers,
    answers,
    at_chance,
    chances,
    describe_below_chance,
    different_tests,
    equal_weights,
    measures,
    obstacle,
    one_test,
    unknown_tests,
    values,
)
from cfaug.report.item_tests import ItemTest, compare_items
from cfaug.report.items import Items, read_items
from cfaug.report.page import Measure
from cfaug.report.records import Run
from cfaug.report.results import Cell, Result, arms_of, cells_of, require_equal_seeds
from cfaug.report.significance_rows import (
    NO_SPREAD,
    ONE_SEED,
    OTHER_SEEDS,
    SPELLED_OUT,
    ItemComparison,
    Primary,
    SignificanceRow,
    Table,
    describe_family,
    family_of,
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
    (``cfaug.report.comparison``).

    Args:
        rows: results of all runs; each metric is tested in its own direction.
        baseline: name of one arm or of several; each also has its own rows, without p.
        untrained: names of arms that may have other seeds than the baseline; they are printed
            first.
        notes: sentences to print under the table, after its own.
        cautions: sentences on what weakens the results, printed after the table's own.
        items: reader of the arms' items; comparisons with one seed are tested over them.
        primary: metrics over which p is corrected, for some benchmarks; for others, all metrics.

    Returns:
        The table; Holm's correction covers all its primary rows with a ``p_paired`` and,
        separately, all primary tests over items.
    """
    baselines = (baseline,) if isinstance(baseline, str) else tuple(baseline)
    if not rows or not baselines:
        raise UserError("a table needs results and a baseline: run evaluate.py first")
    for name in baselines:
        require_equal_seeds(rows, name, untrained)
    grouped, cells, known = answers(rows), cells_of(rows), measures(rows)
    arms = arms_of(rows, [*sorted(untrained), *baselines])
    pieces = [
        _compare(arm, name, cell, (grouped[arm, cell], grouped[name, cell]), known[cell])
        for name in baselines
        for arm in arms
        for cell in cells
        if (arm, cell) in grouped and (name, cell) in grouped
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
    sentence = describe_family(rows, family, primary)
    notes = (*refused, *([sentence] if sentence else []), *notes)
    return Table(
        made,
        baselines,
        labels=labels or {},
        over_items=tuple(over_items),
        one_test=frozenset(
            cell
            for cell in cells
            if one_test([grouped[a, cell] for a in arms if (a, cell) in grouped])
        ),
        chance=chances(rows),
        at_chance=frozenset(key for key, by_seed in grouped.items() if at_chance(by_seed)),
        notes=(*unknown_tests(rows, labels), *notes),
        cautions=(
            *different_tests(rows, labels),
            *equal_weights(rows, baselines, labels),
            *describe_below_chance(rows),
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
    reason = ""
    if arm != baseline:
        comparison = compare(values(ours), values(theirs), better=measure.better)
        reason = obstacle(ours, theirs)
        shared |= {
            name: getattr(comparison, name) for name in shared if not reason or name == "diff"
        }
        if reason == OTHER_DATA:
            shared["diff"] = math.nan
        elif not reason and min(len(ours), len(theirs)) < 2:
            reason = ONE_SEED
        elif not reason and ours.keys() != theirs.keys():
            reason = OTHER_SEEDS
        elif not reason and math.isnan(comparison.t_low):
            reason = NO_SPREAD
    return {
        **shared, "arm": arm, "baseline": baseline, "benchmark": cell[0], "metric": cell[1],
        "n": summary.n, "mean": summary.mean, "sd": summary.sd, "reason": reason,
        "unit": measure.unit, "better": measure.better,
    }  # fmt: skip


# Tests over items where there are too few seeds: one run against one run, or against several.

NO_ITEMS = (
    "evaluated before items were saved, so no test over items either; `python evaluate.py "
    "items=all` evaluates again and saves them"
)
ItemSource = Callable[[str, str], "list[Items]"]
"""A function of an arm and a benchmark that returns its runs' items; empty if one saved none."""


class RunItems:
    """A reader of runs' items, for the weights in the table; an ``ItemSource``."""

    def __init__(self, runs: Iterable[Run], rows: Iterable[Result]) -> None:
        self._folders: dict[str, list[tuple[int, Path]]] = {}
        for run in runs:
            self._folders.setdefault(run.arm, []).append((run.seed, run.folder))
        self._weights = {(row.arm, row.seed, row.benchmark): row.weights for row in rows}
        # A few arms are held in memory, as a benchmark's metrics are compared one after another.
        self.by_seed = lru_cache(maxsize=4)(self._read)
        """{seed: items} of an arm and a benchmark; empty if a run saved none for its weights."""

    def __call__(self, arm: str, benchmark: str) -> list[Items]:
        """Return the items of an arm, one per seed; empty if a run saved none."""
        return list(self.by_seed(arm, benchmark).values())

    def _read(self, arm: str, benchmark: str) -> dict[int, Items]:
        folders = self._folders.get(arm, ())
        evaluated = [(s, folder) for s, folder in folders if (arm, s, benchmark) in self._weights]
        by_seed = {seed: read_items(folder, benchmark) for seed, folder in evaluated}
        fit = {
            seed: items
            for seed, items in by_seed.items()
            if items is not None and items.weights == self._weights[arm, seed, benchmark]
        }
        return fit if len(fit) == len(evaluated) else {}


def items_of_arms(runs: Runs, experiment: str, arms: Iterable[str]) -> RunItems:
    """Return a reader of the items of some arms of an experiment, as papers' tables name them."""
    arm_runs: list[Run] = []
    rows: list[Result] = []
    for arm in arms:
        name = f"{experiment}/{arm}"
        rows += [replace(row, arm=arm) for row in runs.arm(name).rows]
        for folder in runs.folders(name):
            seed = int(folder.name.removeprefix("seed="))
            arm_runs.append(Run(folder, experiment, arm, {"seed": seed, "state": "done"}))
    return RunItems(arm_runs, rows)


def compare_over_items(
    made: Sequence[SignificanceRow],
    rows: Iterable[Result],
    items: ItemSource,
    labels: Mapping[str, str],
    family: Collection[Cell] | None = None,
) -> tuple[list[ItemComparison], list[str]]:
    """Test over items where one seed allows no test over seeds.

    Args:
        family: cells over which p is corrected; ``None`` for all.

    Returns:
        The tests over items, corrected (Holm) over the family, and sentences on what could not be
        tested over items either.
    """
    by_cell: dict[Cell, Result] = {row.cell: row for row in rows}
    comparisons: list[ItemComparison] = []
    refused: dict[str, list[str]] = {}
    without: list[str] = []
    for row in made:
        if row.reason != ONE_SEED:
            continue
        benchmark = by_cell[row.cell].benchmark
        try:
            without += [arm for arm in (row.arm, row.baseline) if not items(arm, benchmark)]
            test = compare_pair(row.arm, row.baseline, by_cell[row.cell], row.measure, items)
        except UserError as error:
            names = (labels.get(arm, arm) for arm in (row.arm, row.baseline))
            refused.setdefault(benchmark, []).append(f"{' against '.join(names)}: {error}.")
        else:
            comparisons += [] if test is None else [ItemComparison(row, test)]
    counted = [family is None or comparison.row.cell in family for comparison in comparisons]
    one_sided, two_sided = (
        holm([
            getattr(comparison.test, name) if counts else math.nan
            for comparison, counts in zip(comparisons, counted, strict=True)
        ])
        for name in ("p", "p_two_sided")
    )  # fmt: skip
    corrected = [
        replace(comparison, p_holm=float(p), p_holm_two_sided=float(q))
        for comparison, p, q in zip(comparisons, one_sided, two_sided, strict=True)
    ]
    lacking = ", ".join(labels.get(arm, arm) for arm in dict.fromkeys(without))
    lacks = [f"{lacking}: {NO_ITEMS}."] if lacking else []
    return corrected, [*lacks, *shorten(refused)]


def compare_pair(
    arm: str, baseline: str, about: Result, measure: Measure, items: ItemSource
) -> ItemTest | None:
    """Compare two arms over the items of a benchmark.

    ``None`` if an arm was evaluated before items were saved, or the metric is not a mean over
    items.

    Args:
        about: any result of the benchmark, with its part and metric.
    """
    ours, theirs = (items(name, about.benchmark) for name in (arm, baseline))
    if not ours or not theirs or about.metric not in {*ours[0].columns} & {*theirs[0].columns}:
        return None
    return compare_items(ours, theirs, about.metric, measure, about.by)


def shorten(refused: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the first few sentences on each benchmark, and one that counts its others.

    Args:
        refused: {benchmark: sentences on comparisons that could not be made}.
    """
    lines: list[str] = []
    for benchmark, sentences in refused.items():
        lines += sentences[:SPELLED_OUT]
        if more := len(sentences[SPELLED_OUT:]):
            lines.append(
                f"{more} more comparison{'s' * (more > 1)} on {benchmark} could not be made for "
                "such reasons."
            )
    return lines
