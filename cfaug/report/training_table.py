"""Arms of one experiment before and after training: their gains and costs.

Every metric is tested in its own direction, paired by seed. The comparisons that count were
declared before the results of a table's seeds were seen; they have their own part and correction.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.outputs import write_output
from cfaug.core.safety.json_text import load_json
from cfaug.report.arm_results import ArmResults, MissingError, Runs, require_one_test
from cfaug.report.document import Column, Document, Entry, Part, make_part, text_column
from cfaug.report.joint_tests import compare_over_seeds_and_items, seeds_and_items_parts
from cfaug.report.layout import KEPT, LOST, cell_entry, interval_text, legend
from cfaug.report.page import DASH, p_text
from cfaug.report.paper_tables import PaperTable
from cfaug.report.results import Cell, Result, join_seeds, name_part
from cfaug.report.significance_rows import ALPHA, SignificanceRow, Table
from cfaug.report.significance_table import items_of_arms, significance_table
from cfaug.stats.significance import holm, paired_t


@dataclass(frozen=True, kw_only=True)
class TrainingTable(PaperTable):
    """Arms by aims and costs, with differences; other arguments as for ``PaperTable``.

    Args:
        experiment: the experiment of the arms.
        arms: {arm: printed name}, in order.
        baselines: the arms that the others are compared with, the main one first.
        columns: {key: settings of ``TrainingColumn``}, with the costs last.
        declared: {name: {``arm``, ``baseline``, ``column``: key of ``columns``}}, the comparisons
            that were declared before looking, with a correction over these alone. With ``margin``,
            such as 0.01, the arm is tested to be less than so much worse (non-inferiority).
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
    declared: Mapping[str, Mapping[str, str | float]] = field(default_factory=dict)
    seeds_and_items: bool = False
    against: Mapping[str, Sequence[str]] = field(default_factory=dict)
    verdicts: bool = True

    @property
    def hashed(self) -> bool:
        """Whether what was not declared in a file before training is exploratory."""
        return False

    @property
    def declaration(self) -> dict[str, Any]:
        """All settings that are declared before training: all but texts and commands."""
        names = {entry.name for entry in fields(self)} - set(TEXTS)
        return {name: getattr(self, name) for name in sorted(names)}

    def build(self, runs: Runs) -> Document:
        """Return the table, with a part of comparisons for every baseline.

        Raises:
            MissingError: if runs or results are missing, unless ``partial``.
        """
        columns = self._columns()
        cells = dict.fromkeys(column.cell for column in columns.values())
        arms = {arm: runs.arm(f"{self.experiment}/{arm}") for arm in self.arms}
        missing = list(self._missing(arms, cells))
        rows = [row for arm in arms.values() for row in arm.rows if row.cell in cells]
        baselines = [arm for arm in self.baselines if any(row.arm == arm for row in rows)]
        if (missing and not self.partial) or not baselines:
            raise MissingError(self.name, missing, self.commands, partial=self.partial)
        require_one_test(self.name, arms.items(), {c.benchmark for c in columns.values()})
        every = significance_table(
            rows, baselines, [arm for arm, results in arms.items() if not results.trained],
            labels=dict(self.arms),
        )  # fmt: skip
        tested = [column.cell for column in columns.values() if column.tested]
        table = choose_family(every, tested, self.against)
        measured = {row.cell for row in rows}
        shown = [column for column in columns.values() if column.cell in measured]
        order = [arm for arm in self.arms if arm in table.arms]
        compared = {
            baseline: [arm for arm in order if is_compared(arm, baseline, self.against)]
            for baseline in baselines
        }
        declared = declared_part(every, arms, list(self.declared.values()), columns)
        exploratory = find_undeclared(self, runs.root, arms.values())
        if exploratory:
            declared = replace(declared, title="Exploratory: not declared before training")
        parts = [
            values_part(table, shown, order, self.experiment),
            *([declared] if declared.rows else []),
            *self._over_both(runs, table, columns, rows),
            *(
                differences_part(table, [c for c in shown if c.differs], compared_arms, baseline)
                for baseline, compared_arms in compared.items()
            ),
        ]
        verdicts = [
            line for baseline, compared_arms in compared.items() for arm in compared_arms
            if self.verdicts and arm not in self.baselines
            and (line := describe_effect(table, shown, arm, baseline))
        ]  # fmt: skip
        answer = describe_declared(declared, exploratory)
        document = self.document(*parts, answer=answer)
        return replace(document, notes=(*verdicts, *document.notes))

    def check(self) -> None:
        """Refuse settings that name arms or columns which the table lacks."""
        self._columns()

    def _columns(self) -> dict[str, TrainingColumn]:
        """Return the columns, after checks of every setting."""
        try:
            columns = {key: TrainingColumn(**column) for key, column in self.columns.items()}
        except TypeError as error:
            raise UserError(f"table.columns of {self.name}: {error}") from error
        arms = ", ".join(self.arms)
        unknown = [arm for arm in self.baselines if arm not in self.arms]
        if unknown or not self.baselines or all(column.cost for column in columns.values()):
            missing = "baselines or a column that is not a cost is missing"
            problem = f"baselines: {unknown[0]!r} is not an arm" if unknown else missing
            raise UserError(f"table={self.name}: {problem}; arms are {arms}")
        for baseline, compared in self.against.items():
            wrong = [f"{a!r} is not an arm" for a in (baseline, *compared) if a not in self.arms]
            if baseline not in self.baselines:
                wrong.append(f"{baseline!r} is not a baseline")
            if wrong:
                raise UserError(
                    f"table={self.name}: against: {wrong[0]}; arms are {arms}, "
                    f"baselines {', '.join(self.baselines)}"
                )
        for entry in self.declared.values():
            self.check_comparison("declared", entry, {"margin"})
            margin = entry.get("margin", 1)
            if isinstance(margin, bool) or not isinstance(margin, int | float) or not margin > 0:
                raise UserError(
                    f"table={self.name}: declared margin={margin!r} is invalid: it is above 0"
                )
        return columns

    def check_comparison(
        self, setting: str, entry: Mapping[str, Any], more: Collection[str] = ()
    ) -> None:
        """Refuse a comparison of ``setting`` that names what the table lacks.

        Args:
            more: keys that it may have besides ``arm``, ``baseline`` and ``column``.
        """
        choices = {"arm": self.arms, "baseline": self.baselines, "column": self.columns}
        where = f"table={self.name}: {setting}"
        if set(entry) - set(more) != set(choices):
            raise UserError(f"{where} {dict(entry)} is invalid: it has {', '.join(choices)}")
        for name, known in choices.items():
            if entry[name] not in known:
                raise UserError(
                    f"{where} {name} {entry[name]!r} is invalid: choose from {', '.join(known)}"
                )
        if entry["arm"] == entry["baseline"]:
            raise UserError(f"{where} {entry['arm']!r} is compared with itself: name two arms")

    def _missing(self, arms: Mapping[str, ArmResults], cells: Iterable[Cell]) -> Iterator[str]:
        seeds = set().union(*(arm.seeds for arm in arms.values()))
        for name, arm in arms.items():
            if not arm.seeds:
                yield f"a finished run of {self.experiment}/{name}"
                continue
            if seeds - arm.seeds:
                yield f"{self.experiment}/{name} with seed {join_seeds(seeds - arm.seeds)}"
            for cell in cells:
                lacks = arm.seeds - set(arm.values(cell))
                if lacks:
                    subject = f"{' '.join(cell)} of {self.experiment}/{name}"
                    yield f"{subject}, seed {join_seeds(lacks)}"

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
        declared: Iterable[Mapping[str, Any]] = self.declared.values()
        named = [
            table.get(entry["arm"], columns[entry["column"]].cell, entry["baseline"])
            for entry in declared
        ]
        tested = {column.cell for column in columns.values() if column.tested}
        usual = [r for r in table.comparisons if r.baseline == table.baselines[0]]
        rows = [row for row in named if row is not None] or [r for r in usual if r.cell in tested]
        items = items_of_arms(runs, self.experiment, self.arms)
        comparisons, refused = compare_over_seeds_and_items(rows, results, items, self.arms)
        return seeds_and_items_parts(comparisons, self.arms, refused)


