"""A part of a table of arms, from our runs: every cell is tested against its row's baseline."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.types import Better
from cfaug.report.arm_results import ArmResults, MissingError, require_one_test
from cfaug.report.comparison import answers, at_chance, chances, measures, same_weights_say
from cfaug.report.document import DAGGER, Column, Curve, Entry, Part, make_part, rules_of
from cfaug.report.page import DASH, PERCENT, Measure
from cfaug.report.results import Cell, join_seeds
from cfaug.report.significance_rows import ALPHA
from cfaug.stats.significance import Alternative, holm, paired_t, summarise, welch


@dataclass(frozen=True)
class MeasuredColumn:
    """A value column of a part.

    Attributes:
        group: header printed above, once over neighbours of the same group; empty for none.
        benchmark: name of the benchmark; ``None`` for the mean.
        metric: name of the metric; ``None`` for the mean over the other columns.
    """

    header: str
    group: str
    benchmark: str | None
    metric: str | None

    @property
    def full_name(self) -> str:
        """Its header, after the one above it."""
        return f"{self.group} {self.header}".strip()

    @property
    def cell(self) -> Cell:
        """The benchmark and metric it shows; undefined for a mean."""
        assert self.benchmark is not None
        assert self.metric is not None
        return self.benchmark, self.metric


@dataclass(frozen=True)
class ArmRow:
    """One row of our results.

    Attributes:
        run: name of the arm, ``experiment/arm``.
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
        table: the name of the table.
        labels: header of each column that names a row, by its key: ``pretrained``, ``model``,
            ``train`` (training examples), ``cf`` (counterfactual ones) and ``cf_percent``.
        commands: the commands that make what is missing.
        partial: whether missing numbers are printed as dashes instead of failing.
        title: title of the part; the benchmarks and ``where`` are added.
        cells: tested cells, one list per row with one cell per column.
        measures: unit and direction of each column.
    """

    table: str
    columns: Sequence[MeasuredColumn]
    rows: list[tuple[ArmRow, ArmResults]]
    labels: Mapping[str, str]
    commands: Sequence[str]
    partial: bool = False
    title: str = "Ours"
    where: str = ""
    cells: list[list[MeasuredCell]] = field(init=False)
    measures: list[Measure] = field(init=False)

    def __post_init__(self) -> None:
        values = {row.run: [self._values(arm, c) for c in self.columns] for row, arm in self.rows}
        self.measures = [self._measure(column) for column in self.columns]
        by_chance = {row.run: self._at_chance(arm) for row, arm in self.rows}
        tested: list[list[MeasuredCell]] = []
        for row, _ in self.rows:
            base = None if self._same_weights(row)[1] else row.baseline
            untested = by_chance[row.run] & by_chance.get(base or "", set())
            theirs = [
                {} if i in untested else by_seed
                for i, by_seed in enumerate(values.get(base or "", [{}] * len(self.columns)))
            ]
            each = zip(values[row.run], theirs, self.measures, strict=True)
            tested.append([_compare_with_baseline(*arguments) for arguments in each])
        corrected = iter(holm([cell.p_paired for row in tested for cell in row]).tolist())
        self.cells = [[replace(cell, p_holm=next(corrected)) for cell in row] for row in tested]

    @property
    def _measured(self) -> list[tuple[int, MeasuredColumn]]:
        """Every column that is not a mean of the others, with its place."""
        return [(i, column) for i, column in enumerate(self.columns) if column.metric is not None]

    def _at_chance(self, arm: ArmResults) -> set[int]:
        """Return the columns in which an arm is not shown to be better than chance."""
        known = answers(replace(row, arm="") for row in arm.rows)
        return {i for i, column in self._measured if at_chance(known.get(("", column.cell), {}))}

    def _same_weights(self, row: ArmRow) -> tuple[set[int], bool]:
        """Return the seeds at which a row and its baseline have equal weights, and if all do."""
        weights = {other.run: arm.weights for other, arm in self.rows}
        ours, theirs = weights[row.run], weights.get(row.baseline or "", {})
        shared = ours.keys() & theirs.keys() if row.run != row.baseline else set()
        same = {seed for seed in shared if ours[seed] and ours[seed] == theirs[seed]}
        return same, bool(same) and same == shared

    def _values(self, arm: ArmResults, column: MeasuredColumn) -> Values:
        if column.metric is not None:
            return arm.values(column.cell)
        others = [arm.values(other.cell) for _, other in self._measured]
        seeds = set.intersection(*(set(values) for values in others)) if others else set()
        return {
            seed: sum(values[seed] for values in others) / len(others) for seed in sorted(seeds)
        }

    def _measure(self, column: MeasuredColumn) -> Measure:
        """Return a column's unit and direction; for a mean, those of all other columns."""
        cells = {column.cell} if column.metric else {other.cell for _, other in self._measured}
        known = measures(row for _, arm in self.rows for row in arm.rows if row.cell in cells)
        distinct = set(known.values())
        if len(distinct) > 1:
            raise UserError(
                f"table={self.table}: the mean is over metrics of several units or "
                f"directions ({', '.join(name for _, name in known)}): leave its column out"
            )
        return distinct.pop() if distinct else PERCENT

    def require_all(self) -> None:
        """Refuse a part with gaps.

        Raises:
            MissingError: naming runs, benchmarks and seeds, unless the table is partial.
        """
        missing: list[str] = []
        seeds = set().union(*(arm.seeds for _, arm in self.rows if arm.trained))
        for row, arm in self.rows:
            if not arm.seeds:
                missing.append(f"a finished run of {row.run}")
                continue
            wanted = seeds if arm.trained else arm.seeds
            if wanted - arm.seeds:
                missing.append(f"{row.run} with seed {join_seeds(wanted - arm.seeds)}")
            for _, column in self._measured:
                lacks = arm.seeds - set(arm.values(column.cell))
                if lacks:
                    missing.append(f"{column.cell[0]} of {row.run}, seed {join_seeds(lacks)}")
        if missing and not self.partial:
            raise MissingError(self.table, missing, self.commands)

    def require_one_test(self) -> None:
        """Refuse rows that were evaluated on different test data under the same benchmark name."""
        benchmarks = {column.cell[0] for _, column in self._measured}
        require_one_test(self.table, [(row.run, arm) for row, arm in self.rows], benchmarks)

    def part(self) -> Part:
        """Return it in the paper's layout."""

        def cell(column: int, row: int) -> Entry:
            # Compared as printed: equal means of one model are both bold.
            measure, model = self.measures[column], self.rows[row][0].pretrained
            means = [
                sum(values.values()) / len(values)
                for (other, _), cells in zip(self.rows, self.cells, strict=True)
                if other.pretrained == model and (values := cells[column].values)
            ]
            best = measure.text(measure.best(means)) if means else ""
            return print_cell(self.cells[row][column], best, measure)

        labels = [tuple(self._label(key, *row) for key in self.labels) for row in self.rows]
        columns = [
            Column(self.measures[i].header(column.header), partial(cell, i), column.group)
            for i, column in enumerate(self.columns)
        ]
        ruled = "pretrained" in self.labels
        return make_part(
            f"{self.title}: {self._where()}",
            [*self.labels.values()],
            columns,
            [(names, number) for number, names in enumerate(labels)],
            self._notes(),
            rules=rules_of([names[0] for names in labels]) if ruled else (),
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
        benchmarks = dict.fromkeys(column.benchmark for _, column in self._measured)
        name = next(iter(benchmarks)) if len(benchmarks) == 1 else f"{len(benchmarks)} benchmarks"
        return f"{name}{self.where}"

    def _notes(self) -> Iterator[str]:
        seeds = sorted(set().union(*(arm.seeds for _, arm in self.rows)))
        counts = {
            column.cell[0]: n
            for _, column in self._measured
            for _, arm in self.rows
            if (n := arm.queries(column.cell)) is not None
        }
        described = ", ".join(f"{name} (n = {n:,})" for name, n in counts.items())
        count = f"{len(seeds)} seed{'s' * (len(seeds) != 1)}"
        units = "percent, or in the unit above the column"
        if all(measure == PERCENT for measure in self.measures):
            units = "percent"
        if counts:  # none of a partial table without any run
            yield f"{count} ({join_seeds(seeds)}). Columns: {described}. Values are {units}."
        # What chance is, and which rows are not shown to be better.
        known = chances(row for _, arm in self.rows for row in arm.rows)
        levels = [
            f"{column.full_name} {self.measures[i].text(known[column.cell])}"
            for i, column in self._measured
            if column.cell in known
        ]
        if levels:
            yield f"Chance: {', '.join(levels)}."
            low = [
                f"{row.run} ({', '.join(self.columns[i].full_name for i in sorted(columns))})"
                for row, arm in self.rows
                if (columns := self._at_chance(arm))
            ]
            if low:
                yield (
                    f"Not shown to be better than chance: {'; '.join(low)}; two such rows are not "
                    "tested against each other."
                )
        for row, _ in self.rows:
            same, every = self._same_weights(row)
            if same:
                yield same_weights_say(row.run, str(row.baseline), same, every=every)
        sizes = {row.run: len(arm.seeds) for row, arm in self.rows}
        single = [
            row.run
            for row, arm in self.rows
            if row.baseline not in (None, row.run)
            and arm.seeds
            and min(len(arm.seeds), sizes.get(row.baseline or "", 0)) == 1
        ]
        if single:
            yield (
                f"{', '.join(single)}: one seed, so no test over seeds; `python evaluate.py "
                "name=EXPERIMENT` tests single runs over items."
            )
        tests = sum(not math.isnan(cell.p_paired) for row in self.cells for cell in row)
        if tests:
            bases = dict.fromkeys(row.baseline for row, _ in self.rows if row.baseline)
            yield (
                f"Tested against {', '.join(map(str, bases))}; † corrects the paired test over "
                f"{tests} comparisons."
            )

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


# One cell of a table of arms: its values, their tests against the baseline's, its printed form.

Values = dict[int, float]
"""Values of one arm, benchmark and metric, by seed."""


@dataclass(frozen=True)
class MeasuredCell:
    """One cell of our results: its values, and the results of the two tests."""

    values: Values
    p_independent: float = math.nan
    p_paired: float = math.nan
    p_holm: float = math.nan


def _compare_with_baseline(ours: Values, base: Values, measure: Measure) -> MeasuredCell:
    """Test values against the baseline's in the direction of their metric, if both have any.

    The paired test needs equal seeds.
    """
    if not ours or not base:
        return MeasuredCell(ours)
    improves: Alternative = "greater" if measure.better == "higher" else "less"
    same = ours.keys() == base.keys()
    return MeasuredCell(
        ours,
        welch(summarise(list(ours.values())), summarise(list(base.values())), improves),
        paired_t([ours[seed] - base[seed] for seed in sorted(ours)], improves)
        if same
        else math.nan,
    )


def print_cell(cell: MeasuredCell, best: str, measure: Measure) -> Entry:
    """Return the printed form of a cell: the mean, its spread and the marks of the tests."""
    if not cell.values:
        return Entry(DASH)
    summary = summarise(list(cell.values.values()))
    numbers = {
        "value": summary.mean, "sd": summary.sd, "n": summary.n,
        "p_independent": cell.p_independent, "p_paired": cell.p_paired, "p_holm": cell.p_holm,
    }  # fmt: skip
    return Entry(
        text=measure.text(summary.mean),
        sub=measure.spread(summary.sd) if summary.has_spread else "",
        bold=measure.text(summary.mean) == best,
        underlined=cell.p_independent <= ALPHA,
        above=DAGGER if cell.p_holm <= ALPHA else (),
        numbers={name: value for name, value in numbers.items() if not math.isnan(value)},
    )


def label_text(key: str, value: Any) -> str:
    """Return a row's label as printed: counts with a comma, shares with a percent sign.

    >>> label_text("train", 13928), label_text("cf_percent", 50), label_text("model", None)
    ('13,928', '50%', '–')
    """
    if value is None:
        return DASH
    if key == "cf_percent":
        return f"{value:g}%"
    return f"{value:,}" if isinstance(value, int) else str(value)


# Mark a column's best and second-best values bold and underlined.


def mark_best_two(
    part: Part, better: Sequence[Better | None], beside: Collection[int] = ()
) -> Part:
    """Mark the best of each column bold and the second best underlined.

    Values that print the same are marked the same: two equal best values are both bold, and the
    next one is second best.

    Args:
        part: the table; a cell is ranked by the ``value`` of its numbers, as printed.
        better: direction of each column; ``None`` for a column that is not ranked.
        beside: indices of rows that are not ranked, such as the unchanged texts.

    >>> scores = Column("score", lambda value: Entry(f"{value}", numbers={"value": value}))
    >>> part = make_part("", ("method",), [scores], [(("a",), 0.5), (("b",), 0.7)])
    >>> [cells[0].bold for _, cells in mark_best_two(part, ["lower"]).rows]
    [True, False]
    """
    best: list[tuple[str | None, ...]] = []
    for column, direction in enumerate(better):
        known: dict[str, float] = {}
        for number, (_, cells) in enumerate(part.rows):
            value = cells[column].numbers.get("value", math.nan)
            if direction is not None and number not in beside and not math.isnan(value):
                known.setdefault(cells[column].text, value)
        order = sorted(known, key=known.__getitem__, reverse=direction == "higher")
        best.append((*order, None, None)[:2])
    marked = tuple(
        (
            labels,
            tuple(
                replace(
                    cell,
                    bold=number not in beside and cell.text == first,
                    underlined=number not in beside and cell.text == second,
                )
                for cell, (first, second) in zip(cells, best, strict=True)
            ),
        )
        for number, (labels, cells) in enumerate(part.rows)
    )
    return replace(part, rows=marked, ranked=True)
