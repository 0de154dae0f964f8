"""Two checkpoints, or files, compared item by item; a table is named by what it compares."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Sequence

from cfaug.core.errors import UserError, say
from cfaug.report.layout import write_tables
from cfaug.report.records import Run
from cfaug.report.results import RESULTS, Result, every_result
from cfaug.report.significance_rows import Primary
from cfaug.report.significance_table import RunItems, significance_table
from cfaug.report.terminal import print_table
from cfaug.run.evaluate_checkpoint import EvaluationTarget
from cfaug.run.folder_names import clean_name

DIGITS = 8
"""Hexadecimal digits that tell two comparisons of one name apart."""


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


def digest(content: object) -> str:
    """Return a short hash of settings, which tells two comparisons of one name apart."""
    text = json.dumps(content, sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