# Parts of a table of trained arms: values, declared comparisons, differences, and summaries.


@dataclass(frozen=True)
class TrainingColumn:
    """A value column.

    Attributes:
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

    @property
    def full_name(self) -> str:
        """Its name in sentences: that of an aim needs no group."""
        return f"{self.group} {self.name}".strip() if self.cost else self.name


def values_part(
    table: Table, columns: Sequence[TrainingColumn], arms: Sequence[str], experiment: str
) -> Part:
    """Return the means of arms, as printed in a table of significance, with all its notes."""

    def value(cell: Cell, arm: str) -> Entry:
        return cell_entry(table, arm, cell) or Entry(DASH)

    seeds = max(row.n for row in table.rows)
    return make_part(
        f"Ours: {experiment}, {seeds} seed{'s' * (seeds > 1)}",
        ("Arm",),
        [
            Column(table.measure(c.cell).header(c.name), partial(value, c.cell), c.group)
            for c in columns
        ],
        [((table.label(arm),), arm) for arm in arms],
        (*legend(table), *table.all_notes()),
    )


DeclaredRow = tuple[SignificanceRow, str, float, float]
"""A declared comparison: its numbers, what is better, and its p before and after correction."""


def declared_part(
    every: Table,
    arms: Mapping[str, ArmResults],
    declared: Sequence[Mapping[str, Any]],
    columns: Mapping[str, TrainingColumn],
) -> Part:
    """Return the declared comparisons, with Holm's correction only over these."""

    def test(entry: Mapping[str, Any], row: SignificanceRow) -> float:
        if "margin" not in entry:
            return row.p_paired
        ours, theirs = (arms[entry[name]].values(row.cell) for name in ("arm", "baseline"))
        gains = [row.measure.gain(ours[seed] - theirs[seed]) for seed in ours if seed in theirs]
        return paired_t([gain + entry["margin"] for gain in gains]) if gains else math.nan

    compared = [
        (entry, row)
        for entry in declared
        if (row := every.get(entry["arm"], columns[entry["column"]].cell, entry["baseline"]))
        is not None
    ]
    tested = [test(entry, row) for entry, row in compared]
    rows = []
    for (entry, row), p, corrected in zip(compared, tested, holm(tested).tolist(), strict=True):
        names = f"{every.label(entry['arm'])} against {every.label(entry['baseline'])}"
        wanted: str = row.better
        if "margin" in entry:
            wanted = f"worse by less than {row.measure.difference(entry['margin']).lstrip('+')}"
        about = (row, wanted, p, corrected)
        rows.append(((names, columns[entry["column"]].full_name), about))

    def difference(declared: DeclaredRow) -> Entry:
        row = declared[0]
        numbers = {"value": row.diff, "n": float(row.n)}
        return Entry(row.measure.difference(row.diff), small=interval_text(row), numbers=numbers)

    def holm_entry(declared: DeclaredRow) -> Entry:
        p = declared[-1]
        return Entry(p_text(p), bold=p <= ALPHA, numbers=_known(p_holm=p))

    return make_part(
        "Declared before looking",
        ("Comparison", "Of"),
        [
            Column("difference", difference),
            text_column("better is", lambda declared: declared[1]),
            text_column("p", lambda declared: p_text(declared[2])),
            Column("Holm", holm_entry),
        ],
        rows,
        (
            "Difference with its 95 % interval over seeds; p one-sided for being better, "
            "or for being worse by less than the margin where one is given, paired by seed; Holm "
            f"over these {len(rows)} alone.",
        ),
    )


