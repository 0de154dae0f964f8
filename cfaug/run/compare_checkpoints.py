"""``weights=... baseline=...``: compare checkpoints, which have no seeds, over test items."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cfaug.core.errors import UserError
from cfaug.core.messages import say
from cfaug.report.families import Primary
from cfaug.report.item_comparisons import items_of_runs
from cfaug.report.layout import write_tables
from cfaug.report.records import Run
from cfaug.report.results import Result
from cfaug.report.significance_table import significance_table
from cfaug.run.evaluate_checkpoint import EvaluationTarget


def compare_checkpoints(
    one: EvaluationTarget, baselines: Sequence[EvaluationTarget], benchmarks: Primary
) -> None:
    """Write table.csv, .md and .tex beside a checkpoint's results, and print the table.

    Args:
        one: the evaluated checkpoint.
        baselines: checkpoints to compare with, already evaluated on the same world.
        benchmarks: {benchmark in the table: its primary metrics, for which comparisons are
            corrected}.

    Raises:
        UserError: if a baseline has no result of one of the benchmarks, or is the checkpoint
            itself.
    """
    from cfaug.report.terminal import print_table

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
    table = significance_table(rows, names, items=items_of_runs(runs, rows), primary=benchmarks)
    print_table(table)
    written = write_tables(table, one.folder)
    say("wrote " + ", ".join(map(str, written)), sys.stdout)
