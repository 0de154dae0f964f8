"""What lowers the skew, and what it costs: arms of one experiment before and after fine-tuning.

The paper names fine-tuning on balanced counterfactual sets as future work (Howard et al., 2023);
its released code holds no training, so arms, splits and tests are ours. Skews are of subjects whose
sets no arm was trained on, and every metric is tested in its own direction: a skew is better where
it is lower.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cfaug.errors import UserError
from cfaug.metrics.significance import holm
from cfaug.papers.tables import PaperTable
from cfaug.report.arm_results import ArmResults, MissingError, Runs, require_one_test
from cfaug.report.document import Document, Entry, Part, groups_of
from cfaug.report.item_comparisons import items_of_arms
from cfaug.report.joint_tests import compare_over_seeds_and_items
from cfaug.report.layout import cell_entry, interval_text, legend
from cfaug.report.numbers import DASH, p_text
from cfaug.report.result_row import Cell, name_part
from cfaug.report.results import Result, join_seeds
from cfaug.report.seeds_and_items import seeds_and_items_parts
from cfaug.report.significance_table import significance_table
from cfaug.report.tables import ALPHA, Row, Table

KEPT, LOST = "†", "‡"

DECLARED = ("arm", "baseline", "column")
"""What names a declared comparison."""


@dataclass(frozen=True)
class DebiasColumn:
    """A value column.

    Attributes:
        name: as printed.
        benchmark: whose result it is.
        metric: of the benchmark.
        group: printed above, once over its neighbours of the same group.
        by: the part of the benchmark, by name.
        cost: whether it is what a lower skew may cost, not a skew itself.
        tested: whether its differences are tested; not what another column says again.
    """

    name: str
    benchmark: str
    metric: str
    group: str = ""
    by: Mapping[str, str] = field(default_factory=dict)
    cost: bool = True
    tested: bool = True

    @property
    def cell(self) -> Cell:
        """What results call it."""
        by = {name: str(value) for name, value in self.by.items()}
        return name_part(self.benchmark, by), self.metric


@dataclass(frozen=True, kw_only=True)
class DebiasTable(PaperTable):
    """Arms by skew and by what it costs; then what sets them apart from each of several baselines.

    Args: those of :class:`cfaug.papers.tables.PaperTable`, and
        experiment: whose arms.
        arms: {arm: as printed}, in order.
        baselines: arms that the others are compared with, the main one first.
        columns: {key: settings of ``DebiasColumn``}, the skews first.
        declared: {key: ``arm``, ``baseline`` and ``column``, its key} of comparisons that were
            declared before looking, with a correction over these alone.
        seeds_and_items: compare the declared arms over seeds and items at once as well, or all
            with the main baseline where none are declared.
    """

    experiment: str
    arms: Mapping[str, str]
    baselines: Sequence[str]
    columns: Mapping[str, Mapping[str, Any]]
    declared: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    seeds_and_items: bool = False

    def build(self, runs: Runs) -> Document:
        """Return the table, with a part of comparisons for every baseline.

        Raises:
            MissingError: if runs or results are not there, unless ``partial``.
            UserError: if arms were asked about other data, or a setting is invalid.
        """
        columns = self._columns()
        arms = {arm: runs.arm(f"{self.experiment}/{arm}") for arm in self.arms}
        missing = list(self._missing(arms, columns))
        rows = [r for arm in arms.values() for r in arm.rows if r.cell in {c.cell for c in columns}]
        baselines = [arm for arm in self.baselines if any(row.arm == arm for row in rows)]
        if (missing and not self.partial) or not baselines:
            raise MissingError(self.name, missing, self.commands)
        asked = {column.benchmark for column in columns}
        require_one_test(self.name, arms.items(), asked)
        every = significance_table(
            rows, baselines, [arm for arm, found in arms.items() if not found.trained],
            labels=dict(self.arms),
        )  # fmt: skip
        table = choose_family(every, [column.cell for column in columns if column.tested])
        shown = [column for column in columns if any(row.cell == column.cell for row in rows)]
        order = [arm for arm in self.arms if arm in table.arms]
        parts = [self._values(table, shown, order)]
        by_key = dict(zip(self.columns, columns, strict=True))
        declared = _declared(every, list(self.declared.values()), by_key)
        parts += [declared] if declared.rows else []
        parts += self._over_both(runs, table, by_key, rows)
        parts += [_differences(table, shown, order, baseline) for baseline in baselines]
        verdicts = [
            line for b in baselines for arm in order
            if arm not in self.baselines and (line := describe_effect(table, shown, arm, b))
        ]  # fmt: skip
        document = self.document(*parts)
        return replace(document, notes=(*verdicts, *document.notes))

    def _columns(self) -> list[DebiasColumn]:
        try:
            columns = [DebiasColumn(**column) for column in self.columns.values()]
        except TypeError as error:
            raise UserError(f"table.columns of {self.name}: {error}") from error
        unknown = [arm for arm in self.baselines if arm not in self.arms]
        if unknown or not self.baselines or all(column.cost for column in columns):
            what = f"baselines: {unknown[0]!r} is no arm" if unknown else "baselines or a skew"
            raise UserError(
                f"table={self.name}: {what}{'' if unknown else ' is missing'}; arms are "
                f"{', '.join(self.arms)}"
            )
        for one in self.declared.values():
            self._check_declared(one)
        return columns

    def _check_declared(self, one: Mapping[str, str]) -> None:
        choices = dict(zip(DECLARED, (self.arms, self.baselines, self.columns), strict=True))
        if set(one) != set(choices):
            raise UserError(
                f"table={self.name}: declared {dict(one)} is invalid: it has {', '.join(DECLARED)}"
            )
        for name, known in choices.items():
            if one[name] not in known:
                raise UserError(
                    f"table={self.name}: declared {name} {one[name]!r} is invalid: choose from "
                    f"{', '.join(known)}"
                )
        if one["arm"] == one["baseline"]:
            raise UserError(
                f"table={self.name}: declared {one['arm']!r} is compared with itself: name two arms"
            )

    def _missing(
        self, arms: Mapping[str, ArmResults], columns: Sequence[DebiasColumn]
    ) -> Iterator[str]:
        seeds = set().union(*(arm.seeds for arm in arms.values()))
        for name, arm in arms.items():
            if not arm.seeds:
                yield f"a finished run of {self.experiment}/{name}"
                continue
            if seeds - arm.seeds:
                yield f"{self.experiment}/{name} with seed {join_seeds(seeds - arm.seeds)}"
            for column in columns:
                lacks = arm.seeds - set(arm.values(column.cell))
                if lacks:
                    benchmark, metric = column.cell
                    told = f"{benchmark} {metric} of {self.experiment}/{name}"
                    yield f"{told}, seed {join_seeds(lacks)}"

    def _over_both(
        self,
        runs: Runs,
        table: Table,
        columns: Mapping[str, DebiasColumn],
        results: Sequence[Result],
    ) -> tuple[Part, ...]:
        """Return the declared comparisons over seeds and items at once, if asked for."""
        if not self.seeds_and_items:
            return ()
        named = [
            table.get(one["arm"], columns[one["column"]].cell, one["baseline"])
            for one in self.declared.values()
        ]
        tested = {column.cell for column in columns.values() if column.tested}
        usual = [r for r in table.comparisons if r.baseline == table.baselines[0]]
        rows = [row for row in named if row is not None] or [r for r in usual if r.cell in tested]
        items = items_of_arms(runs, self.experiment, self.arms)
        found, refused = compare_over_seeds_and_items(rows, results, items, self.arms)
        return seeds_and_items_parts(found, self.arms, refused)

    def _values(self, table: Table, columns: Sequence[DebiasColumn], arms: Sequence[str]) -> Part:
        rows = [
            (
                (table.label(arm),),
                tuple(cell_entry(table, arm, column.cell) or Entry(DASH) for column in columns),
            )
            for arm in arms
        ]
        seeds = sorted({row.n for row in table.rows})
        return Part(
            title=f"Ours: {self.experiment}, {seeds[-1]} seed{'s' * (seeds[-1] > 1)}",
            labels=("Arm",),
            groups=groups_of(columns),
            columns=tuple(table.measure(c.cell).header(c.name) for c in columns),
            rows=tuple(rows),
            notes=(*legend(table), *table.all_notes()),
        )


def _declared(
    every: Table, declared: Sequence[Mapping[str, str]], columns: Mapping[str, DebiasColumn]
) -> Part:
    """Return the declared comparisons, Holm's correction over them alone."""
    compared = [
        (one, row)
        for one in declared
        if (row := every.get(one["arm"], columns[one["column"]].cell, one["baseline"])) is not None
    ]
    p = holm([row.p_paired for _, row in compared]).tolist()
    rows = []
    for (one, row), corrected in zip(compared, p, strict=True):
        column = columns[one["column"]]
        asked = f"{column.group} {column.name}".strip() if column.cost else column.name
        numbers = {"value": row.diff, "n": float(row.n)}
        cells = (
            Entry(row.measure.difference(row.diff), small=interval_text(row), numbers=numbers),
            Entry(row.better),
            Entry(p_text(row.p_paired)),
            Entry(p_text(corrected), bold=corrected <= ALPHA, numbers=_known(p_holm=corrected)),
        )
        labels = (f"{every.label(one['arm'])} against {every.label(one['baseline'])}", asked)
        rows.append((labels, cells))
    return Part(
        title="Declared before looking",
        labels=("Comparison", "Of"),
        groups=(),
        columns=("difference", "better is", "p", "Holm"),
        rows=tuple(rows),
        notes=(
            "Difference with its 95 % bootstrap interval over seeds; p one-sided for being better, "
            f"paired by seed; Holm over these {len(rows)} alone.",
        ),
    )


