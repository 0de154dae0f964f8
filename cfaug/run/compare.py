"""The arms of one experiment side by side: tables, report, and what is printed of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.errors import UserError
from cfaug.messages import say
from cfaug.report.labels import arm_labels, unnamed_settings
from cfaug.report.layout import write_tables
from cfaug.report.leaks import leak_sentences
from cfaug.report.records import CONFIG, Run, collect, read_config, setting_node
from cfaug.report.results import Result, arms_of, cells_of, untrained_arms
from cfaug.report.tables import Table, significance_table
from cfaug.run.build import build

if TYPE_CHECKING:
    from cfaug.data.planning.settings import DataSettings
    from cfaug.report.summary_text import Headline
    from cfaug.types import CounterfactualSet

Samples = Callable[["DataSettings", int], "list[CounterfactualSet]"]

USUAL_BASELINES = ("real", "more_real")
UNDER_TEST = ("generated", "counterfactual")
SAMPLES = 8

NAMED = 6
"""Numbers of training examples, or settings, that one note lists."""


def compare(
    experiment: Path,
    baseline: str | Sequence[str] | None,
    samples: Samples,
    cautions: Sequence[str] = (),
    *,
    benchmarks: Collection[str] | None = None,
    brief: bool = False,
) -> None:
    """Write table.csv, .md, .tex and report.html for an experiment, and print the table.

    Args:
        experiment: the folder whose ``<arm>/seed=<n>`` are the runs.
        baseline: what to compare with; ``None`` takes the usual ones that are there.
        samples: gives the first sets of a run's counterfactual source.
        cautions: sentences that the tables and the report show, besides those on leaks
            and on arms that were asked different test data.
        benchmarks: what is tabled, and so corrected for; ``None`` is all that was ever measured.
        brief: print one line in place of the table.

    Raises:
        UserError: if the arms were not run on the same seeds, or the baseline is not there.
    """
    folders = sorted(file.parent for file in experiment.glob("*/seed=*/run.json"))
    found = collect(folders)
    for line in found.left_out:
        say(line)
    rows = [row for row in found.rows if benchmarks is None or row.benchmark in benchmarks]
    if not rows:
        why = "as no finished run there has results"
        if found.rows:
            why = "as nothing that was asked now has a result; tabulate=all takes what has one"
        say(f"{experiment}: no table, {why}")
        return
    tabled = [run for run in found.runs if run.arm in arms_of(rows)]
    runs = [run.record for run in tabled]
    untrained = untrained_arms(runs)
    labels = arm_labels(arms_of(rows), runs)
    baselines = _baselines(rows, runs, baseline, untrained, labels)
    trained = [arm for arm in arms_of(rows) if arm not in untrained]
    if not baselines or len(trained) < 2:
        say(
            f"{experiment}: arms {', '.join(arms_of(rows))}; nothing to compare. "
            "A table needs two arms on the same seeds: train another, or name baseline=ARM"
        )
        return
    table = significance_table(
        rows,
        baselines,
        untrained,
        labels=labels,
        notes=[
            *_sizes(runs, labels, untrained),
            *_settings(runs, labels, untrained),
            *_not_tabled(found.rows, rows),
        ],
        cautions=[*_leaks(tabled, rows), *found.left_out, *cautions],
    )
    headline = _headline(rows, runs, baselines, labels)
    report = _report(experiment, rows, tabled, table, headline, samples)
    _tell(experiment, table, [*write_tables(table, experiment), report], brief)


def _leaks(runs: Sequence[Run], rows: Sequence[Result]) -> list[str]:
    """Return what is known of leaks into the benchmarks that are tabled."""
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
) -> Path:
    from cfaug.report.html import write_report

    shown = next(run.folder for run in runs if run.arm == headline.tested[0])
    return write_report(
        experiment,
        title=f"cfaug: {experiment.name}",
        rows=rows,
        runs=[run.record for run in runs],
        samples=samples(_data_of(shown), SAMPLES),
        config_text=(shown / CONFIG).read_text(),
        table=table,
        headline=headline,
    )


def _tell(experiment: Path, table: Table, paths: Sequence[Path], brief: bool) -> None:
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


def _sizes(
    runs: Sequence[Mapping[str, Any]], labels: Mapping[str, str], untrained: Collection[str]
) -> list[str]:
    """Say how many training examples the arms had, if not all the same."""
    found: dict[str, set[int]] = {}
    for run in runs:
        arm, count = str(run.get("arm")), (run.get("counts") or {}).get("train")
        if arm in labels and arm not in untrained and isinstance(count, int):
            found.setdefault(arm, set()).add(count)
    arms: dict[tuple[int, int], list[str]] = {}
    for arm, counts in found.items():
        arms.setdefault((min(counts), max(counts)), []).append(labels[arm])
    if len(arms) < 2:
        return []
    told = [
        f"{low:,}{f' to {high:,}' * (high > low)} ({', '.join(names)})"
        for (low, high), names in sorted(arms.items())
    ]
    more = f" and {len(told) - NAMED} other numbers" if len(told) > NAMED else ""
    return [f"Arms differ in their number of training examples: {'; '.join(told[:NAMED])}{more}."]


def _settings(
    runs: Sequence[Mapping[str, Any]], labels: Mapping[str, str], untrained: Collection[str]
) -> list[str]:
    """Say in which settings beside the data's the arms differ, if their names do not."""
    found = unnamed_settings([arm for arm in labels if arm not in untrained], runs)
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
    """Say which benchmarks were measured and are not tabled."""
    shown = {row.benchmark for row in tabled}
    others = [b for b in dict.fromkeys(row.benchmark for row in measured) if b not in shown]
    if not others:
        return []
    return [
        f"Only what was asked by the last command is tabled and corrected for; tabulate=all adds "
        f"{', '.join(others)}."
    ]