def describe_declared(declared: Part, exploratory: str = "") -> str:
    """Return what was shown of the comparisons declared before looking; empty without any.

    Args:
        exploratory: why the comparisons count as not declared; empty if they were.
    """
    by_verdict: dict[str, list[str]] = {}
    for (compared, of), (difference, wanted, *_, corrected) in declared.rows:
        better = "to be no worse" if "worse" in wanted.text else "to be better"
        shown = f"shown {better}" if corrected.bold else f"not shown {better}"
        known = f", p = {corrected.text}" if corrected.numbers else ", no test"
        by_verdict.setdefault(shown, []).append(f"{compared} on {of} ({difference.text}{known})")
    order = sorted(by_verdict, key=lambda shown: (shown.startswith("not"), shown))
    lines = [f"{shown}: {'; '.join(by_verdict[shown])}" for shown in order]
    start = f"Exploratory, {exploratory}" if exploratory else "Of what was declared before looking"
    return f"{start}, {'. '.join(lines)}." if lines else ""


# The declaration: ``<runs>/<experiment>/declared.json``, hashed into every run that names it.

DECLARED = "declared.json"
TEXTS = ("name", "title", "paper", "claim", "commands", "notes", "partial", "verdicts")
"""Settings of a table that change no number, and so are not declared."""


