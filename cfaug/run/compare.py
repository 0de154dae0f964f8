"""The arms of one experiment side by side: tables, report, and what is printed of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.errors import UserError
from cfaug.report.leaks import leak_sentences
from cfaug.report.records import CONFIG, Collected, collect, read_config, setting_node
from cfaug.report.results import Result, arms_of, cells_of, other_tests, untrained_arms
from cfaug.run.compose import build

if TYPE_CHECKING:
    from cfaug.data.settings import DataSettings
    from cfaug.report.verdict import Headline
    from cfaug.types import CounterfactualSet

Samples = Callable[["DataSettings", int], "list[CounterfactualSet]"]

USUAL_BASELINES = ("real", "more_real")
UNDER_TEST = ("generated", "counterfactual")
SAMPLES = 8

LABELS = {
    "before": "before fine-tuning",
    "real": "real only",
    "more_real": "real + more real",
    "counterfactual": "real + counterfactual pairs",
    "generated": "real + generated pairs",
    "generated_sources": "real + generated, unedited",
    "counterfactual_paired": "pairs in one batch",
    "unbiased": "real + unbiased unpaired",
    "matched": "real + matched unpaired",
    "matched_paired": "matched in one batch",
}


def compare(
    experiment: Path,
    baseline: str | Sequence[str] | None,
    samples: Samples,
    cautions: Sequence[str] = (),
) -> None:
    """Write table.csv, .md, .tex and report.html for an experiment, and print the table.

    Args:
        experiment: the folder whose ``<arm>/seed=<n>`` are the runs.
        baseline: what to compare with; ``None`` takes the usual ones that are there.
        samples: gives the first sets of a run's counterfactual source.
        cautions: sentences that the report shows beneath its verdict, besides those on leaks
            and on arms that were asked different test data.

    Raises:
        UserError: if the arms were not run on the same seeds, or the baseline is not there.
    """
    folders = sorted(file.parent for file in experiment.glob("*/seed=*/run.json"))
    found = collect(folders)
    rows, runs = list(found.rows), found.records
    for line in found.left_out:
        print(line, file=sys.stderr)
    if not rows:
        print(f"{experiment}: no table, as no finished run there has results", file=sys.stderr)
        return
    untrained = untrained_arms(runs)
    baselines = _baselines(rows, runs, baseline, untrained)
    trained = [arm for arm in arms_of(rows) if arm not in untrained]
    if not baselines or len(trained) < 2:
        print(
            f"{experiment}: arms {', '.join(arms_of(rows))}; nothing to compare. "
            "A table needs two arms on the same seeds: train another, or name baseline=ARM",
            file=sys.stderr,
        )
        return
    apart = other_tests(rows)
    for line in apart:
        print(line, file=sys.stderr)
    folders = [run.folder for run in found.runs]
    said = [*apart, *leak_sentences(folders), *found.left_out, *cautions]
    _write(experiment, found, baselines, samples, said)


def _baselines(
    rows: Sequence[Result],
    runs: Sequence[Mapping[str, Any]],
    asked: str | Sequence[str] | None,
    untrained: Collection[str],
) -> list[str]:
    """Return what was asked for; else the usual arms; else those without counterfactuals."""
    arms = arms_of(rows)
    if asked is None:
        usual = [arm for arm in USUAL_BASELINES if arm in arms]
        without = {run["arm"] for run in runs if run.get("cf_ratio") == 0} - set(untrained)
        return usual or sorted(without & set(arms))
    names = [asked] if isinstance(asked, str) else list(asked)
    missing = [name for name in names if name not in arms]
    if missing:
        raise UserError(f"no arm is called {missing[0]!r}; there are {', '.join(arms)}")
    return names


def _write(
    experiment: Path,
    found: Collected,
    baselines: list[str],
    samples: Samples,
    cautions: Sequence[str],
) -> None:
    from cfaug.report.html import write_report
    from cfaug.report.layout import print_table, write_tables
    from cfaug.report.tables import significance_table

    rows, runs = list(found.rows), found.records
    table = significance_table(rows, baselines, untrained_arms(runs))
    paths = write_tables(table, experiment)
    headline = _headline(rows, runs, baselines)
    shown = next(run.folder for run in found.runs if run.arm == headline.tested[0])
    report = write_report(
        experiment,
        title=f"cfaug: {experiment.name}",
        rows=rows,
        runs=runs,
        samples=samples(_data_of(shown), SAMPLES),
        config_text=(shown / CONFIG).read_text(),
        baselines=baselines,
        headline=headline,
        cautions=cautions,
    )
    print_table(table)
    print("wrote " + ", ".join(str(path) for path in [*paths, report]))


def _data_of(folder: Path) -> DataSettings:
    node = setting_node(read_config(folder), "data", folder)
    data: DataSettings = build(node, trusted=False)
    return data


def _headline(
    rows: Sequence[Result], runs: Sequence[Mapping[str, Any]], baselines: Sequence[str]
) -> Headline:
    """Say what the first line is about: out of distribution where there is such a benchmark."""
    from cfaug.report.verdict import Headline

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
        labels={arm: LABELS.get(arm, _readable(arm)) for arm in arms},
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


def _readable(arm: str) -> str:
    return re.sub(r"cf_ratio=([\d.]+)", lambda m: f"{100 * float(m[1]):g}% counterfactual", arm)
