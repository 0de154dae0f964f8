"""Tables of the arms of one experiment, with report and summary, and tables of papers."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError, say
from cfaug.planning.build import build
from cfaug.report.arm_results import collect
from cfaug.report.arms import Arm, arm_labels, read_arms, unnamed_settings
from cfaug.report.comparison import ComparisonSettings
from cfaug.report.joint_tests import (
    compare_over_seeds_and_items,
    seeds_and_items_parts,
    write_seeds_and_items,
)
from cfaug.report.layout import write_tables
from cfaug.report.records import (
    CONFIG,
    Run,
    experiment_folder,
    leak_sentences,
    read_config,
    setting_node,
)
from cfaug.report.results import Result, arms_of
from cfaug.report.significance_rows import Primary, Table, family_of
from cfaug.report.significance_table import RunItems, significance_table
from cfaug.report.summary_text import verdict
from cfaug.run.evaluate_checkpoint import EvaluationTarget
from cfaug.run.identity import clean_name
from cfaug.run.launch import DONE, report
from cfaug.run.run_folder import hand_over

if TYPE_CHECKING:
    from cfaug.core.types import CounterfactualSet
    from cfaug.data.mixture.settings import DataSettings
    from cfaug.report.comparison import Headline


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
    comparison: ComparisonSettings | None = None,
) -> Table | None:
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

    Returns:
        The table; ``None`` if there is nothing to compare.
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
        return None
    tabled = [run for run in found.runs if run.arm in arms_of(rows)]
    settings = comparison or ComparisonSettings()
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
        return None
    items = RunItems(tabled, rows)
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
    answer = "" if brief else verdict(rows, headline, baselines, items)
    _print(experiment, table, written, answer)
    return table


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
    from cfaug.report.experiment_report import write_report

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


def _print(experiment: Path, table: Table, paths: Sequence[Path], answer: str) -> None:
    """Print the table with its answer or, without an answer, one line."""
    from cfaug.report.layout import print_table

    if answer:
        print_table(table)
        say(answer, sys.stdout)
        say(f"wrote {', '.join(path.name for path in paths)} in {experiment}", sys.stdout)
        say(f"next: open {experiment / 'report.html'} in a browser")
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


def compare_checkpoints(
    one: EvaluationTarget, baselines: Sequence[EvaluationTarget], benchmarks: Primary
) -> None:
    """Write table.csv, .md and .tex beside a checkpoint's results, and print the table.

    Args:
        baselines: checkpoints to compare with, already evaluated on the same world.
        benchmarks: {benchmark in the table: its primary metrics, for which comparisons are
            corrected}.
    """
    from cfaug.report.layout import print_table

    runs: list[Run] = []
    rows: list[Result] = []
    for tested in (*baselines, one):
        record = {"state": "done", "seed": tested.seed}
        run = Run(tested.folder, tested.experiment, tested.arm, record)
        own = [row for row in run.results() if row.benchmark in benchmarks]
        lacks = sorted(set(benchmarks) - {row.benchmark for row in own})
        if lacks:
            raise UserError(
                f"baseline={tested.arm} has no result of {', '.join(lacks)} in {tested.folder}: "
                "evaluate it first, with weights= in place of baseline= and the same settings"
            )
        if tested is not one and tested.folder == one.folder:
            raise UserError(f"baseline={tested.arm} is the checkpoint itself: name another")
        runs.append(run)
        rows += own
    names = list(dict.fromkeys(tested.arm for tested in baselines))
    table = significance_table(rows, names, items=RunItems(runs, rows), primary=benchmarks)
    print_table(table)
    written = write_tables(table, one.folder)
    say("wrote " + ", ".join(map(str, written)), sys.stdout)


FOLDER = "compared"
LONGEST_NAME = 100


def compare_files(files: Sequence[str] | str, columns: Mapping[str, Any], root: Path) -> int:
    """Compare files of items, print the table, and write it in every form.

    Args:
        files: two or more lists of items (csv, tsv, jsonl, json).
        columns: the node that assigns the files' columns.
        root: the folder of all runs; tables are written into its folder ``compared``.
    """
    from cfaug.report.item_files import (
        compare_item_files,
        comparison_document,
        read_item_files,
        shown_names,
    )
    from cfaug.report.paper_tables import write_tables_page
    from cfaug.report.writers import to_markdown, write_document

    given = [files] if isinstance(files, str) else list(files)
    paths = [Path(file).expanduser() for file in given]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise UserError(f"compare: there is no file {missing[0]}")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError("compare: a file is named twice")
    answers = read_item_files(paths, build(columns))
    found = compare_item_files(answers)
    document = comparison_document(answers, found, _name(shown_names(paths)))
    say(to_markdown(document), sys.stdout)
    written = write_document(document, root / FOLDER)
    page = write_tables_page(root / FOLDER)
    say("wrote " + ", ".join(str(path) for path in [*written, page]), sys.stdout)
    return DONE


def _name(shown: Sequence[str]) -> str:
    """Return the name of the table that compares some files.

    >>> _name(["a/b c", "d"]), _name(["a", "b", "c"])
    ('a_b_c-against-d', 'a-against-b-and-1-more')
    """
    more = f"-and-{len(shown) - 2}-more" if len(shown) > 2 else ""
    words = [re.sub(r"[^\w.-]+", "_", name)[: LONGEST_NAME // 2] for name in shown[:2]]
    return "-against-".join(words) + more


SHOWN = 3
"""Most experiments whose tables are printed; with more, each is one line."""


def compare_all(
    runs: Sequence[Path],
    asked: Mapping[Path, Primary],
    baseline: str | Sequence[str] | None,
    samples: Samples,
    forgetting: float | None,
    comparison: ComparisonSettings | None = None,
    *,
    every_benchmark: bool = False,
    tables: dict[Path, Table] | None = None,
) -> int:
    """Write cards, tables and reports of every experiment, and report the errors of each.

    Args:
        asked: {folder of an experiment: {benchmark of this command: its primary metrics}}.
        baseline: the arm, or arms, to compare with; ``None`` takes those of ``comparison``.
        samples: a function that returns the first sets of a run's counterfactual source.
        comparison: the baselines of arms, and their labels; ``None`` for the defaults.
        every_benchmark: table all benchmarks with results, not only those in ``asked``.
        forgetting: smallest decrease against the initial weights that is reported, a share;
            ``None`` reports none.
        tables: dictionary to which the table of every experiment's folder is added.

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
                asked=asked.get(experiment, {}),
                every_benchmark=every_benchmark,
                brief=len(folders) > SHOWN,
                comparison=comparison,
            )
            if table is not None and tables is not None:
                tables[experiment] = table
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
    _link_all(root / joined, wanted)
    return joined