def declaration_text(table: TrainingTable) -> str:
    """Return a table's declaration as JSON: the same settings, the same bytes."""
    return json.dumps(table.declaration, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write_declaration(table: TrainingTable, root: Path) -> Path:
    """Write what a table compares before anything is trained, and return the file.

    Raises:
        UserError: if another declaration is there, or runs without this one.
    """
    table.check()
    if not table.declared and not table.hashed:
        raise UserError(f"table={table.name} declares no comparison, so there is nothing to write")
    folder = root / table.experiment
    file, text = folder / DECLARED, declaration_text(table)
    if file.exists():
        if file.read_text(encoding="utf-8") != text:
            raise UserError(
                f"{file} declares something else ({_difference(file, table)}): what was declared "
                "is not changed afterwards; declare another experiment (table.experiment=..., "
                "name=... of the runs), or remove the file and the experiment's runs"
            )
        return file
    if trained := sorted(folder.glob("*/seed=*/run.json")):
        raise UserError(
            f"{trained[0].parent} is trained already: a declaration comes before the first run; "
            "declare another experiment (table.experiment=..., name=... of the runs)"
        )
    write_output(file, text.encode(), DECLARED)
    return file


def find_undeclared(table: TrainingTable, root: Path, arms: Iterable[ArmResults]) -> str:
    """Return why a table's comparisons are exploratory; empty if they are not.

    Runs record the hash of the file that ``declared=FILE`` names when they start.
    """
    hashes = {
        (record.get("identity") or {}).get("content.declared")
        for arm in arms
        for record in arm.records.values()
    }
    if not table.hashed and hashes <= {None}:
        return ""  # declared in a commit, as its configuration says
    if hashes == {hashlib.sha256(declaration_text(table).encode()).hexdigest()}:
        return ""
    file = root / table.experiment / DECLARED
    if hashes <= {None}:
        return "as the runs name no declaration (declared=FILE)"
    if len(hashes) > 1:
        return "as the runs differ in what was declared"
    difference = _difference(file, table) if file.exists() else ""
    if not difference:
        return "as the runs have another declaration than this table"
    return f"as something else was declared ({difference})"


def _difference(file: Path, table: TrainingTable) -> str:
    try:
        there = load_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is not JSON: {error}") from error
    ours = json.loads(declaration_text(table))
    there = there if isinstance(there, dict) else {}
    names = sorted({*ours, *there})
    return ", ".join(f"table.{name}" for name in names if ours.get(name) != there.get(name))


def _known(**numbers: float) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if not math.isnan(value)}


