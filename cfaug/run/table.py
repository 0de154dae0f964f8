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

from cfaug.core.errors import OutputSettings, UserError, say
from cfaug.core.processes import Threads, use_threads
from cfaug.core.validation import Node, RunPaths, Words
from cfaug.planning.build import build
from cfaug.report.arm_results import Runs
from cfaug.report.document import write_document
from cfaug.report.paper_tables import write_tables_page
from cfaug.report.terminal import print_document
from cfaug.report.training_table import TrainingTable, write_declaration
from cfaug.run.folder_names import runs_folder
from cfaug.run.launch import Jobs, Script, choose_named, launch, report_each


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


def run_jobs(jobs: Jobs) -> int:
    """Make the table of each composed job and return the worst exit code; errors are reported."""
    return report_each(make_table, TableSettings, jobs)


SCRIPT = Script("table", TableSettings, run_jobs, __doc__ or "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``cfaug table NAME ...``, which is ``table=NAME``, and return the exit code."""
    return launch(SCRIPT, choose_named("table", sys.argv[1:] if argv is None else argv))