def _baselines(
    rows: Sequence[Result],
    runs: Sequence[Mapping[str, Any]],
    asked: str | Sequence[str] | None,
    untrained: Collection[str],
    labels: Mapping[str, str],
) -> list[str]:
    """Return what was asked for, by name or label; else the usual; else arms of real data alone."""
    arms = arms_of(rows)
    if asked is None:
        usual = [arm for arm in USUAL_BASELINES if arm in arms]
        without = {run["arm"] for run in runs if run.get("cf_ratio") == 0} - set(untrained)
        return usual or sorted(without & set(arms))
    by_label = {label: arm for arm, label in labels.items() if label not in arms}
    given = [asked] if isinstance(asked, str) else asked
    names = list(dict.fromkeys(by_label.get(name, name) for name in given))  # once in the family
    missing = [name for name in names if name not in arms]
    if missing:
        raise UserError(f"no arm is called {missing[0]!r}; there are {', '.join(arms)}")
    return names


def _data_of(folder: Path) -> DataSettings:
    node = setting_node(read_config(folder), "data", folder)
    data: DataSettings = build(node, trusted=False)
    return data


def _headline(
    rows: Sequence[Result],
    runs: Sequence[Mapping[str, Any]],
    baselines: Sequence[str],
    labels: Mapping[str, str],
) -> Headline:
    """Say what the first line is about: out of distribution where there is such a benchmark."""
    from cfaug.report.summary_text import Headline

    arms = arms_of(rows)
    cells = cells_of(rows)
    usual = ("shapescapes_ood_classification", "acc1")
    benchmark, metric = usual if usual in cells else cells[0]
    tested = _under_test(runs, baselines[0])
    order = [arm for arm in dict.fromkeys(("before", baselines[0])) if arm in arms]
    return Headline(
        benchmark=benchmark,
        metric=metric,
        order=tuple(arm for arm in order if arm not in tested),
        tested=tested,
        labels=labels,
    )


def _under_test(runs: Sequence[Mapping[str, Any]], baseline: str) -> tuple[str, ...]:
    """Return the arms the experiment is about: those so named, or the most counterfactual one."""
    untrained = untrained_arms(runs)
    ratios = {
        str(run["arm"]): float(run.get("cf_ratio") or 0)
        for run in runs
        if run["arm"] not in untrained and run["arm"] != baseline
    }
    named = tuple(arm for arm in UNDER_TEST if arm in ratios)
    return named or (max(ratios, key=lambda arm: (ratios[arm], arm)),)
