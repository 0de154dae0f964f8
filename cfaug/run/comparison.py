"""What ``cfaug.compare`` returns: the differences of an experiment's arms, with their tests."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cfaug.core.errors import UserError
from cfaug.core.processes import explain_missing
from cfaug.report.layout import comparisons_csv, print_table
from cfaug.report.results import Result
from cfaug.report.significance_rows import SignificanceRow, Table

if TYPE_CHECKING:
    from pandas import DataFrame


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
        return tuple(self._difference(row) for row in self._table.comparisons)

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
        return pandas.read_csv(io.StringIO(comparisons_csv(self._table)))

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.differences)

    def __len__(self) -> int:
        return len(self.differences)

    def __str__(self) -> str:
        from rich.console import Console

        printed = io.StringIO()
        print_table(self._table, Console(file=printed, width=WIDTH))
        return printed.getvalue()

    def _difference(self, row: SignificanceRow) -> Difference:
        tested = self._table.get_over_items(row.arm, row.cell, row.baseline)
        if tested is not None:
            interval, p, p_holm = tested.interval, tested.test.p_two_sided, tested.p_holm_two_sided
            over: Literal["seeds", "items"] | None = "items"
            test = tested.test.test
        else:
            interval, p, p_holm = (
                (row.t_low, row.t_high),
                row.p_paired_two_sided,
                row.p_holm_two_sided,
            )
            over = None if math.isnan(p) else "seeds"
            test = "Student's t, paired by seed" if over else row.reason
        return Difference(
            row.arm, row.baseline, row.benchmark, row.metric, row.diff, interval, p, p_holm, over,
            test,
        )  # fmt: skip
