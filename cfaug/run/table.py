r"""Make a table or figure of a paper from finished evaluations.

cfaug table wise_ft table.experiment=controls
cfaug table wise_ft edit_quality paths.runs=runs/mine
cfaug table NAME declare=true
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.core.errors import OutputSettings, UserError, say
from cfaug.core.processes import Threads, use_threads
from cfaug.core.validation import Node, RunPaths, Words
from cfaug.planning.build import build
from cfaug.report.arm_results import Runs
from cfaug.report.document import write_document
from cfaug.report.layout import write_tables
from cfaug.report.paper_tables import write_tables_page
from cfaug.report.records import Run
from cfaug.report.results import RESULTS, Result, every_result
from cfaug.report.significance_rows import Primary
from cfaug.report.significance_table import RunItems, significance_table
from cfaug.report.terminal import print_document, print_table
from cfaug.report.training_table import TrainingTable, write_declaration
from cfaug.run.folder_names import clean_name, digest, runs_folder
from cfaug.run.launch import Jobs, Script, choose_named, launch, report_each

if TYPE_CHECKING:
    from cfaug.run.evaluate_checkpoint import EvaluationTarget


@dataclass(frozen=True, kw_only=True)
class TableSettings(OutputSettings):
    """The settings of ``cfaug table``."""

    table: Node
    """the table to make, chosen by its name"""
    paths: RunPaths
    """``runs``: the folder of all runs, whose results are tabled; ``runs``/tables gets the table"""
    declare: bool = False
    """write only what the table compares, to ``declared.json`` of its experiment, before
    anything is trained"""
    threads: Threads = None
    """torch's threads on a CPU; null: all cores"""
    overrides: Words = ()

    @property
    def root(self) -> Path:
        """The folder of all runs."""
        return runs_folder(self.paths["runs"])


def make_table(settings: TableSettings) -> list[Path]:
    """Make a table of a paper: print it, write it in every form, and add it to the page of tables.

    With ``declare`` only what the table compares is written, before anything is trained.

    Returns:
        The files that were written.
    """
    use_threads(settings.threads)
    table = build(settings.table)
    if settings.declare:
        if not isinstance(table, TrainingTable):
            raise UserError(f"declare=true is for tables of trained arms, and not for {table.name}")
        file = write_declaration(table, settings.root)
        typed = shlex.quote(f"declared={file}")
        say(f"wrote {file}; train the arms with {typed}", sys.stdout)
        return [file]
    runs, folder = Runs(settings.root), settings.root / "tables"
    document = table.build(runs)
    document = replace(document, notes=(*document.notes, *runs.left_out))
    print_document(document)
    written = [*write_document(document, folder), write_tables_page(folder)]
    say("wrote " + ", ".join(map(str, written)), sys.stdout)
    return written


def compare_checkpoints(
    tested: EvaluationTarget, baselines: Sequence[EvaluationTarget], benchmarks: Primary
) -> None:
    """Write a table as csv, md and tex beside a checkpoint's results, and print it.

    Its name, ``table-BENCHMARKS-against-BASELINES``, says what is compared, so that tables of other
    benchmarks and other baselines stay.

    Args:
        baselines: checkpoints to compare with, already evaluated on the same world.
        benchmarks: {benchmark in the table: its primary metrics, for which comparisons are
            corrected}.
    """
    runs: list[Run] = []
    rows: list[Result] = []
    for target in (*baselines, tested):
        record = {"state": "done", "seed": target.seed}
        run = Run(target.folder, target.experiment, target.arm, record)
        results = [row for row in run.results() if row.benchmark in benchmarks]
        lacks = sorted(set(benchmarks) - {row.benchmark for row in results})
        if lacks:
            raise UserError(
                f"baseline={target.arm} has no result of {', '.join(lacks)} in {target.folder}: "
                "evaluate it first, with weights= in place of baseline= and the same settings"
            )
        if target is not tested and target.folder == tested.folder:
            raise UserError(f"baseline={target.arm} is the checkpoint itself: name another")
        runs.append(run)
        rows += results
    names = list(dict.fromkeys(target.arm for target in baselines))
    table = significance_table(rows, names, items=RunItems(runs, rows), primary=benchmarks)
    print_table(table)
    data = {row.benchmark: row.data for row in rows}
    earlier = every_result(tested.folder / RESULTS)
    stem = f"table-{'+'.join(data)}-against-{'+'.join(names)}"
    if any(row.data != data.get(row.benchmark, row.data) for row in earlier):
        stem += f"-{digest(data)}"  # a benchmark was evaluated on other data, too
    written = write_tables(table, tested.folder, clean_name(stem))
    say("wrote " + ", ".join(map(str, written)), sys.stdout)
    say(f"next: read {shlex.quote(str(written[1]))}; baseline=OTHER writes a table beside it")


def run_jobs(jobs: Jobs) -> int:
    """Make the table of each composed job and return the worst exit code; errors are reported."""
    return report_each(make_table, TableSettings, jobs)


SCRIPT = Script("table", TableSettings, run_jobs, __doc__ or "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``cfaug table NAME ...``, which is ``table=NAME``, and return the exit code."""
    return launch(SCRIPT, choose_named("table", sys.argv[1:] if argv is None else argv))
