"""The arms of one experiment side by side: tables, report, and printed summary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.core.messages import say
from cfaug.report.arms import Arm, read_arms
from cfaug.report.collection import collect
from cfaug.report.comparison import Comparison
from cfaug.report.families import Primary, family_of
from cfaug.report.item_comparisons import items_of_runs
from cfaug.report.joint_tests import compare_over_seeds_and_items
from cfaug.report.labels import arm_labels, unnamed_settings
from cfaug.report.layout import write_tables
from cfaug.report.leaks import leak_sentences
from cfaug.report.records import CONFIG, Run, read_config, setting_node
from cfaug.report.results import Result, arms_of
from cfaug.report.seeds_and_items import seeds_and_items_parts, write_seeds_and_items
from cfaug.report.significance_table import significance_table
from cfaug.report.tables import Table
from cfaug.run.build import build

if TYPE_CHECKING:
    from cfaug.core.types import CounterfactualSet
    from cfaug.data.mixture.settings import DataSettings
    from cfaug.report.headline import Headline

Samples = Callable[["DataSettings", int], "list[CounterfactualSet]"]

SAMPLES = 8

NAMED = 6
"""Most numbers of training examples, or settings, that one note lists."""


def compare(
    experiment: Path,
    baseline: str | Sequence[str] | None,
    samples: Samples,
    cautions: Sequence[str] = (),
    *,
    asked: Primary | None = None,
    every_benchmark: bool = True,
    brief: bool = False,
    comparison: Comparison | None = None,
) -> None:
    """Write table.csv, .md, .tex and report.html for an experiment, and print the table.

    Args:
        experiment: the experiment's folder, with the runs in ``<arm>/seed=<n>``.
        baseline: the arm, or arms, to compare with; ``None`` takes those of ``comparison``.
        samples: a function that returns the first sets of a run's counterfactual source.
        cautions: sentences that the tables and the report show, besides those on leaks and on arms
            with different test data.
        asked: {benchmark of this command: its primary metrics, for which comparisons are
            corrected}; ``None`` for no benchmark.
        every_benchmark: table all benchmarks that were ever measured, not only those in ``asked``.
        brief: whether to print one line in place of the table.
        comparison: the baselines of arms, and their labels; ``None`` for the defaults.

    Raises:
        UserError: if the arms were not run on the same seeds, or the baseline is missing.
    """
    folders = sorted(file.parent for file in experiment.glob("*/seed=*/run.json"))
    found = collect(folders)
    for line in found.left_out:
        say(line)
    primary = asked or {}
    rows = [row for row in found.rows if every_benchmark or row.benchmark in primary]
    if not rows:
        why = "as no finished run there has results"
        if found.rows:
            why = "as no benchmark of this command has a result; tabulate=all takes all with one"
        say(f"{experiment}: no table, {why}")
        return
    tabled = [run for run in found.runs if run.arm in arms_of(rows)]
    settings = comparison or Comparison()
    arms = read_arms(tabled)
    untrained = frozenset(arm.name for arm in arms.values() if not arm.trained)
    labels = arm_labels(arms, settings.labels)
    baselines = settings.choose_baselines(arms, baseline, labels)
    trained = {name: arm for name, arm in arms.items() if arm.trained}
    if not baselines or len(trained) < 2:
        say(
            f"{experiment}: arms {', '.join(min(arm, labels[arm], key=len) for arm in arms)}; "
            "nothing to compare. "
            "A table needs two arms on the same seeds: train another, or name baseline=ARM"
        )
        return
    items = items_of_runs(tabled, rows)
    table = significance_table(
        rows,
        baselines,
        untrained,
        labels=labels,
        notes=[
            *_sizes(trained, labels),
            *_settings(trained, labels),
            *_not_tabled(found.rows, rows),
        ],
        cautions=[*_leaks(tabled, rows), *found.left_out, *cautions],
        items=items,
        primary=primary,
    )
    joint, refused = (
        compare_over_seeds_and_items(
            table.comparisons, rows, items, labels, family_of(rows, primary)
        )
        if settings.seeds_and_items
        else ([], [])
    )
    table = replace(table, more=seeds_and_items_parts(joint, labels, refused))
    headline = settings.headline(rows, arms, baselines[0], labels)
    report = _report(experiment, rows, tabled, table, headline, samples)
    written = [
        *write_tables(table, experiment),
        *write_seeds_and_items(joint, labels, experiment),
        *report,
    ]
    _print(experiment, table, written, brief)


def _leaks(runs: Sequence[Run], rows: Sequence[Result]) -> list[str]:
    """Return the known leaks into the benchmarks of the table."""
    shown = {row.benchmark for row in rows}
    said = leak_sentences(run.folder for run in runs)
    return [line for line in said if line.partition(":")[0] in shown]


def _report(
    experiment: Path,
    rows: Sequence[Result],
    runs: Sequence[Run],
    table: Table,
    headline: Headline,
    samples: Samples,
) -> list[Path]:
    from cfaug.report.html import write_report

    shown = next(run.folder for run in runs if run.arm == headline.tested[0])
    return write_report(
        experiment,
        title=f"cfaug: {experiment.name}",
        rows=rows,
        runs=runs,
        samples=samples(_data_of(shown), SAMPLES),
        config_text=(shown / CONFIG).read_text(encoding="utf-8"),
        table=table,
        headline=headline,
    )


def _print(experiment: Path, table: Table, paths: Sequence[Path], brief: bool) -> None:
    from cfaug.report.terminal import print_table

    if not brief:
        print_table(table)
        say("wrote " + ", ".join(map(str, paths)), sys.stdout)
        return
    cautions = len(table.cautions)
    warned = f", {cautions} caution{'s' * (cautions != 1)}" if cautions else ""
    say(
        f"{experiment.name}: {len(table.arms)} arms, {len(table.comparisons)} comparisons{warned}: "
        f"{experiment / 'table.md'}",
        sys.stdout,
    )


def _sizes(trained: Mapping[str, Arm], labels: Mapping[str, str]) -> list[str]:
    """Say how many training examples the arms had, if the numbers differ."""
    arms: dict[tuple[int, int], list[str]] = {}
    for arm in trained.values():
        if arm.train_sizes:
            sizes = (min(arm.train_sizes), max(arm.train_sizes))
            arms.setdefault(sizes, []).append(labels[arm.name])
    if len(arms) < 2:
        return []
    told = [
        f"{low:,}{f' to {high:,}' * (high > low)} ({', '.join(names)})"
        for (low, high), names in sorted(arms.items())
    ]
    more = f" and {len(told) - NAMED} other numbers" if len(told) > NAMED else ""
    return [f"Arms differ in their number of training examples: {'; '.join(told[:NAMED])}{more}."]


def _settings(trained: Mapping[str, Arm], labels: Mapping[str, str]) -> list[str]:
    """Name the settings besides the data in which the arms differ, unless their names show them."""
    found = unnamed_settings(trained)
    told = []
    for key, values in found.items():
        arms: dict[str, list[str]] = {}
        for arm, value in values.items():
            arms.setdefault(value, []).append(labels[arm])
        told.append(f"{key} " + ", ".join(f"{v} ({', '.join(a)})" for v, a in arms.items()))
    if not told:
        return []
    more = f" and {len(told) - NAMED} other settings" if len(told) > NAMED else ""
    return [f"Arms differ in more than their data: {'; '.join(told[:NAMED])}{more}."]


def _not_tabled(measured: Sequence[Result], tabled: Sequence[Result]) -> list[str]:
    """Say which measured benchmarks are not in the table."""
    shown = {row.benchmark for row in tabled}
    others = [b for b in dict.fromkeys(row.benchmark for row in measured) if b not in shown]
    if not others:
        return []
    return [
        f"Only the last command's benchmarks are tabled and corrected for; tabulate=all adds "
        f"{', '.join(others)}."
    ]


def _data_of(folder: Path) -> DataSettings:
    node = setting_node(read_config(folder), "data", folder)
    data: DataSettings = build(node, trusted=False)
    return data