def _link_all(folder: Path, wanted: dict[str, Path]) -> None:
    """Create missing links of a folder and remove others."""
    folder.mkdir(exist_ok=True)
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink():
            if wanted.get(entry.name) != Path(os.readlink(entry)):
                entry.unlink()
        elif entry.is_dir():
            raise UserError(
                f"{folder} holds {entry.name}, which is not a linked arm: name=[...] needs a "
                "folder of its own there; rename this one"
            )
    for name, target in wanted.items():
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(target)


# ``evaluate.py table=...``: a paper's table or figure, from the runs under ``paths.runs``.

TABLES = "tables"


def write_table(table: Mapping[str, Any], root: Path) -> int:
    """Make one table: print it, write it in every format, and add it to the page of all tables.

    Args:
        table: the node of the table, from ``conf/table``.
    """
    from cfaug.report.arm_results import Runs
    from cfaug.report.paper_tables import write_tables_page
    from cfaug.report.writers import to_markdown, write_document

    if "_target_" not in table:
        raise UserError("table=... is one of the paper's: python evaluate.py --help lists them")
    runs = Runs(root)
    document = build(table).build(runs)
    document = replace(document, notes=(*document.notes, *runs.left_out))
    say(to_markdown(document), sys.stdout)
    paths = write_document(document, root / TABLES)
    page = write_tables_page(root / TABLES)
    say("wrote " + ", ".join(str(path) for path in [*paths, page]), sys.stdout)
    return DONE