def _known(**numbers: float) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if not math.isnan(value)}


def _differences(
    table: Table, columns: Sequence[DebiasColumn], arms: Sequence[str], baseline: str
) -> Part:
    """Return what every arm differs by from one baseline, with interval and corrected p."""
    rows = [
        ((table.label(arm),), tuple(_difference(table.get(arm, c.cell, baseline)) for c in columns))
        for arm in arms
        if arm != baseline
    ]
    return Part(
        title=f"Less {table.label(baseline)}",
        labels=("Arm",),
        groups=groups_of(columns),
        columns=tuple(table.measure(column.cell).header(column.name) for column in columns),
        rows=tuple(rows),
        notes=(
            "Difference, its 95 % bootstrap interval over seeds and p, one-sided for being better, "
            f"paired by seed, after Holm over all comparisons of this table. {KEPT}: better; "
            f"{LOST}: worse (two-sided).",
        ),
    )


def _difference(row: Row | None) -> Entry:
    if row is None:
        return Entry(DASH)
    return Entry(
        row.measure.difference(row.diff),
        signs=KEPT * row.kept + LOST * row.lost,
        small=f"{interval_text(row)}, p {p_text(row.p_holm)}",
        numbers=_known(value=row.diff, n=float(row.n), p_paired=row.p_paired, p_holm=row.p_holm),
    )


