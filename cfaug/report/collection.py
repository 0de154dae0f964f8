"""The runs and results from which an experiment's table is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.report.identities import same_identity
from cfaug.report.records import Run, read_run
from cfaug.report.results import Result


@dataclass(frozen=True)
class Collected:
    """The runs of one experiment for its table.

    Attributes:
        runs: finished runs; those of an arm have the same identity.
        rows: results of these runs.
        left_out: a sentence for each run that was left out, with the reason.
    """

    runs: Sequence[Run]
    rows: Sequence[Result]
    left_out: Sequence[str]

    @property
    def records(self) -> list[Mapping[str, Any]]:
        """The content of each ``run.json``."""
        return [run.record for run in self.runs]


def collect(folders: Iterable[Path]) -> Collected:
    """Read the runs and the results for a table.

    Runs that are not finished, cannot be read, or differ from the other runs of their arm are left
    out. Runs without results are skipped.

    Args:
        folders: folders of runs, each with a ``run.json``.

    Raises:
        UserError: naming two folders with the same arm and seed: two experiments in one table would
            be averaged.
    """
    found: list[tuple[Run, list[Result]]] = []
    left_out: list[str] = []
    claimed: dict[tuple[str, int], Path] = {}
    for folder in folders:
        try:
            run = read_run(folder)
            rows = run.results()
        except UserError as error:
            left_out.append(f"left out, not readable: {error}")
            continue
        if not run.done:
            left_out.append(f"left out, not finished: {folder} (state: {run.record['state']})")
        elif rows:
            other = claimed.setdefault((run.arm, run.seed), folder)
            if other is not folder:
                raise UserError(
                    f"{other} and {folder} both hold arm {run.arm!r}, seed {run.seed}: compare "
                    "one experiment at a time"
                )
            found.append((run, rows))
    kept, others = same_identity([run for run, _ in found])
    chosen = {run.folder for run in kept}
    rows = [row for run, some in found if run.folder in chosen for row in some]
    return Collected(kept, rows, [*left_out, *others])
