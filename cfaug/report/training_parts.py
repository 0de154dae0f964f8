"""Parts of a table of trained arms: declared comparisons, differences, and summaries."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cfaug.report.document import Entry, Part, groups_of
from cfaug.report.layout import interval_text
from cfaug.report.numbers import DASH, p_text
from cfaug.report.result_row import Cell, name_part
from cfaug.report.tables import ALPHA, SignificanceRow, Table
from cfaug.stats.significance import holm

KEPT, LOST = "†", "‡"


@dataclass(frozen=True)
class TrainingColumn:
    """A value column.

    Attributes:
        name: the printed header.
        benchmark: the benchmark of the results.
        metric: the metric of the benchmark.
        group: the header printed above adjacent columns of the same group.
        by: {name: value}, the part of the benchmark; empty for the whole.
        cost: whether the column is a possible cost of the arms rather than their aim.
        tested: whether the differences are tested; ``False`` for a column that repeats another.
        differs: whether tables of differences show the column; ``False`` if all arms are equal.
    """

    name: str
    benchmark: str
    metric: str
    group: str = ""
    by: Mapping[str, str] = field(default_factory=dict)
    cost: bool = True
    tested: bool = True
    differs: bool = True

    @property
    def cell(self) -> Cell:
        """Its cell in the results."""
        by = {name: str(value) for name, value in self.by.items()}
        return name_part(self.benchmark, by), self.metric


def declared_part(
    every: Table, declared: Sequence[Mapping[str, str]], columns: Mapping[str, TrainingColumn]
) -> Part:
    """Return the declared comparisons, with Holm's correction only over these."""
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


def differences_part(
    table: Table, columns: Sequence[TrainingColumn], arms: Sequence[str], baseline: str
) -> Part:
    """Return every arm's difference from one baseline, with interval and corrected p."""
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


def _difference(row: SignificanceRow | None) -> Entry:
    if row is None:
        return Entry(DASH)
    return Entry(
        row.measure.difference(row.diff),
        signs=KEPT * row.kept + LOST * row.lost,
        small=f"{interval_text(row)}, p {p_text(row.p_holm)}",
        numbers=_known(value=row.diff, n=float(row.n), p_paired=row.p_paired, p_holm=row.p_holm),
    )


def is_asked(arm: str, baseline: str, against: Mapping[str, Collection[str]]) -> bool:
    """Return whether an arm is compared with a baseline.

    Args:
        arm: an arm of the experiment.
        baseline: the arm to compare with.
        against: {baseline: arms that are compared with it}; other baselines have all arms.
    """
    return arm in against.get(baseline, (arm,))


def choose_family(
    table: Table, tested: Collection[Cell], against: Mapping[str, Collection[str]] | None = None
) -> Table:
    """Return a table with fewer tests, and Holm's correction over these alone.

    Every arm is compared with the main baseline, and arms that are not baselines with the other
    baselines too. The remaining rows keep only their difference.

    Args:
        table: the table with every comparison.
        tested: the benchmarks and metrics whose differences are tested.
        against: {baseline: arms that are compared with it}; other baselines have all arms.
    """
    main = table.baselines[0]
    kept = [
        row.cell in tested
        and (row.baseline == main or row.arm not in table.baselines)
        and is_asked(row.arm, row.baseline, against or {})
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


def describe_effect(
    table: Table, columns: Sequence[TrainingColumn], arm: str, baseline: str
) -> str:
    """Describe the gains and costs of an arm relative to a baseline.

    A cost is named whenever its interval over seeds excludes 0, even if it is not significant after
    correction, as a correction would hide costs.

    Args:
        table: the table with comparisons of the arm against the baseline.
        columns: the columns of aims and costs.
        arm: the arm to describe.
        baseline: the arm that it is compared with.

    Returns:
        A sentence; empty if the two were not compared.
    """
    rows = [(column, table.get(arm, column.cell, baseline)) for column in columns if column.tested]
    found = [(column, row) for column, row in rows if row is not None]
    aims = [_aim_effect(column, row) for column, row in found if not column.cost]
    if not aims:
        return ""
    costs = [_amount(c, row) for c, row in found if c.cost and _beyond(row) < 0]
    gains = [_amount(c, row) for c, row in found if c.cost and _beyond(row) > 0]
    told = [*aims, f"it costs {', '.join(costs)}" if costs else "no cost is seen"]
    told += [f"it gains {', '.join(gains)}"] if gains else []
    return f"{table.label(arm)} against {table.label(baseline)}: {'; '.join(told)}."


def _beyond(row: SignificanceRow) -> int:
    """Return 1 if the whole interval is better than 0, -1 if it is worse, else 0."""
    ends = [row.measure.gain(end) for end in (row.ci_low, row.ci_high)]
    return 1 if min(ends) > 0 else -1 if max(ends) < 0 else 0


def _amount(column: TrainingColumn, row: SignificanceRow) -> str:
    name = f"{column.group} {column.name}".strip() if column.cost else column.name
    return f"{name} {row.measure.amount(row.diff)} (95 % {interval_text(row)})"


def _aim_effect(column: TrainingColumn, row: SignificanceRow) -> str:
    if math.isnan(row.p_holm):
        return f"{_amount(column, row)}: no test ({row.reason})"
    if row.lost:
        return f"{_amount(column, row)}: worse (two-sided p {p_text(row.p_holm_two_sided)})"
    by_interval = {1: "better by the interval alone", -1: "worse by the interval alone"}
    verdict = "better" if row.kept else by_interval.get(_beyond(row), "not shown by these seeds")
    return f"{_amount(column, row)}: {verdict} (p {p_text(row.p_holm)})"
