"""The significance table: every arm against every baseline, on every benchmark and metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from cfaug.errors import UserError
from cfaug.metrics.effects import Comparison, compare
from cfaug.metrics.significance import holm, smallest_exact_p, summarise
from cfaug.report.comparable import (
    OTHER_DATA,
    Answers,
    answers,
    different_tests,
    equal_weights,
    measures,
    obstacle,
    one_test,
    unknown_tests,
    values,
)
from cfaug.report.labels import full_names
from cfaug.report.numbers import FRACTION, PERCENT, Measure
from cfaug.report.results import (
    Cell,
    Result,
    arms_of,
    cells_of,
    require_equal_seeds,
)
from cfaug.types import Better

ALPHA = 0.05
"""The papers' level (COCO-Counterfactuals, caption of Table 3)."""

ONE_SEED = "one seed"
OTHER_SEEDS = "other seeds"
NO_SPREAD = "the same difference at every seed"
SPELLED_OUT = 5
"""Comparisons without a test that are named one by one."""


@dataclass(frozen=True)
class Row:
    """One arm on one benchmark and metric, against one baseline; the CSV's columns in order.

    ``mean`` and ``sd`` are over ``n`` seeds, in ``unit``. ``diff`` is the arm minus the baseline
    whatever the direction: where ``better`` is ``lower``, a gain is negative. Every p asks,
    one-sided, whether the arm is better: ``p_welch`` is the papers' test, ``p_paired`` pairs by
    seed, ``p_holm`` is ``p_paired`` corrected over the whole table. ``*_two_sided`` asks whether
    the two differ, which is what says that an arm is worse. ``p_min`` is the smallest p an exact
    test could give. ``nan`` is a test that was not made: the baseline against itself, or for the
    ``reason`` given.
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
    p_welch_two_sided: float
    p_paired_two_sided: float
    p_holm_two_sided: float
    reason: str
    unit: str = FRACTION
    better: Better = "higher"

    @property
    def cell(self) -> Cell:
        """The benchmark and metric."""
        return self.benchmark, self.metric

    @property
    def measure(self) -> Measure:
        """How its values are printed, and which way they are better."""
        return Measure(self.unit, self.better)

    @property
    def falls_behind(self) -> bool:
        """Whether the arm's mean is worse than the baseline's."""
        return self.measure.gain(self.diff) < 0

    @property
    def significant(self) -> bool:
        """Whether the papers' test calls the arm better than its baseline."""
        return self.p_welch <= ALPHA

    @property
    def worse(self) -> bool:
        """Whether the papers' test, two-sided, finds a loss."""
        return self.falls_behind and self.p_welch_two_sided <= ALPHA

    @property
    def kept(self) -> bool:
        """Whether the arm is better by the paired test after Holm's correction."""
        return self.p_holm <= ALPHA

    @property
    def lost(self) -> bool:
        """Whether the arm is worse by the two-sided paired test after Holm's correction."""
        return self.falls_behind and self.p_holm_two_sided <= ALPHA


@dataclass(frozen=True)
class Table:
    """Rows in the order baseline, arm, benchmark, metric; arms begin with the untrained.

    Attributes:
        rows: one per arm, baseline, benchmark and metric.
        baselines: the arms that others are compared with, the main one first.
        labels: {arm: as printed}; an arm that is not there is printed by its name.
        one_test: the cells that all arms were asked on the same test data.
        notes: sentences on what these seeds cannot test, and on what the arms were given.
        cautions: sentences on what weakens the results: arms that cannot be compared, leaks.
    """

    rows: tuple[Row, ...]
    baselines: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    one_test: frozenset[Cell] = frozenset()
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

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

    def label(self, arm: str) -> str:
        """Return what the table calls an arm."""
        return self.labels.get(arm, arm)

    def measure(self, cell: Cell) -> Measure:
        """Return how the values of a benchmark and metric are printed."""
        return next(row.measure for row in self.rows if row.cell == cell)

    @property
    def plain(self) -> bool:
        """Whether every metric is a fraction in which higher is better."""
        return all(row.measure == PERCENT for row in self.rows)

    def get(self, arm: str, cell: Cell, baseline: str | None = None) -> Row | None:
        """Return the row of an arm in a cell against a baseline (the first one by default)."""
        return self._by_key.get((arm, cell, baseline or self.baselines[0]))

    @cached_property
    def _by_key(self) -> dict[tuple[str, Cell, str], Row]:
        return {(row.arm, row.cell, row.baseline): row for row in self.rows}

    @property
    def comparisons(self) -> list[Row]:
        """The rows of an arm against another."""
        return [row for row in self.rows if row.arm != row.baseline]

    def note(self) -> str:
        """Return what must be printed under the table: n, what n can show, and Holm's family."""
        paired = [row for row in self.comparisons if not math.isnan(row.p_paired)]
        if not paired:
            return "No comparison has a test paired by seed, so there is no p_paired and no p_holm."
        least = "; ".join(
            f"n = {n}: smallest attainable exact p = {smallest_exact_p(n):.2g}"
            for n in sorted({row.n for row in paired})
        )
        first = " or ".join(self.label(name) for name in self.baselines)
        return (
            f"Seeds per arm: {least} (sign flips, one-sided). All p one-sided unless named "
            f"two-sided: the arm is better than {first}. p_holm corrects p_paired for "
            f"{len(paired)} comparison{'s' * (len(paired) > 1)}: {_span(paired, self.label)}."
        )

    def all_notes(self) -> list[str]:
        """Return every line that belongs under the table but the meaning of its marks."""
        names = full_names(self.labels, self.arms)
        cautions = [f"Caution: {line}" for line in self.cautions]
        return [self.note(), *self.notes, *cautions, *([names] if names else [])]


