"""The table of the arms of one experiment, with report and summary."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import yaml

from cfaug.core.cards import public_settings
from cfaug.core.errors import UserError, say
from cfaug.core.processes import explain_missing
from cfaug.report.arm_results import collect
from cfaug.report.arms import Arm, arm_labels, read_arms, unnamed_settings
from cfaug.report.common_seeds import keep_common
from cfaug.report.comparison import ComparisonSettings
from cfaug.report.joint_tests import (
    compare_over_seeds_and_items,
    seeds_and_items_parts,
    write_seeds_and_items,
)
from cfaug.report.layout import comparisons_csv, write_tables
from cfaug.report.records import (
    experiment_folder,
    leak_sentences,
    read_config,
)
from cfaug.report.results import RESULTS, Result, arms_of
from cfaug.report.significance_rows import Primary, Table, family_of
from cfaug.report.significance_table import RunItems, significance_table
from cfaug.report.summary_text import steps_part, verdict
from cfaug.report.terminal import print_parts, print_table, results_parts
from cfaug.run.evaluation_data import build_run_data
from cfaug.run.folder_names import clean_name
from cfaug.run.launch import DONE, report
from cfaug.run.run_folder import hand_over, publish_runs

if TYPE_CHECKING:
    from pandas import DataFrame

    from cfaug.core.types import CounterfactualSet
    from cfaug.data.mixture.settings import DataSettings

WIDTH = 100
"""Characters of a line of the printed table."""


@dataclass(frozen=True)
class Difference:
    """An arm against a baseline on one metric; interval and p are of one test.

    Attributes:
        value: the arm's mean minus the baseline's, whatever the metric's direction.
        interval: 95 % interval of ``value``; ``nan`` without a test.
        p: two-sided p of the same test; ``nan`` without a test.
        p_holm: ``p`` after Holm's correction over the ``family``; ``nan`` outside of it.
        over: ``seeds`` or, where there is one seed, ``items``: others of them are what the test
            generalises to; ``None`` without a test.
        test: the name of the test, or the reason why there is none.
    """

    arm: str
    baseline: str
    benchmark: str
    metric: str
    value: float
    interval: tuple[float, float]
    p: float
    p_holm: float
    over: Literal["seeds", "items"] | None
    test: str


@dataclass(frozen=True)
class Comparison:
    """The arms of an experiment, compared on every benchmark and metric.

    ``print(comparison)`` shows the table with its notes.

    Attributes:
        folder: the experiment's folder (absolute), with ``table.csv``, ``.md``, ``.tex`` and
            ``report.html``.
        results: all results of the experiment's runs.
    """

    folder: Path
    _table: Table = field(repr=False)
    results: tuple[Result, ...] = field(repr=False)

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """Every arm against every baseline, on every benchmark and metric."""
        differences = []
        for row in self._table.comparisons:
            over: Literal["seeds", "items"] | None
            tested = self._table.get_over_items(row.arm, row.cell, row.baseline)
            if tested is not None:
                interval, test, over = tested.interval, tested.test.test, "items"
                p, p_holm = tested.test.p_two_sided, tested.p_holm_two_sided
            else:
                interval = (row.t_low, row.t_high)
                p, p_holm = row.p_paired_two_sided, row.p_holm_two_sided
                over = None if math.isnan(p) else "seeds"
                test = "Student's t, paired by seed" if over else row.reason
            differences.append(
                Difference(
                    row.arm, row.baseline, row.benchmark, row.metric, row.diff, interval, p,
                    p_holm, over, test,
                )
            )  # fmt: skip
        return tuple(differences)

    @property
    def family(self) -> tuple[Difference, ...]:
        """The differences whose p are corrected together (Holm)."""
        return tuple(
            difference for difference in self.differences if not math.isnan(difference.p_holm)
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes and cautions under the table."""
        return tuple(self._table.all_notes())

    def to_pandas(self) -> DataFrame:
        """Return the rows of ``table.csv`` (docs/tables.md), means without a comparison included.

        Raises:
            UserError: if pandas is missing.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise UserError(str(explain_missing(error))) from error
        text = io.StringIO(comparisons_csv(self._table))
        return pandas.read_csv(text, float_precision="round_trip")

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.differences)

    def __len__(self) -> int:
        return len(self.differences)

    def __str__(self) -> str:
        from rich.console import Console

        printed = io.StringIO()
        print_table(self._table, Console(file=printed, width=WIDTH, force_jupyter=False))
        return printed.getvalue()


Samples = Callable[["DataSettings", int], "list[CounterfactualSet]"]
"""Returns the first sets of a run's counterfactual source, so many at most."""
SAMPLES = 8
NAMED = 6
"""Most numbers of training examples, or settings, that one note lists."""


