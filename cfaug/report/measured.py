"""A part of a table of arms, from our runs: every cell is tested against its row's baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cfaug.core.errors import UserError
from cfaug.report.arm_results import ArmResults, MissingError, require_one_test
from cfaug.report.comparable import measures, same_weights_say
from cfaug.report.document import Curve, Part, groups_of, rules_of
from cfaug.report.measured_cell import (
    MeasuredCell,
    Values,
    compare_with_baseline,
    label_text,
    print_cell,
)
from cfaug.report.numbers import DASH, PERCENT, Measure
from cfaug.report.results import Cell, join_seeds
from cfaug.stats.significance import holm


@dataclass(frozen=True)
class MeasuredColumn:
    """A value column of a part.

    Attributes:
        header: printed header.
        group: header printed above, once over neighbours of the same group; empty for none.
        benchmark: name of the benchmark; ``None`` for the mean.
        metric: name of the metric; ``None`` for the mean over the other columns.
    """

    header: str
    group: str
    benchmark: str | None
    metric: str | None

    @property
    def cell(self) -> Cell:
        """The benchmark and metric it shows; undefined for a mean."""
        assert self.benchmark is not None
        assert self.metric is not None
        return self.benchmark, self.metric


@dataclass(frozen=True)
class TableSettings:
    """Settings that the parts of one table share.

    Attributes:
        name: name of the table, for messages.
        labels: header of each column that names a row, by its key: ``pretrained``, ``model``,
            ``train`` (training examples), ``cf`` (counterfactual ones) and ``cf_percent``.
        commands: commands that make the runs and their results.
        partial: whether missing numbers are printed as dashes instead of failing.
    """

    name: str
    labels: Mapping[str, str]
    commands: Sequence[str]
    partial: bool = False


@dataclass(frozen=True)
class ArmRow:
    """One row of our results.

    Attributes:
        run: name of the arm, ``experiment/arm``.
        model: printed name of the model.
        pretrained: the model it started from, if a table has several.
        baseline: name of the arm it is tested against, ``experiment/arm``; ``None`` for no test.
    """

    run: str
    model: str
    pretrained: str = ""
    baseline: str | None = None


@dataclass
class ArmTablePart:
    """A part of a table of arms: one set of runs on one set of benchmarks.

    Attributes:
        table: settings of the table that it is part of.
        columns: value columns, in order.
        rows: rows with the results of their runs.
        title: title of the part; the benchmarks and ``where`` are added.
        where: text appended to the benchmarks in titles, such as " of the embedded world".
        cells: tested cells, one list per row with one cell per column.
        measures: unit and direction of each column.

    Raises:
        UserError: if runs disagree on a metric's unit or direction, or a mean is over several.
    """

    table: TableSettings
    columns: Sequence[MeasuredColumn]
    rows: list[tuple[ArmRow, ArmResults]]
    title: str = "Ours"
    where: str = ""
    cells: list[list[MeasuredCell]] = field(init=False)
    measures: list[Measure] = field(init=False)

    def __post_init__(self) -> None:
        values = {row.run: [self._values(arm, c) for c in self.columns] for row, arm in self.rows}
        self.measures = [self._measure(column) for column in self.columns]
        self.cells = [
            [
                compare_with_baseline(
                    own, values[base][i] if base in values else None, self.measures[i]
                )
                for i, own in enumerate(values[row.run])
            ]
            for row, _ in self.rows
            for base in [None if self._same_weights(row)[1] else row.baseline]
        ]
        self._correct()

    def _same_weights(self, row: ArmRow) -> tuple[set[int], bool]:
        """Return the seeds at which a row and its baseline have equal weights, and if all do."""
        weights = {one.run: arm.weights for one, arm in self.rows}
        ours, theirs = weights[row.run], weights.get(row.baseline or "", {})
        shared = ours.keys() & theirs.keys() if row.run != row.baseline else set()
        same = {seed for seed in shared if ours[seed] and ours[seed] == theirs[seed]}
        return same, bool(same) and same == shared

    def _values(self, arm: ArmResults, column: MeasuredColumn) -> Values:
        if column.metric is not None:
            return arm.values(column.cell)
        others = [arm.values(c.cell) for c in self.columns if c.metric is not None]
        seeds = set.intersection(*(set(one) for one in others)) if others else set()
        return {seed: sum(one[seed] for one in others) / len(others) for seed in sorted(seeds)}

    def _measure(self, column: MeasuredColumn) -> Measure:
        """Return a column's unit and direction; for a mean, those of all other columns."""
        own = self.columns if column.metric is None else [column]
        cells = {one.cell for one in own if one.metric is not None}
        known = measures(row for _, arm in self.rows for row in arm.rows if row.cell in cells)
        found = set(known.values())
        if len(found) > 1:
            raise UserError(
                f"table={self.table.name}: the mean is over metrics of several units or "
                f"directions ({', '.join(name for _, name in known)}): leave its column out"
            )
        return found.pop() if found else PERCENT

    def _correct(self) -> None:
        """Set every cell's p, corrected over the whole part."""
        flat = holm([cell.p_paired for row in self.cells for cell in row])
        corrected = iter(flat.tolist())
        self.cells = [
            [MeasuredCell(c.values, c.p_independent, c.p_paired, next(corrected)) for c in row]
            for row in self.cells
        ]

    def require_all(self) -> None:
        """Refuse a part with gaps.

        Raises:
            MissingError: naming runs, benchmarks and seeds, unless the table is partial.
        """
        missing = list(self._missing())
        if missing and not self.table.partial:
            raise MissingError(self.table.name, missing, self.table.commands)

    def require_one_test(self) -> None:
        """Refuse rows that were evaluated on different test data under the same benchmark name.

        Raises:
            UserError: naming two runs, the benchmark and the seed.
        """
        benchmarks = {column.cell[0] for column in self.columns if column.metric}
        require_one_test(self.table.name, [(row.run, arm) for row, arm in self.rows], benchmarks)

    def _missing(self) -> Iterator[str]:
        seeds = set().union(*(arm.seeds for _, arm in self.rows if arm.trained))
        for row, arm in self.rows:
            if not arm.seeds:
                yield f"a finished run of {row.run}"
                continue
            wanted = seeds if arm.trained else arm.seeds
            if wanted - arm.seeds:
                yield f"{row.run} with seed {join_seeds(wanted - arm.seeds)}"
            for column in self.columns:
                if column.metric is None:
                    continue
                lacks = arm.seeds - set(arm.values(column.cell))
                if lacks:
                    yield f"{column.cell[0]} of {row.run}, seed {join_seeds(lacks)}"

    def part(self) -> Part:
        """Return it in the paper's layout."""
        labels = [tuple(self._label(key, *row) for key in self.table.labels) for row in self.rows]
        rows = [
            (
                names,
                tuple(
                    print_cell(cell, self._best(row, i), self.measures[i])
                    for i, cell in enumerate(cells)
                ),
            )
            for names, cells, (row, _) in zip(labels, self.cells, self.rows, strict=True)
        ]
        return Part(
            title=f"{self.title}: {self._where()}",
            labels=tuple(self.table.labels.values()),
            groups=groups_of(tuple(self.columns)),
            columns=tuple(
                measure.header(column.header)
                for column, measure in zip(self.columns, self.measures, strict=True)
            ),
            rows=tuple(rows),
            rules=rules_of([names[0] for names in labels])
            if "pretrained" in self.table.labels
            else (),
            notes=tuple(self._notes()),
        )

    def _best(self, row: ArmRow, column: int) -> str:
        """Return the best mean of a cell's column as printed: equal ones are both bold."""
        rivals = [
            cells[column].values
            for (other, _), cells in zip(self.rows, self.cells, strict=True)
            if other.pretrained == row.pretrained and cells[column].values
        ]
        measure = self.measures[column]
        return (
            measure.text(measure.best([sum(v.values()) / len(v) for v in rivals])) if rivals else ""
        )

    def _label(self, key: str, row: ArmRow, arm: ArmResults) -> str:
        if key in ("model", "pretrained"):
            return str(getattr(row, key))
        if not arm.records:
            return DASH
        if key == "cf_percent":
            return f"{100 * arm.share():.0f}%"
        low, high = arm.counts({"train": "train", "cf": "counterfactual"}[key])
        return label_text(key, low) if low == high else f"{low:,} to {high:,}"

    def _where(self) -> str:
        """Say what was measured: the benchmark's name if there is only one, and where."""
        asked = dict.fromkeys(c.benchmark for c in self.columns if c.metric is not None)
        name = next(iter(asked)) if len(asked) == 1 else f"{len(asked)} benchmarks"
        return f"{name}{self.where}"

    def _notes(self) -> Iterator[str]:
        seeds = sorted(set().union(*(arm.seeds for _, arm in self.rows)))
        counts = {
            c.cell[0]: n
            for c in self.columns
            if c.metric is not None
            for _, arm in self.rows
            if (n := arm.queries(c.cell)) is not None
        }
        asked = ", ".join(f"{name} (n = {n:,})" for name, n in counts.items())
        count = f"{len(seeds)} seed{'s' * (len(seeds) != 1)}"
        yield f"{count} ({join_seeds(seeds)}). Columns: {asked}. {self._units()}"
        for row, _ in self.rows:
            same, every = self._same_weights(row)
            if same:
                yield same_weights_say(row.run, str(row.baseline), same, every=every)
        yield from self._untested()
        tests = sum(not math.isnan(cell.p_paired) for row in self.cells for cell in row)
        if tests:
            bases = dict.fromkeys(row.baseline for row, _ in self.rows if row.baseline)
            yield (
                f"Tested against {', '.join(map(str, bases))}; † corrects the paired test over "
                f"{tests} comparisons."
            )

    def _untested(self) -> Iterator[str]:
        """Name the rows that have a baseline but no test, because either has one seed."""
        seeds = {row.run: len(arm.seeds) for row, arm in self.rows}
        single = [
            row.run
            for row, arm in self.rows
            if row.baseline not in (None, row.run)
            and arm.seeds
            and min(len(arm.seeds), seeds.get(row.baseline or "", 0)) == 1
        ]
        if single:
            yield (
                f"{', '.join(single)}: one seed, so no test over seeds; `python evaluate.py "
                "name=EXPERIMENT` tests single runs over items."
            )

    def _units(self) -> str:
        if all(measure == PERCENT for measure in self.measures):
            return "Values are percent."
        return "Values are percent, or in the unit above the column."

    def curve(self) -> Curve:
        """Return the mean over the columns against the share of counterfactual examples."""
        mean = next(i for i, column in enumerate(self.columns) if column.metric is None)
        points = {
            round(arm.share(), 3): cells[mean].values
            for (_, arm), cells in zip(self.rows, self.cells, strict=True)
            if arm.trained and cells[mean].values
        }
        return Curve(
            title=f"Mean by mixing ratio: {self._where()}",
            x_title="share of counterfactual examples",
            y_title=f"mean of the columns, {self.measures[mean].sign}",
            series={"mean of the columns": points},
            unit=self.measures[mean].unit,
            note="A dot is a seed; the line joins means, the whisker is Student's 95 % interval.",
        )