def _span(rows: Sequence[Row], label: Callable[[str], str]) -> str:
    arms = len({row.arm for row in rows})
    baselines = " and ".join(label(name) for name in dict.fromkeys(row.baseline for row in rows))
    cells = len({row.cell for row in rows})
    benchmarks = list(dict.fromkeys(row.benchmark for row in rows))
    return (
        f"{arms} arm{'s' * (arms != 1)} against {baselines} on {cells} "
        f"metric{'s' * (cells != 1)} of {', '.join(benchmarks)}"
    )


def significance_table(
    rows: Sequence[Result],
    baseline: str | Sequence[str] = "real",
    untrained: Collection[str] = (),
    *,
    labels: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    cautions: Sequence[str] = (),
) -> Table:
    """Compare every arm with every baseline on everything both were asked.

    Arms that were asked different test data, or that have the same weights, are shown and not
    compared (``cfaug.report.comparable``).

    Args:
        rows: results of all runs; each metric is tested in its own direction.
        baseline: one arm or several; each also gets rows of its own, without p.
        untrained: arms exempt from having the baseline's seeds, and printed first.
        labels: {arm: as printed}.
        notes: sentences to print under the table, after its own.
        cautions: sentences on what weakens the results, printed after the table's own.

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
    found, cells, known = answers(rows), cells_of(rows), measures(rows)
    arms = arms_of(rows, [*sorted(untrained), *baselines])
    pieces = [
        _compare(arm, name, cell, (found[arm, cell], found[name, cell]), known[cell])
        for name in baselines
        for arm in arms
        for cell in cells
        if (arm, cell) in found and (name, cell) in found
    ]
    corrected = holm([piece["p_paired"] for piece in pieces])
    two_sided = holm([piece["p_paired_two_sided"] for piece in pieces])
    made = tuple(
        Row(**piece, p_holm=float(p), p_holm_two_sided=float(q))
        for piece, p, q in zip(pieces, corrected, two_sided, strict=True)
    )
    return Table(
        made,
        baselines,
        labels=labels or {},
        one_test=frozenset(
            cell for cell in cells if one_test([found[a, cell] for a in arms if (a, cell) in found])
        ),
        notes=(*unknown_tests(rows, labels), *_untested(made, labels or {}), *notes),
        cautions=(
            *different_tests(rows, labels),
            *equal_weights(rows, baselines, labels),
            *cautions,
        ),
    )


def _compare(
    arm: str, baseline: str, cell: Cell, both: tuple[Answers, Answers], measure: Measure
) -> dict[str, Any]:
    """Return the fields of a row but those that Holm's correction gives."""
    ours, theirs = both
    summary = summarise(list(values(ours).values()))
    shared: dict[str, Any] = {
        f.name: math.nan for f in fields(Comparison) if f.name in Row.__dataclass_fields__
    }
    reason = obstacle(ours, theirs) if arm != baseline else ""
    if arm != baseline:
        found = compare(values(ours), values(theirs), better=measure.better)
        shared |= {name: getattr(found, name) for name in shared if not reason or name == "diff"}
        reason = reason or _without_test(ours, theirs, found)
    if reason == OTHER_DATA:
        shared["diff"] = math.nan
    return {
        **shared, "arm": arm, "baseline": baseline, "benchmark": cell[0], "metric": cell[1],
        "n": summary.n, "mean": summary.mean, "sd": summary.sd, "reason": reason,
        "unit": measure.unit, "better": measure.better,
    }  # fmt: skip


def _without_test(ours: Answers, theirs: Answers, found: Comparison) -> str:
    """Say why seeds cannot test a difference, or give no interval for it; empty if they can."""
    if min(len(ours), len(theirs)) < 2:
        return ONE_SEED
    if ours.keys() != theirs.keys():
        return OTHER_SEEDS
    return NO_SPREAD if math.isnan(found.t_low) else ""


def no_spread_says(difference: float, measure: Measure) -> str:
    """Say what it means that every seed gives the same difference.

    >>> no_spread_says(0.1, Measure())
    'every seed gives the same difference of +10.0 points: these seeds cannot test it'
    """
    same = round(1000 * difference) == 0 if measure.is_fraction else difference == 0
    if same:
        return "every seed gives the same number in both arms"
    return (
        f"every seed gives the same difference of {measure.amount(difference)}: these seeds "
        "cannot test it"
    )


def _untested(rows: Sequence[Row], labels: Mapping[str, str]) -> list[str]:
    """Name the comparisons that these seeds cannot test."""
    said = []
    for reason, means in (
        (ONE_SEED, "one seed, so no test over seeds"),
        (OTHER_SEEDS, "other seeds, so nothing is paired"),
    ):
        pairs = dict.fromkeys((r.arm, r.baseline) for r in rows if r.reason == reason)
        told = [f"{labels.get(a, a)} against {labels.get(b, b)}" for a, b in pairs]
        said += [f"{', '.join(told)}: {means}."] if told else []
    flat = [row for row in rows if row.reason == NO_SPREAD]
    for row in flat[:SPELLED_OUT]:
        names = f"{labels.get(row.arm, row.arm)} against {labels.get(row.baseline, row.baseline)}"
        said.append(
            f"{names} on {row.benchmark} {row.metric}: {no_spread_says(row.diff, row.measure)}."
        )
    if len(flat) > SPELLED_OUT:
        more = len(flat) - SPELLED_OUT
        said.append(f"The same holds of {more} more comparison{'s' * (more > 1)}.")
    return said
