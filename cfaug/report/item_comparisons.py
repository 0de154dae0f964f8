"""Tests over items where there are too few seeds: one run against one run, or against several."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.report.arm_results import Runs
from cfaug.report.item_tests import ItemTest, compare_items
from cfaug.report.items import Items, read_items
from cfaug.report.numbers import Measure
from cfaug.report.records import Run
from cfaug.report.results import Cell, Result
from cfaug.report.tables import ONE_SEED, SPELLED_OUT, ItemComparison, SignificanceRow
from cfaug.stats.significance import holm

NO_ITEMS = (
    "evaluated before items were saved, so no test over items either; `python evaluate.py "
    "items=all` evaluates again and saves them"
)

READ_AT_ONCE = 4
"""Arms whose items are held in memory, as a benchmark's metrics are compared one after another."""

ItemSource = Callable[[str, str], "list[Items]"]
"""A function of an arm and a benchmark that returns its runs' items; empty if one saved none."""


class RunItems:
    """A reader of runs' items, for the weights in the table; an ``ItemSource``.

    Args:
        runs: runs of any arms.
        rows: results of these runs.
    """

    def __init__(self, runs: Iterable[Run], rows: Iterable[Result]) -> None:
        self._folders: dict[str, list[tuple[int, Path]]] = {}
        for run in runs:
            self._folders.setdefault(run.arm, []).append((run.seed, run.folder))
        self._weights = {(row.arm, row.seed, row.benchmark): row.weights for row in rows}
        self.by_seed = lru_cache(maxsize=READ_AT_ONCE)(self._read)
        """{seed: items} of an arm and a benchmark; empty if a run saved none for its weights."""

    def __call__(self, arm: str, benchmark: str) -> list[Items]:
        """Return the items of an arm, one per seed; empty if a run saved none."""
        return list(self.by_seed(arm, benchmark).values())

    def _read(self, arm: str, benchmark: str) -> dict[int, Items]:
        own = self._folders.get(arm, ())
        asked = [(s, folder) for s, folder in own if (arm, s, benchmark) in self._weights]
        found = {seed: read_items(folder, benchmark) for seed, folder in asked}
        fit = {
            seed: items
            for seed, items in found.items()
            if items is not None and items.weights == self._weights[arm, seed, benchmark]
        }
        return fit if len(fit) == len(asked) else {}


def items_of_runs(runs: Iterable[Run], rows: Iterable[Result]) -> RunItems:
    """Return a reader of the items of an arm's runs, for the weights in the table.

    Args:
        runs: runs of any arms.
        rows: results of these runs.
    """
    return RunItems(runs, rows)


def items_of_arms(runs: Runs, experiment: str, arms: Iterable[str]) -> RunItems:
    """Return a reader of the items of some arms of an experiment, as papers' tables name them.

    Args:
        runs: reader of all runs.
        experiment: name of the experiment that contains the arms.
        arms: names of the arms.

    Raises:
        UserError: if results cannot be read.
    """
    found: list[Run] = []
    rows: list[Result] = []
    for arm in arms:
        name = f"{experiment}/{arm}"
        rows += [replace(row, arm=arm) for row in runs.arm(name).rows]
        for folder in runs.folders(name):
            seed = int(folder.name.removeprefix("seed="))
            found.append(Run(folder, experiment, arm, {"seed": seed, "state": "done"}))
    return RunItems(found, rows)


def compare_over_items(
    made: Sequence[SignificanceRow],
    rows: Iterable[Result],
    items: ItemSource,
    labels: Mapping[str, str],
    family: Collection[Cell] | None = None,
) -> tuple[list[ItemComparison], list[str]]:
    """Test over items where one seed allows no test over seeds.

    Args:
        made: comparisons over seeds.
        rows: results behind the comparisons.
        items: reader of the arms' items.
        labels: label of each arm in tables, by its name.
        family: cells over which p is corrected; ``None`` for all.

    Returns:
        The tests over items, corrected (Holm) over the family, and sentences on what could not be
        tested over items either.
    """
    asked: dict[Cell, Result] = {row.cell: row for row in rows}
    found: list[ItemComparison] = []
    refused: list[str] = []
    without: list[str] = []
    for row in made:
        if row.reason != ONE_SEED:
            continue
        benchmark = asked[row.cell].benchmark
        try:
            without += [arm for arm in (row.arm, row.baseline) if not items(arm, benchmark)]
            test = compare_pair(row.arm, row.baseline, asked[row.cell], row.measure, items)
        except UserError as error:
            names = (labels.get(arm, arm) for arm in (row.arm, row.baseline))
            refused.append(f"{' against '.join(names)}: {error}.")
        else:
            found += [] if test is None else [ItemComparison(row, test)]
    one, both = (
        holm(
            [
                getattr(comparison.test, name)
                if family is None or comparison.row.cell in family
                else math.nan
                for comparison in found
            ]
        )
        for name in ("p", "p_two_sided")
    )
    corrected = [
        replace(comparison, p_holm=float(p), p_holm_two_sided=float(q))
        for comparison, p, q in zip(found, one, both, strict=True)
    ]
    lacking = ", ".join(labels.get(arm, arm) for arm in dict.fromkeys(without))
    lacks = [f"{lacking}: {NO_ITEMS}."] if lacking else []
    return corrected, [*lacks, *shorten(refused)]


def compare_pair(
    arm: str, baseline: str, about: Result, measure: Measure, items: ItemSource
) -> ItemTest | None:
    """Compare two arms over the items of a benchmark.

    Args:
        arm: name of the arm that should be better.
        baseline: name of the arm that it is compared with.
        about: any result of the benchmark, with its part and metric.
        measure: unit and direction of the metric.
        items: reader of the arms' items.

    Returns:
        The comparison; ``None`` if an arm was evaluated before items were saved, or the metric is
        not a mean over items.

    Raises:
        UserError: under the conditions of ``compare_items``, or if a file of items cannot be read.
    """
    ours, theirs = (items(one, about.benchmark) for one in (arm, baseline))
    if not ours or not theirs or about.metric not in {*ours[0].columns} & {*theirs[0].columns}:
        return None
    return compare_items(ours, theirs, about.metric, measure, about.by)


def shorten(sentences: Sequence[str]) -> list[str]:
    """Return the first few sentences, and one that counts the others.

    Args:
        sentences: sentences on comparisons of one kind.
    """
    more = len(sentences) - SPELLED_OUT
    if more <= 0:
        return list(sentences)
    return [*sentences[:SPELLED_OUT], f"The same holds of {more} more comparisons."]
