"""Tables of arms by benchmarks: Tables 3, 4, 5, 11 and 12 of COCO-Counterfactuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cfaug.coco_cf.tables.columns import PLACES, Place, ValueColumn, columns_of
from cfaug.coco_cf.tables.published import published_part
from cfaug.core.errors import UserError
from cfaug.report.arm_results import ArmResults, MissingError, Runs
from cfaug.report.document import Document
from cfaug.report.measured import ArmRow, ArmTablePart, TableSettings


@dataclass(frozen=True)
class ArmsTable:
    """A table with a row per arm and a column per benchmark and metric.

    Args:
        name: the name of the paper's numbers and of the output files.
        title: the title above the table.
        paper: the source of the paper's numbers, the title of their part.
        labels: {key that names a row: header}, with keys ``pretrained``, ``model``, ``train``,
            ``cf``, ``cf_percent``; ``null`` omits a column.
        columns: {the paper's column: settings of ``Column``}; a column without a metric is the mean
            of the others.
        rows: settings of ``ArmRow``, in order.
        commands: the commands that make the runs and their results.
        world: default benchmark of the columns on the embedded world.
        folders: default benchmark of the columns on real data.
        baseline: the ``model`` of the row that is the paper's own baseline.
        controls: {place: settings of ``ArmRow``}, a separate part of controls that are not in the
            paper, shown if any of its runs that is not in ``rows`` has results.
        curve: whether to draw the mean against the share of counterfactual examples.
        notes: notes printed below everything.
        partial: whether to print dashes for missing values.
    """

    name: str
    title: str
    paper: str
    labels: Mapping[str, str | None]
    columns: Mapping[str, Mapping[str, Any]]
    rows: Sequence[Mapping[str, Any]]
    commands: Sequence[str]
    world: str | None = None
    folders: str | None = None
    baseline: str | None = None
    controls: Mapping[Place, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    curve: bool = False
    notes: Sequence[str] = ()
    partial: bool = False

    @property
    def named_by(self) -> dict[str, str]:
        """The keys that name a row, with their headers."""
        return {key: header for key, header in self.labels.items() if header is not None}

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours for every place where they were measured.

        Raises:
            MissingError: if runs or results are missing, unless ``partial``.
            UserError: if settings or files are invalid.
        """
        columns = columns_of(self.columns, self.world, self.folders)
        theirs = published_part(self.name, self.paper, self.named_by, columns, self.baseline)
        ours = [
            self._part(columns, place, rows)
            for place in PLACES
            if (rows := self._read_rows(runs, columns, place))
        ]
        if not ours:
            raise MissingError(self.name, [row.run for row in self._rows()], self.commands)
        beside = [
            self._part(columns, place, rows, "Ours, beside real data of the same size")
            for place in PLACES
            if (rows := self._read_controls(runs, columns, place))
        ]
        for one in (*ours, *beside):
            one.require_all()
            one.require_one_test()
        return Document(
            name=self.name,
            title=self.title,
            parts=(theirs, *(one.part() for one in (*ours, *beside))),
            notes=tuple(self.notes),
            curves=tuple(one.curve() for one in ours) if self.curve else (),
        )

    def _part(
        self,
        columns: Sequence[ValueColumn],
        place: Place,
        rows: list[tuple[ArmRow, ArmResults]],
        title: str = "Ours",
    ) -> ArmTablePart:
        return ArmTablePart(
            table=TableSettings(self.name, self.named_by, self.commands, self.partial),
            columns=[column.at(place) for column in columns],
            rows=rows,
            title=title,
            where=_where(place, [arm for _, arm in rows]),
        )

    def _rows(self) -> list[ArmRow]:
        return self._read("rows", self.rows)

    def _read(self, name: str, rows: Sequence[Mapping[str, Any]]) -> list[ArmRow]:
        try:
            return [ArmRow(**row) for row in rows]
        except TypeError as error:
            raise UserError(f"table.{name} of {self.name}: {error}") from error

    def _read_rows(
        self, runs: Runs, columns: Sequence[ValueColumn], place: Place
    ) -> list[tuple[ArmRow, ArmResults]]:
        """Return every row with its arm, if any arm has results in the place."""
        rows = [(row, runs.arm(row.run)) for row in self._rows()]
        found = _was_asked([arm for _, arm in rows], columns, place)
        return rows if found or (self.partial and place == PLACES[0]) else []

    def _read_controls(
        self, runs: Runs, columns: Sequence[ValueColumn], place: Place
    ) -> list[tuple[ArmRow, ArmResults]]:
        """Return the rows of the part of controls, if any control has results."""
        shown = {row.run for row in self._rows()}
        wanted = self._read("controls", self.controls.get(place, ()))
        rows = [(row, runs.arm(row.run)) for row in wanted]
        own = [arm for row, arm in rows if row.run not in shown]
        return rows if _was_asked(own, columns, place) else []


def _was_asked(arms: Sequence[ArmResults], columns: Sequence[ValueColumn], place: Place) -> bool:
    asked = {getattr(column, place) for column in columns if column.metric} - {None}
    return any(row.benchmark in asked for arm in arms for row in arm.rows)


def _where(place: Place, arms: Sequence[ArmResults]) -> str:
    """Return the embedded world's name for a title, with the style of the first run with one."""
    if place == "folders":
        return ""
    for arm in arms:
        for record in arm.records.values():
            style = (record.get("identity") or {}).get("data.world.style")
            if style is not None:
                return f" of the embedded world ShapeScapes (style {style})"
    return " of the embedded world ShapeScapes"