def differences_part(
    table: Table, columns: Sequence[TrainingColumn], arms: Sequence[str], baseline: str
) -> Part:
    """Return every arm's difference from one baseline, with interval and corrected p."""

    def difference(cell: Cell, arm: str) -> Entry:
        row = table.get(arm, cell, baseline)
        if row is None:
            return Entry(DASH)
        return Entry(
            row.measure.difference(row.diff),
            signs=KEPT * row.kept + LOST * row.lost,
            small=f"{interval_text(row)}, p {p_text(row.p_holm)}",
            numbers=_known(
                value=row.diff, n=float(row.n), p_paired=row.p_paired, p_holm=row.p_holm
            ),
        )

    return make_part(
        f"Less {table.label(baseline)}",
        ("Arm",),
        [
            Column(table.measure(c.cell).header(c.name), partial(difference, c.cell), c.group)
            for c in columns
        ],
        [((table.label(arm),), arm) for arm in arms if arm != baseline],
        (
            "Difference, its 95 % interval over seeds and p, one-sided for being better, "
            f"paired by seed, after Holm over all comparisons of this table. {KEPT}: better; "
            f"{LOST}: worse (two-sided).",
        ),
    )


def is_compared(arm: str, baseline: str, against: Mapping[str, Collection[str]]) -> bool:
    """Return whether an arm is compared with a baseline.

    Args:
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
        tested: the benchmarks and metrics whose differences are tested.
        against: {baseline: arms that are compared with it}; other baselines have all arms.
    """
    main = table.baselines[0]
    kept = [
        row.cell in tested
        and (row.baseline == main or row.arm not in table.baselines)
        and is_compared(row.arm, row.baseline, against or {})
        for row in table.rows
    ]
    pairs = zip(table.rows, kept, strict=True)
    p = [(row.p_paired, row.p_paired_two_sided) if keep else (math.nan,) * 2 for row, keep in pairs]
    one_sided, two_sided = (holm(list(column)).tolist() for column in zip(*p, strict=True))
    rows = [
        replace(
            row, p_paired=raw[0], p_paired_two_sided=raw[1], p_holm=p_one, p_holm_two_sided=p_two
        )
        for row, raw, p_one, p_two in zip(table.rows, p, one_sided, two_sided, strict=True)
    ]
    return replace(table, rows=tuple(rows))


def describe_effect(
    table: Table, columns: Sequence[TrainingColumn], arm: str, baseline: str
) -> str:
    """Describe the gains and costs of an arm relative to a baseline; empty if never compared.

    A cost is named whenever its interval over seeds excludes 0, even if it is not significant after
    correction, as a correction would hide costs.
    """
    rows = [(column, table.get(arm, column.cell, baseline)) for column in columns if column.tested]
    compared = [(column, row) for column, row in rows if row is not None]
    aims = [_aim_effect(column, row) for column, row in compared if not column.cost]
    if not aims:
        return ""
    costs = [_amount(c, row) for c, row in compared if c.cost and _beyond(row) < 0]
    gains = [_amount(c, row) for c, row in compared if c.cost and _beyond(row) > 0]
    clauses = [*aims, f"it costs {', '.join(costs)}" if costs else "no cost is seen"]
    clauses += [f"it gains {', '.join(gains)}"] if gains else []
    return f"{table.label(arm)} against {table.label(baseline)}: {'; '.join(clauses)}."


def _beyond(row: SignificanceRow) -> int:
    """Return 1 if the whole interval is better than 0, -1 if it is worse, else 0."""
    ends = [row.measure.gain(end) for end in (row.t_low, row.t_high)]
    return 1 if min(ends) > 0 else -1 if max(ends) < 0 else 0


def _amount(column: TrainingColumn, row: SignificanceRow) -> str:
    return f"{column.full_name} {row.measure.amount(row.diff)} (95 % {interval_text(row)})"


def _aim_effect(column: TrainingColumn, row: SignificanceRow) -> str:
    if math.isnan(row.p_holm):
        return f"{_amount(column, row)}: no test ({row.reason})"
    if row.lost:
        return f"{_amount(column, row)}: worse (two-sided p {p_text(row.p_holm_two_sided)})"
    by_interval = {1: "better by the interval alone", -1: "worse by the interval alone"}
    verdict = "better" if row.kept else by_interval.get(_beyond(row), "not shown by these seeds")
    return f"{_amount(column, row)}: {verdict} (p {p_text(row.p_holm)})"
