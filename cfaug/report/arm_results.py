"""Read the results of arms under ``paths.runs`` by ``experiment/arm``, and name missing ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from glob import escape
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, say
from cfaug.report.arms import same_identity
from cfaug.report.records import Run, read_run
from cfaug.report.results import RECORD, RESULTS, Cell, Result, join_seeds, read_results

COUNTS = ("train", "counterfactual")
"""The counts of a run that tables print."""
NAMED = 8
"""Most missing runs and results that one message names."""


@dataclass(frozen=True)
class ArmResults:
    """All seeds of one arm: their numbers and their ``run.json``.

    Attributes:
        name: name of the arm, ``experiment/arm``.
        records: content of ``run.json`` by seed; empty for a checkpoint that was only evaluated.
        left_out: one sentence for each run that differs from the others of the arm.
    """

    name: str
    rows: Sequence[Result] = ()
    records: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    left_out: Sequence[str] = ()

    def values(self, cell: Cell) -> dict[int, float]:
        """Return {seed: value} of a benchmark and metric; empty if it was not run."""
        return {row.seed: row.value for row in self._rows.get(cell, ())}

    @property
    def weights(self) -> dict[int, str]:
        """Return {seed: hash of the weights}, an empty text where a row has none."""
        return {row.seed: row.weights for row in self.rows}

    def queries(self, cell: Cell) -> int | None:
        """Return the number of images or captions that a value is the mean of."""
        return next((row.n for row in self._rows.get(cell, ())), None)

    @cached_property
    def _rows(self) -> dict[Cell, list[Result]]:
        by_cell: dict[Cell, list[Result]] = {}
        for row in self.rows:
            by_cell.setdefault(row.cell, []).append(row)
        return by_cell

    @property
    def seeds(self) -> set[int]:
        """Every seed with a result or a record."""
        return {row.seed for row in self.rows} | set(self.records)

    @property
    def trained(self) -> bool:
        """Whether any run took a step; a checkpoint that was only evaluated took none."""
        return any(int(record.get("steps") or 0) > 0 for record in self.records.values())

    def counts(self, name: str) -> tuple[int, int]:
        """Return the minimum and maximum of ``counts[name]`` over the runs, 0 if none took a step.

        Seeds differ with ``data.split=random``, where the split is random.
        """
        if not self.trained:
            return 0, 0
        numbers = [int(record["counts"][name]) for record in self.records.values()]
        return min(numbers), max(numbers)

    def share(self) -> float:
        """Return the share of training examples that are counterfactual, over all runs."""
        if not self.trained:
            return 0.0
        counts = [record["counts"] for record in self.records.values()]
        return sum(count["counterfactual"] for count in counts) / sum(
            count["train"] for count in counts
        )


class Runs:
    """A reader of arms under a folder of runs, which reads each arm only once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._arms: dict[str, ArmResults] = {}

    @property
    def left_out(self) -> list[str]:
        """A sentence for each run read so far that differs from the others of its arm."""
        return [line for arm in self._arms.values() for line in arm.left_out]

    def arm(self, name: str) -> ArmResults:
        """Return an arm by ``experiment/arm``; without rows if nothing finished there.

        Runs that are not finished are left out and named on stderr, and so are those that differ
        from the others of the arm, and those with other settings (``medium,trainer.max_epochs=1``)
        where the arm itself has none.
        """
        if name in self._arms:
            return self._arms[name]
        rows: list[Result] = []
        trained: list[Run] = []
        folders = self.folders(name)
        if not folders:
            changed = {folder.parent for folder in self.root.glob(f"{escape(name)},*/seed=*")}
            for folder in sorted(changed):
                say(
                    f"left out, of other settings: {folder}; started with arm={Path(name).name} as "
                    f"well, such runs belong to {name}"
                )
        for folder in folders:
            if not (folder / RECORD).exists():  # a checkpoint that was only evaluated
                file = folder / RESULTS
                results = read_results(file) if file.exists() else []
                others = {row.seed for row in results} - {int(folder.name.removeprefix("seed="))}
                if others:
                    raise UserError(
                        f"{folder} holds seed {join_seeds(others)}, not its own: it was copied or "
                        "renamed; remove it, and evaluate that seed"
                    )
                rows += results
                continue
            run = read_run(folder)
            if not run.done:
                say(f"left out, not finished: {folder}")
                continue
            counts = run.record.get("counts") or {}
            if None in [run.record.get("steps"), *(counts.get(name) for name in COUNTS)]:
                raise UserError(
                    f"{folder / RECORD} should have seed, steps and "
                    f"counts.{', counts.'.join(COUNTS)}: it is of another version, or damaged; "
                    "train the run again with overwrite=true"
                )
            trained.append(run)
        kept, left_out = same_identity(trained)
        for line in left_out:
            say(line)
        rows += [row for run in kept for row in run.results()]
        arm = ArmResults(name, rows, {run.seed: run.record for run in kept}, left_out)
        self._arms[name] = arm
        return arm

    def folders(self, name: str) -> list[Path]:
        """Return the folders of an arm's seeds; other folders do not count."""
        folders = (self.root / name).glob("seed=*")
        return sorted(folder for folder in folders if re.fullmatch(r"seed=-?\d+", folder.name))


def require_one_test(
    table: str, arms: Iterable[tuple[str, ArmResults]], benchmarks: Collection[str]
) -> None:
    """Refuse arms that were evaluated on different test data under the same benchmark name."""
    tests: dict[tuple[str, int], tuple[str, str]] = {}
    for name, arm in arms:
        for row in arm.rows:
            if row.benchmark not in benchmarks or not row.data:
                continue
            run, data = tests.setdefault((row.benchmark, row.seed), (name, row.data))
            if data != row.data:
                raise UserError(
                    f"table={table}: {run} and {name}, seed {row.seed}, were evaluated with "
                    f"{row.benchmark} on other test data, such as that of another world, and "
                    "cannot share a table: train and evaluate one of them again on the data "
                    "of the other, in another paths.runs"
                )


class MissingError(UserError):
    """Numbers of a table are missing; the message says which, and the commands that make them.

    Args:
        partial: whether the table is partial already, so that it cannot print dashes for them.
    """

    def __init__(
        self, table: str, lacking: Iterable[str], commands: Sequence[str], *, partial: bool = False
    ) -> None:
        distinct = list(dict.fromkeys(lacking))
        more = f"\n  and {len(distinct) - NAMED} more" if len(distinct) > NAMED else ""
        super().__init__(
            f"table={table} lacks:\n  " + "\n  ".join(distinct[:NAMED]) + more
            + "\nmake them with\n  " + "\n  ".join(commands)
            + "\nor print dashes for them with table.partial=true" * (not partial)
        )  # fmt: skip


# The runs and results from which an experiment's table is made.


@dataclass(frozen=True)
class Collected:
    """The runs of one experiment for its table.

    Attributes:
        runs: finished runs; those of an arm have the same identity.
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
    """
    finished: list[tuple[Run, list[Result]]] = []
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
            finished.append((run, rows))
    kept, others = same_identity([run for run, _ in finished])
    chosen = {run.folder for run in kept}
    rows = [row for run, some in finished if run.folder in chosen for row in some]
    return Collected(kept, rows, [*left_out, *others])