def compare(
    experiment: Path,
    baseline: str | Sequence[str] | None,
    samples: Samples,
    cautions: Mapping[str, Sequence[str]] | None = None,
    *,
    primary_metrics: Primary | None = None,
    every_benchmark: bool = True,
    brief: bool = False,
    comparison: ComparisonSettings | None = None,
) -> Table | None:
    """Write table.csv, .md, .tex and report.html for an experiment, and print the table.

    Args:
        experiment: the experiment's folder, with the runs in ``<arm>/seed=<n>``.
        baseline: the arm, or arms, to compare with; ``None`` takes those of ``comparison``.
        cautions: {benchmark: sentences that the tables and the report show if it is tabled},
            besides those on leaks and on arms with different test data.
        primary_metrics: {benchmark of this command: its primary metrics, for which comparisons are
            corrected}; ``None`` for no benchmark.
        every_benchmark: table all benchmarks that were ever measured, not only those of
            ``primary_metrics``.
        brief: whether to print one line in place of the table.

    Returns:
        The table; ``None`` if there is nothing to compare.
    """
    from cfaug.report.experiment_report import write_report

    measured = collect(sorted(file.parent for file in experiment.glob("*/seed=*/run.json")))
    for line in measured.left_out:
        say(line)
    primary = primary_metrics or {}
    rows = [row for row in measured.rows if every_benchmark or row.benchmark in primary]
    if not rows:
        why = "as no finished run there has results"
        if measured.rows:
            why = "as no benchmark of this command has a result; tabulate=all takes all with one"
        say(f"{experiment}: no table, {why}")
        return None
    tabled = [run for run in measured.runs if run.arm in arms_of(rows)]
    settings = comparison or ComparisonSettings()
    arms = read_arms(tabled)
    labels = arm_labels(arms, settings.labels)
    baselines = settings.choose_baselines(arms, baseline, labels)
    trained = {name: arm for name, arm in arms.items() if arm.trained}
    if not baselines or len(trained) < 2:
        print_parts(results_parts(rows, f"{RESULTS} of each run"))
        say(
            f"{experiment}: arms {', '.join(min(arm, labels[arm], key=len) for arm in arms)}; "
            "nothing to compare. "
            "A table needs two arms on the same seeds: train another, or name baseline=ARM"
        )
        return None
    rows, notes = keep_common(rows, frozenset(arms) - set(trained), settings.seeds, labels)
    used = {(row.arm, row.seed) for row in rows}
    tabled = [run for run in tabled if (run.arm, run.seed) in used]
    arms = read_arms(tabled)
    trained = {name: arm for name, arm in arms.items() if arm.trained}
    shown = {row.benchmark for row in rows}
    notes += _describe_differences(trained, labels)
    notes += _equal_labels(arm_labels(arms), labels, settings.labels)
    others = [b for b in dict.fromkeys(row.benchmark for row in measured.rows) if b not in shown]
    left_out = [
        "Only the last command's benchmarks are tabled and corrected for; tabulate=all adds "
        f"{', '.join(others)}."
    ] * bool(others)
    leaks = leak_sentences(run.folder for run in tabled)
    items = RunItems(tabled, rows)
    table = significance_table(
        rows,
        baselines,
        frozenset(arms) - set(trained),
        labels=labels,
        notes=notes,
        cautions=[
            *(line for line in leaks if line.partition(":")[0] in shown),
            *measured.left_out,
            *(line for name, some in (cautions or {}).items() if name in shown for line in some),
        ],
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
    table = replace(
        table,
        more=seeds_and_items_parts(joint, labels, refused),
        asides=tuple(left_out),
    )
    headline = settings.headline(rows, arms, baselines[0], labels, list(primary))
    sampled = next(run.folder for run in tabled if run.arm == headline.tested[0])
    config = read_config(sampled)
    data = build_run_data(config, sampled)
    report = write_report(
        experiment,
        title=f"cfaug: {experiment.name}",
        rows=rows,
        runs=tabled,
        samples=samples(data, SAMPLES),
        config_text=yaml.safe_dump(public_settings(config), sort_keys=False, allow_unicode=True),
        table=table,
        headline=headline,
    )
    written = [
        *write_tables(table, experiment),
        *write_seeds_and_items(joint, labels, experiment),
        *report,
    ]
    if brief:
        count = len(table.cautions)
        warned = f", {count} caution{'s' * (count != 1)}" if count else ""
        say(
            f"{experiment.name}: {len(table.arms)} arms, {len(table.comparisons)} "
            f"comparisons{warned}: {experiment / 'table.md'}",
            sys.stdout,
        )
        return table
    print_table(table, shown=family_of(rows, primary))
    steps = steps_part(rows, headline, baselines, items)
    if steps is not None:
        print_parts([steps])
    say(f"wrote {', '.join(path.name for path in written)} in {experiment}", sys.stdout)
    say(verdict(rows, headline, baselines, items), sys.stdout)
    say(f"next: open {experiment / 'report.html'} in a browser")
    return table


def _describe_differences(trained: Mapping[str, Arm], labels: Mapping[str, str]) -> list[str]:
    """Name the numbers of training examples, and the settings besides the data, that differ.

    Settings that the names of the arms show are left out.
    """
    notes = []
    of_size: dict[tuple[int, int], list[str]] = {}
    for arm in trained.values():
        if arm.train_sizes:
            sizes = (min(arm.train_sizes), max(arm.train_sizes))
            of_size.setdefault(sizes, []).append(labels[arm.name])
    if len(of_size) > 1:
        texts = [
            f"{low:,}{f' to {high:,}' * (high > low)} ({', '.join(names)})"
            for (low, high), names in sorted(of_size.items())
        ]
        more = f" and {len(texts) - NAMED} other numbers" if len(texts) > NAMED else ""
        shown = "; ".join(texts[:NAMED])
        notes.append(f"Arms differ in their number of training examples: {shown}{more}.")
    texts = []
    for key, values in unnamed_settings(trained).items():
        of_value: dict[str, list[str]] = {}
        for name, value in values.items():
            of_value.setdefault(value, []).append(labels[name])
        texts.append(f"{key} " + ", ".join(f"{v} ({', '.join(a)})" for v, a in of_value.items()))
    if texts:
        more = f" and {len(texts) - NAMED} other settings" if len(texts) > NAMED else ""
        notes.append(f"Arms differ in more than their data: {'; '.join(texts[:NAMED])}{more}.")
    return notes


def _equal_labels(
    automatic: Mapping[str, str], labels: Mapping[str, str], given: Mapping[str, str]
) -> list[str]:
    """Name the arms that did not get the label given for them, as others were given the same."""
    alike = [
        arm
        for arm, label in automatic.items()
        if labels[arm] != given.get(arm, given.get(label, labels[arm]))
    ]
    return [f"Arms with equal labels keep their names: {', '.join(alike)}."] if alike else []


SHOWN = 3
"""Most experiments whose tables are printed; with more, each is one line."""


def compare_all(
    runs: Sequence[Path],
    primary_metrics: Mapping[Path, Primary],
    baseline: str | Sequence[str] | None,
    samples: Samples,
    forgetting: float | None,
    comparison: ComparisonSettings | None = None,
    *,
    every_benchmark: bool = False,
    tables: dict[Path, Table] | None = None,
) -> int:
    """Write cards, tables and reports of every experiment, and report the errors of each.

    Runs that were logged to Weights & Biases get their results and the report there.

    Args:
        primary_metrics: {folder of an experiment: {benchmark of this command: its primary
            metrics}}.
        every_benchmark: table all benchmarks with results, not only those in ``primary_metrics``.
        forgetting: smallest decrease against the initial weights that is reported, a share;
            ``None`` reports none.

    Returns:
        An exit code.
    """
    folders: dict[Path, list[Path]] = {}
    for run in runs:
        folders.setdefault(experiment_folder(run), []).append(run)
    code = DONE
    for experiment in sorted(folders):
        try:
            table = compare(
                experiment,
                baseline,
                samples,
                hand_over(experiment, folders[experiment], forgetting),
                primary_metrics=primary_metrics.get(experiment, {}),
                every_benchmark=every_benchmark,
                brief=len(folders) > SHOWN,
                comparison=comparison,
            )
            if table is not None and tables is not None:
                tables[experiment] = table
            publish_runs(folders[experiment], experiment if table is not None else None)
        except UserError as error:
            code = report(UserError(f"no table of experiment {experiment.name}: {error}"))
    return code


def join_experiments(root: Path, names: Sequence[str]) -> str:
    """Link the arms of several experiments into one, and return its name.

    An arm is called ``EXPERIMENT-ARM`` there; its runs, results and checkpoints are those of the
    experiment itself. A repeated call links new arms and removes links to arms that are gone.

    Args:
        root: the folder of all runs, ``paths.runs``.
    """
    if len(names) < 2 or len(set(names)) < len(names):
        raise UserError(f"name=[{','.join(names)}]: name two experiments or more, each once")
    if any("+" in name for name in names):  # a+b and c would share a folder with a and b+c
        raise UserError(f"name=[{','.join(names)}]: a name with + cannot be joined; rename it")
    wanted: dict[str, Path] = {}
    for name in names:
        arms = sorted({file.parents[1].name for file in (root / name).glob("*/seed=*/run.json")})
        if not arms:
            there = sorted({file.parents[2].name for file in root.glob("*/*/seed=*/run.json")})
            raise UserError(
                f"name=[{','.join(names)}]: {root / name} holds no run; there are: "
                f"{', '.join(there) or 'none'}"
            )
        for arm in arms:
            link = clean_name(f"{name}-{arm}")
            if link in wanted:
                raise UserError(f"two arms would be called {link}: rename the folder of one")
            wanted[link] = Path("..", name, arm)
    joined = clean_name("+".join(names))
    folder = root / joined
    folder.mkdir(exist_ok=True)
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink():
            target = Path(os.readlink(entry))
            if len(target.parts) != 3 or target.parts[0] != "..":
                raise UserError(
                    f"{entry} is a link to {target}, and no linked arm: name=[...] needs a folder "
                    "of its own there; move the link away"
                )
            if wanted.get(entry.name) != target:
                entry.unlink()
        elif entry.is_dir():
            raise UserError(
                f"{folder} holds {entry.name}, which is not a linked arm: name=[...] needs a "
                "folder of its own there; rename this one"
            )
    for name, target in wanted.items():
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(target)
    return joined
