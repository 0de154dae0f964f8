"""The significance table: every arm against every baseline, on every benchmark and metric."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from cfaug.errors import UserError
from cfaug.metrics.effects import Comparison, compare
from cfaug.metrics.significance import holm, smallest_exact_p, summarise
from cfaug.report.results import (
    UNTRAINED,
    Cell,
    Result,
    arms_of,
    by_seed,
    cells_of,
    require_equal_seeds,
)

ALPHA = 0.05
"""The papers' level (COCO-Counterfactuals, caption of Table 3)."""


@dataclass(frozen=True)
class Row:
    """One arm on one benchmark and metric, against one baseline; the CSV's columns in order.

    ``mean`` and ``sd`` are fractions over ``n`` seeds. Every p asks, one-sided, whether the arm is
    better: ``p_welch`` is the papers' test, ``p_paired`` pairs by seed, ``p_holm`` is ``p_paired``
    corrected over the whole table. ``p_min`` is the smallest p an exact test could give. ``nan`` is
    a test that was not made: the baseline against itself, or seeds that are not paired.
    """

    arm: str
    baseline: str
    benchmark: str
    metric: str
    n: int
    mean: float
    sd: float
    p_welch: float
    p_paired: float
    p_holm: float
    diff: float
    g: float
    d_z: float
    ci_low: float
    ci_high: float
    p_wilcoxon: float
    p_permutation: float
    p_min: float
    t_low: float
    t_high: float

    @property
    def cell(self) -> Cell:
        """The benchmark and metric."""
        return self.benchmark, self.metric

    @property
    def significant(self) -> bool:
        """Whether the papers' test calls the arm better than its baseline."""
        return self.p_welch <= ALPHA


@dataclass(frozen=True)
class Table:
    """Rows in the order baseline, arm, benchmark, metric; arms begin with the untrained."""

    rows: tuple[Row, ...]
    baselines: tuple[str, ...]

    @property
    def arms(self) -> list[str]:
        """Every arm once, in order."""
        return list(dict.fromkeys(row.arm for row in self.rows))

    @property
    def benchmarks(self) -> dict[str, list[str]]:
        """Every benchmark with its metrics, in order."""
        found: dict[str, list[str]] = {}
        for row in self.rows:
            metrics = found.setdefault(row.benchmark, [])
            if row.metric not in metrics:
                metrics.append(row.metric)
        return found

    def get(self, arm: str, cell: Cell, baseline: str | None = None) -> Row | None:
        """Return the row of an arm in a cell against a baseline (the first one by default)."""
        return self._by_key.get((arm, cell, baseline or self.baselines[0]))

    @cached_property
    def _by_key(self) -> dict[tuple[str, Cell, str], Row]:
        return {(row.arm, row.cell, row.baseline): row for row in self.rows}

    def note(self) -> str:
        """Return what must be printed under the table: n and what n can show at all."""
        seeds = sorted({row.n for row in self.rows if not math.isnan(row.p_paired)})
        if not seeds:
            return "No two arms share their seeds: nothing is paired, and p_paired is not given."
        least = "; ".join(
            f"n = {n}: smallest attainable exact p = {smallest_exact_p(n):.2g}" for n in seeds
        )
        tests = sum(not math.isnan(row.p_paired) for row in self.rows)
        return (
            f"Seeds per arm: {least} (sign flips, one-sided). All p one-sided: the arm is better "
            f"than {' or '.join(self.baselines)}. p_holm corrects p_paired for {tests} comparisons."
        )


def significance_table(
    rows: Sequence[Result],
    baseline: str | Sequence[str] = "real",
    untrained: Collection[str] = (UNTRAINED,),
) -> Table:
    """Compare every arm with every baseline on everything both were asked.

    Args:
        rows: results of all runs, larger is better.
        baseline: one arm or several; each also gets rows of its own, without p.
        untrained: arms exempt from having the baseline's seeds (``results.untrained_arms``).

    Returns:
        The table; Holm's correction runs over all its rows with a ``p_paired``.

    Raises:
        UserError: if there are no rows, a baseline has none, or sets of seeds are unequal.
    """
    baselines = (baseline,) if isinstance(baseline, str) else tuple(baseline)
    if not rows or not baselines:
        raise UserError("a table needs results and a baseline: run evaluate.py first")
    for name in baselines:
        require_equal_seeds(rows, name, untrained)
    arms = arms_of(rows, [*sorted(untrained), *baselines])
    pieces: list[tuple[str, str, Cell, dict[int, float], Comparison]] = []
    for name in baselines:
        for arm in arms:
            for cell in cells_of(rows):
                ours, theirs = by_seed(rows, arm, cell), by_seed(rows, name, cell)
                if ours and theirs:
                    pieces.append((arm, name, cell, ours, compare(ours, theirs)))
    made = [math.nan if arm == name else c.p_paired for arm, name, _, _, c in pieces]
    corrected = holm(made)
    return Table(
        tuple(_row(*piece, p_holm=float(p)) for piece, p in zip(pieces, corrected, strict=True)),
        baselines,
    )


def _row(
    arm: str,
    baseline: str,
    cell: Cell,
    values: dict[int, float],
    found: Comparison,
    *,
    p_holm: float,
) -> Row:
    summary = summarise(list(values.values()))
    shared: dict[str, Any] = {
        f.name: math.nan if arm == baseline else getattr(found, f.name)
        for f in fields(Row)
        if f.name not in {"n", "p_holm"} and hasattr(found, f.name)
    }
    return Row(arm, baseline, *cell, n=summary.n, mean=summary.mean, sd=summary.sd,
               p_holm=p_holm, **shared)  # fmt: skip


def to_csv(table: Table) -> str:
    """Return the table as CSV: fractions in full precision, empty where a test was not made."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([f.name for f in fields(Row)])
    for row in table.rows:
        values = [getattr(row, f.name) for f in fields(Row)]
        writer.writerow(["" if isinstance(v, float) and math.isnan(v) else v for v in values])
    return text.getvalue()
