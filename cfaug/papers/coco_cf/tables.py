"""Tables of arms and of drops of COCO-Counterfactuals, and the numbers that the paper prints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from cfaug.core.errors import UserError
from cfaug.report.arm_results import ArmResults, MissingError, Runs
from cfaug.report.arm_table import ArmRow, ArmTablePart, MeasuredColumn, label_text
from cfaug.report.document import Column, Document, Entry, Part, Row, make_part, rules_of
from cfaug.report.page import DASH, percent
from cfaug.report.paper_tables import published
from cfaug.report.results import join_seeds
from cfaug.report.significance_rows import ALPHA
from cfaug.stats.significance import SeedSummary, summarise, welch

# Tables of arms by benchmarks: Tables 3, 4, 5, 11 and 12 of COCO-Counterfactuals.


@dataclass(frozen=True)
class ArmsTable:
    """A table with a row per arm and a column per benchmark and metric.

    Args:
        name: the name of the paper's numbers and of the output files.
        paper: the source of the paper's numbers, the title of their part.
        labels: {key that names a row: header}, with keys ``pretrained``, ``model``, ``train``,
            ``cf``, ``cf_percent``; ``null`` omits a column.
        columns: {the paper's column: settings of ``Column``}; a column without a metric is the mean
            of the others.
        rows: settings of ``ArmRow``, in order.
        world: default benchmark of the columns on the embedded world.
        folders: default benchmark of the columns on real data.
        baseline: the ``model`` of the row that is the paper's own baseline.
        controls: {place: settings of ``ArmRow``}, a separate part of controls that are not in the
            paper, shown if any of its runs that is not in ``rows`` has results.
        curve: whether to draw the mean against the share of counterfactual examples.
        partial: whether to print dashes for missing values.
    """

    name: str
    title: str
    """the heading"""
    paper: str
    labels: Mapping[str, str | None]
    columns: Mapping[str, Mapping[str, Any]]
    rows: Sequence[Mapping[str, Any]]
    commands: Sequence[str]
    """the commands that make what it needs"""
    world: str | None = None
    folders: str | None = None
    baseline: str | None = None
    controls: Mapping[Place, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    curve: bool = False
    notes: Sequence[str] = ()
    """sentences under the table"""
    partial: bool = False

    @property
    def named_by(self) -> dict[str, str]:
        """The keys that name a row, with their headers."""
        return {key: header for key, header in self.labels.items() if header is not None}

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours for every place where they were measured."""
        columns = columns_of(self.columns, self.world, self.folders)
        theirs = published_part(self.name, self.paper, self.named_by, columns, self.baseline)
        listed = self._read("rows", self.rows)
        names = {row.run for row in listed}
        rows = [(row, runs.arm(row.run)) for row in listed]
        ours, beside = [], []
        for place in PLACES:
            measured = _has_results([arm for _, arm in rows], columns, place)
            if measured or (self.partial and place == PLACES[0]):
                ours.append(self._part(columns, place, rows, "Ours"))
            wanted = self._read("controls", self.controls.get(place, ()))
            controls = [(row, runs.arm(row.run)) for row in wanted]
            if _has_results([arm for row, arm in controls if row.run not in names], columns, place):
                title = "Ours, beside real data of the same size"
                beside.append(self._part(columns, place, controls, title))
        if not ours:
            raise MissingError(self.name, [row.run for row in listed], self.commands)
        for part in (*ours, *beside):
            part.require_all()
            part.require_one_test()
        return Document(
            name=self.name,
            title=self.title,
            parts=(theirs, *(part.part() for part in (*ours, *beside))),
            notes=tuple(self.notes),
            curves=tuple(our.curve() for our in ours) if self.curve else (),
            answer=describe_equal_size(ours[0].part()),
        )

    def _part(
        self,
        columns: Sequence[ValueColumn],
        place: Place,
        rows: list[tuple[ArmRow, ArmResults]],
        title: str,
    ) -> ArmTablePart:
        # The style of the world is that of the first run with one.
        records = [record for _, arm in rows for record in arm.records.values()]
        styles = [(record.get("identity") or {}).get("data.world.style") for record in records]
        style = next((f" (style {style})" for style in styles if style is not None), "")
        return ArmTablePart(
            table=self.name,
            columns=[column.at(place) for column in columns],
            rows=rows,
            labels=self.named_by,
            commands=self.commands,
            partial=self.partial,
            title=title,
            where="" if place == "folders" else f" of the embedded world ShapeScapes{style}",
        )

    def _read(self, name: str, rows: Sequence[Mapping[str, Any]]) -> list[ArmRow]:
        try:
            return [ArmRow(**row) for row in rows]
        except TypeError as error:
            raise UserError(f"table.{name} of {self.name}: {error}") from error


def describe_equal_size(part: Part) -> str:
    """Compare the means of real data alone and of a mixture of the same size, in one sentence.

    Empty for a table without sizes, shares and means, or without such a mixture.
    """
    if len(part.labels) != 3 or not part.columns or part.columns[-1] != "Mean":
        return ""
    rows = [(labels, cells[-1]) for labels, cells in part.rows if "value" in cells[-1].numbers]
    real = {labels[1]: mean for labels, mean in rows if labels[2] == "0%" and labels[1] != "0"}
    for labels, mean in rows:
        if labels[1] in real and labels[2] != "0%":
            other = real[labels[1]]
            shown = "shown" if mean.underlined else "not shown"
            return (
                f"With {labels[1]} training examples, {labels[2]} of them counterfactual, the mean "
                f"is {mean.text} %, and {other.text} % with real ones alone: {shown} to be better "
                "by the paper's test."
            )
    return ""


def _has_results(arms: Sequence[ArmResults], columns: Sequence[ValueColumn], place: Place) -> bool:
    benchmarks = {getattr(column, place) for column in columns if column.metric} - {None}
    return any(row.benchmark in benchmarks for arm in arms for row in arm.rows)


# Tables of drops: how much harder counterfactuals are than real pairs (COCO-CFs, Tables 2, 13).


@dataclass(frozen=True)
class DropTable:
    """A row per model and data set: recall, and its change against the model's baseline.

    Args:
        name: the name of the paper's numbers and of the output files.
        paper: the source of the paper's numbers, the title of their part.
        columns: {the paper's column: settings of ``Column``}.
        models: {printed name: {"world": ``experiment/arm``, "folders": ``experiment/arm``}};
            ``null`` omits a model.
        datasets: {printed name: {"world": benchmark, "folders": benchmark}}, the baseline first.
        partial: whether to print dashes for missing values.
    """

    name: str
    title: str
    """the heading"""
    paper: str
    columns: Mapping[str, Mapping[str, Any]]
    models: Mapping[str, Mapping[Place, str] | None]
    datasets: Mapping[str, Mapping[Place, str]]
    commands: Sequence[str]
    """the commands that make what it needs"""
    notes: Sequence[str] = ()
    """sentences under the table"""
    partial: bool = False

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours for every place where they were measured."""
        columns = tuple(c for c in columns_of(self.columns, None, None) if c.metric)
        by_place = {
            place: {
                model: runs.arm(arms[place])
                for model, arms in self.models.items()
                if arms and place in arms
            }
            for place in PLACES
        }
        ours = [
            self._part(arms, columns, place)
            for place, arms in by_place.items()
            if any(arm.rows for arm in arms.values())
        ]
        if not ours and not self.partial:
            names = [f"results of {arm.name}" for arm in by_place[PLACES[0]].values()]
            raise MissingError(self.name, names, self.commands)
        paper = published(self.name)
        position = {key: i for i, key in enumerate(paper["columns"])}

        def cell(column: ValueColumn, row: Mapping[str, Any]) -> Entry:
            at = position[column.key]
            same = [other for other in paper["rows"] if other["model"] == row["model"]]
            value, change = row["values"][at], row["change"][at]
            bold = change == min(other["change"][at] for other in same) and change < 0
            return Entry(f"{value:.2f} ({change:+d}%)", bold=bold, numbers={"value": value / 100})

        cells = [Column(column.name, partial(cell, column), column.group) for column in columns]
        rows = [((row["model"], row["dataset"]), row) for row in paper["rows"]]
        theirs = _lay_out(self.paper, cells, rows, [paper["note"]], ours=False)
        return Document(self.name, self.title, (theirs, *ours), tuple(self.notes))

    def _part(
        self, arms: Mapping[str, ArmResults], columns: tuple[ValueColumn, ...], place: Place
    ) -> Part:
        benchmarks = {name: places[place] for name, places in self.datasets.items()}
        baseline = next(iter(benchmarks.values()))
        seeds = sorted(set().union(*(arm.seeds for arm in arms.values())))
        missing, rows = [], []
        for model, arm in arms.items():
            for dataset, benchmark in benchmarks.items():
                measured = [set(arm.values((benchmark, str(c.metric)))) for c in columns]
                lacks = next(
                    (set(seeds) - covered for covered in measured if set(seeds) - covered), set()
                )
                if lacks:
                    missing.append(f"{benchmark} of {arm.name}, seed {join_seeds(lacks)}")
                name = dataset if benchmark != baseline else f"{dataset} (baseline)"
                rows.append(((model, name), (arm, benchmark)))
        if missing and not self.partial:
            raise MissingError(self.name, missing, self.commands)
        where = "the embedded world ShapeScapes" if place == "world" else "real data"
        worlds = f"Mean over seeds {join_seeds(seeds)}, a world each (deviations: CSV). "
        note = "In brackets the change against the baseline; bold: a model's largest drop."
        described = "; ".join(f"{name}: {benchmark}" for name, benchmark in benchmarks.items())
        notes = [f"{described}.", worlds + note if place == "world" else note]

        def cell(column: ValueColumn, row: tuple[ArmResults, str]) -> Entry:
            arm, benchmark = row
            means = {
                name: summarise(list(values.values()))
                for name in benchmarks.values()
                if (values := arm.values((name, str(column.metric))))
            }
            if benchmark not in means:
                return Entry(DASH)
            summary = means[benchmark]
            numbers = {"value": summary.mean, "n": float(summary.n)}
            numbers |= {"sd": summary.sd} if summary.n > 1 else {}
            if benchmark == baseline or baseline not in means or not means[baseline].mean:
                return Entry(percent(summary.mean), numbers=numbers)
            change = {
                name: round(100 * (other.mean / means[baseline].mean - 1))
                for name, other in means.items()
            }
            # Compared as printed, so that two drops that read the same are both bold.
            bold = change[benchmark] == min(change.values()) < 0
            printed = f"{change[benchmark]:+d}%" if change[benchmark] else "0%"
            return Entry(f"{percent(summary.mean)} ({printed})", bold=bold, numbers=numbers)

        cells = [Column(column.name, partial(cell, column), column.group) for column in columns]
        return _lay_out(f"Ours: {where}", cells, rows, notes)


def _lay_out(
    title: str,
    columns: Sequence[Column[Row]],
    rows: Sequence[tuple[tuple[str, ...], Row]],
    notes: Sequence[str],
    ours: bool = True,
) -> Part:
    labels = ("Pre-trained model", "Evaluated data set")
    rules = rules_of([model for (model, _), _ in rows])
    return make_part(title, labels, columns, rows, notes, rules=rules, ours=ours)


# The value columns of the paper's tables, and the benchmark of each in either place.

Place = Literal["world", "folders"]
"""The place where a benchmark was run: the embedded world, or folders of real data."""
PLACES: tuple[Place, ...] = ("world", "folders")


@dataclass(frozen=True)
class ValueColumn:
    """A value column of a table.

    Attributes:
        key: the name of the column in the paper's numbers.
        group: the header printed above adjacent columns of the same group.
        metric: the metric of our results; ``None`` is the mean over the other columns.
        world_name: the header for the embedded world, if its benchmark is a different one.
    """

    key: str
    name: str
    group: str = ""
    metric: str | None = None
    world: str | None = None
    folders: str | None = None
    world_name: str | None = None

    def header(self, place: Place) -> str:
        """Return the column's header for the results of a place."""
        return (self.world_name if place == "world" else None) or self.name

    def at(self, place: Place) -> MeasuredColumn:
        """Return the measured column for a place."""
        benchmark = None if self.metric is None else str(getattr(self, place))
        return MeasuredColumn(self.header(place), self.group, benchmark, self.metric)


def columns_of(
    columns: Mapping[str, Mapping[str, Any]], world: str | None, folders: str | None
) -> tuple[ValueColumn, ...]:
    """Return the columns in a table's configuration, ``{key: {name: ..., ...}}``.

    Args:
        world: default benchmark of the columns on the embedded world.
        folders: default benchmark of the columns on real data.
    """
    try:
        return tuple(
            ValueColumn(**{"key": key, "world": world, "folders": folders, **column})
            for key, column in columns.items()
        )
    except TypeError as error:
        raise UserError(f"table.columns: {error}") from error


# The paper's own numbers, ``coco_cf_<N>.json`` beside this file, as parts of a table.
#
# A value is a mean or [mean, standard deviation]; ``n`` is the number of seeds of the standard
# deviations.

TESTED = (
    "Underlines are recomputed from the printed means, standard deviations and 25 seeds. Every one "
    "agrees with the paper's; a bold cell has lost its own in the paper's text."
)


def mean_sd(value: float | list[float]) -> tuple[float, float]:
    """Return mean and standard deviation of a cell, ``nan`` if missing in the paper."""
    return (value[0], value[1]) if isinstance(value, list) else (value, math.nan)


def published_part(
    name: str,
    title: str,
    labels: Mapping[str, str],
    columns: tuple[ValueColumn, ...],
    baseline: str | None = None,
) -> Part:
    """Lay out the paper's numbers as the paper did.

    Values better than the baseline by the paper's test are underlined. The test is recomputed from
    mean, standard deviation and n, as bold cells lose their underline in the paper's extracted
    text.

    Args:
        labels: {key of a row: header}, for the columns that name a row.
        baseline: the ``model`` of the row that the others are tested against; ``None`` for no test.
    """
    paper = published(name)
    position = {key: i for i, key in enumerate(paper["columns"])}
    base = next((row for row in paper["rows"] if row.get("model") == baseline), None)

    def cell(column: ValueColumn, row: Mapping[str, Any]) -> Entry:
        at = position[column.key]
        rivals = [r for r in paper["rows"] if r.get("pretrained") == row.get("pretrained")]
        best = max(mean_sd(other["values"][at])[0] for other in rivals)
        rival = base["values"][at] if base is not None and row.get("cf_percent") else None
        n, (mean, sd) = paper.get("n", 0), mean_sd(row["values"][at])
        numbers = {"value": mean / 100}
        sub, p = "", math.nan
        if not math.isnan(sd):
            numbers |= {"sd": sd / 100, "n": n}
            sub = f"{sd:g}"
        if rival is not None and n:
            p = welch(SeedSummary(mean, sd, n), SeedSummary(*mean_sd(rival), n))
            numbers["p_independent"] = p
        bold = mean == best and len(rivals) > 1
        return Entry(f"{mean:.2f}", sub, bold=bold, underlined=p <= ALPHA, numbers=numbers)

    rows = [(tuple(label_text(key, row.get(key)) for key in labels), row) for row in paper["rows"]]
    return make_part(
        title,
        [*labels.values()],
        [Column(column.name, partial(cell, column), column.group) for column in columns],
        rows,
        (paper["note"], *((TESTED,) if base is not None else ())),
        rules=rules_of([names[0] for names, _ in rows]) if "pretrained" in labels else (),
        ours=False,
    )
