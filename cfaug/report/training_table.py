"""Arms of one experiment before and after training: their gains and costs.

Every metric is tested in its own direction, paired by seed. The comparisons that count were
declared before the results of a table's seeds were seen; they have their own part and correction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cfaug.core.errors import UserError
from cfaug.report.arm_results import ArmResults, MissingError, Runs, require_one_test
from cfaug.report.document import Document, Entry, Part, groups_of
from cfaug.report.item_comparisons import items_of_arms
from cfaug.report.joint_tests import compare_over_seeds_and_items
from cfaug.report.layout import cell_entry, legend
from cfaug.report.numbers import DASH
from cfaug.report.paper_tables import PaperTable
from cfaug.report.results import Result, join_seeds
from cfaug.report.seeds_and_items import seeds_and_items_parts
from cfaug.report.significance_table import significance_table
from cfaug.report.tables import Table
from cfaug.report.training_parts import (
    TrainingColumn,
    choose_family,
    declared_part,
    describe_effect,
    differences_part,
    is_asked,
)

DECLARED = ("arm", "baseline", "column")
"""Keys of a declared comparison."""


@dataclass(frozen=True, kw_only=True)
class TrainingTable(PaperTable):
    """Arms by aims and costs, with differences; other arguments as for ``PaperTable``.

    Args:
        experiment: the experiment of the arms.
        arms: {arm: printed name}, in order.
        baselines: the arms that the others are compared with, the main one first.
        columns: {key: settings of ``TrainingColumn``}, with the costs last.
        declared: {name: {``arm``, ``baseline``, ``column``: key of ``columns``}}, the comparisons
            that were declared before looking, with a correction over these alone.
        seeds_and_items: whether to compare the declared arms over seeds and items at once too, or
            all arms with the main baseline if none are declared.
        against: {baseline: arms that are compared with it}; other baselines have all arms.
        verdicts: whether to add a sentence on gains and costs below the tables for each arm and
            baseline.
    """

    experiment: str
    arms: Mapping[str, str]
    baselines: Sequence[str]
    columns: Mapping[str, Mapping[str, Any]]
    declared: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    seeds_and_items: bool = False
    against: Mapping[str, Sequence[str]] = field(default_factory=dict)
    verdicts: bool = True

    def build(self, runs: Runs) -> Document:
        """Return the table, with a part of comparisons for every baseline.

        Raises:
            MissingError: if runs or results are missing, unless ``partial``.
            UserError: if arms have different test data, or a setting is invalid.
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
        table = choose_family(
            every, [column.cell for column in columns if column.tested], self.against
        )
        shown = [column for column in columns if any(row.cell == column.cell for row in rows)]
        compared = [column for column in shown if column.differs]
        order = [arm for arm in self.arms if arm in table.arms]
        parts = [self._values(table, shown, order)]
        by_key = dict(zip(self.columns, columns, strict=True))
        declared = declared_part(every, list(self.declared.values()), by_key)
        parts += [declared] if declared.rows else []
        parts += self._over_both(runs, table, by_key, rows)
        parts += [
            differences_part(table, compared, self._compared(order, baseline), baseline)
            for baseline in baselines
        ]
        verdicts = [
            line for b in baselines for arm in self._compared(order, b)
            if self.verdicts and arm not in self.baselines
            and (line := describe_effect(table, shown, arm, b))
        ]  # fmt: skip
        document = self.document(*parts)
        return replace(document, notes=(*verdicts, *document.notes))

    def _compared(self, arms: Sequence[str], baseline: str) -> list[str]:
        """Return the arms to compare with a baseline."""
        return [arm for arm in arms if is_asked(arm, baseline, self.against)]

    def _columns(self) -> list[TrainingColumn]:
        try:
            columns = [TrainingColumn(**column) for column in self.columns.values()]
        except TypeError as error:
            raise UserError(f"table.columns of {self.name}: {error}") from error
        unknown = [arm for arm in self.baselines if arm not in self.arms]
        if unknown or not self.baselines or all(column.cost for column in columns):
            missing = "baselines or a column that is not a cost is missing"
            what = f"baselines: {unknown[0]!r} is not an arm" if unknown else missing
            raise UserError(f"table={self.name}: {what}; arms are {', '.join(self.arms)}")
        for baseline, compared in self.against.items():
            unknown = [arm for arm in (baseline, *compared) if arm not in self.arms]
            if unknown or baseline not in self.baselines:
                wrong = (
                    f"{unknown[0]!r} is not an arm"
                    if unknown
                    else f"{baseline!r} is not a baseline"
                )
                raise UserError(
                    f"table={self.name}: against: {wrong}; arms are {', '.join(self.arms)}, "
                    f"baselines {', '.join(self.baselines)}"
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
        self, arms: Mapping[str, ArmResults], columns: Sequence[TrainingColumn]
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
        columns: Mapping[str, TrainingColumn],
        results: Sequence[Result],
    ) -> tuple[Part, ...]:
        """Return the declared comparisons over seeds and items at once, if requested."""
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

    def _values(self, table: Table, columns: Sequence[TrainingColumn], arms: Sequence[str]) -> Part:
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