def choose_family(table: Table, tested: Collection[Cell]) -> Table:
    """Return a table of fewer tests, Holm's correction made anew over those that are left.

    Every arm is compared with the main baseline, and those that are no baseline with the others as
    well. Of the rest only the difference is left.

    Args:
        table: with every comparison.
        tested: the benchmarks and metrics whose differences are tested.
    """
    main = table.baselines[0]
    kept = [
        row.cell in tested and (row.baseline == main or row.arm not in table.baselines)
        for row in table.rows
    ]
    pairs = zip(table.rows, kept, strict=True)
    p = [(row.p_paired, row.p_paired_two_sided) if keep else (math.nan,) * 2 for row, keep in pairs]
    one, two = (holm(list(column)).tolist() for column in zip(*p, strict=True))
    rows = [
        replace(
            row, p_paired=own[0], p_paired_two_sided=own[1], p_holm=p_one, p_holm_two_sided=p_two
        )
        for row, own, p_one, p_two in zip(table.rows, p, one, two, strict=True)
    ]
    return replace(table, rows=tuple(rows))


def describe_effect(table: Table, columns: Sequence[DebiasColumn], arm: str, baseline: str) -> str:
    """Say what an arm does to the skew against a baseline, and what that costs.

    A cost is named wherever its interval over seeds lies beyond 0, whatever is left of it after a
    correction: a correction that finds less would hide costs.

    Args:
        table: with comparisons of the arm against the baseline.
        columns: of skews and of costs.
        arm: whose effect.
        baseline: what it is compared with.

    Returns:
        A sentence; empty where the two were not compared.
    """
    rows = [(column, table.get(arm, column.cell, baseline)) for column in columns if column.tested]
    found = [(column, row) for column, row in rows if row is not None]
    skews = [_skew_effect(column, row) for column, row in found if not column.cost]
    if not skews:
        return ""
    costs = [_amount(c, row) for c, row in found if c.cost and _beyond(row) < 0]
    gains = [_amount(c, row) for c, row in found if c.cost and _beyond(row) > 0]
    told = [*skews, f"it costs {', '.join(costs)}" if costs else "no cost is seen"]
    told += [f"it brings {', '.join(gains)}"] if gains else []
    return f"{table.label(arm)} against {table.label(baseline)}: {'; '.join(told)}."


def _beyond(row: Row) -> int:
    """Return 1 where the whole interval is better than 0, -1 where it is worse, else 0."""
    ends = [row.measure.gain(end) for end in (row.ci_low, row.ci_high)]
    return 1 if min(ends) > 0 else -1 if max(ends) < 0 else 0


def _amount(column: DebiasColumn, row: Row) -> str:
    name = f"{column.group} {column.name}".strip() if column.cost else column.name
    return f"{name} {row.measure.amount(row.diff)} (95 % {interval_text(row)})"


def _skew_effect(column: DebiasColumn, row: Row) -> str:
    if math.isnan(row.p_holm):
        return f"{_amount(column, row)}: no test ({row.reason})"
    if row.lost:
        return f"{_amount(column, row)}: worse (two-sided p {p_text(row.p_holm_two_sided)})"
    by_interval = {1: "better by the interval alone", -1: "worse by the interval alone"}
    verdict = "better" if row.kept else by_interval.get(_beyond(row), "not shown by these seeds")
    return f"{_amount(column, row)}: {verdict} (p {p_text(row.p_holm)})"
