"""Tables 3 and 6 and Figures 4 to 6 of XMAI: the effects of its settings.

The settings of a folder of sets are read from its record, not from its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from cfaug.core.errors import UserError
from cfaug.core.read_with import GIVEN, ReadWith
from cfaug.report.arm_results import Runs
from cfaug.report.document import Column, Curve, Document, Entry, Part, make_part
from cfaug.report.items import Items
from cfaug.report.page import DASH
from cfaug.report.paper_tables import published
from cfaug.xmai.entailment_items import EntailmentItems
from cfaug.xmai.tables.answers import (
    DIGITS,
    RELEVANCE,
    RETRIEVAL,
    Checkpoints,
    MeasureColumn,
    PairTable,
    Timing,
    known_columns,
    read_settings,
    read_timings,
)
from cfaug.xmai.tables.entailment import SCORES
from cfaug.xmai.text_pair_items import InsertionItems, TextPairItems

TASKS: Mapping[str, tuple[type[TextPairItems], Sequence[MeasureColumn]]] = {
    "insertion": (InsertionItems, (*RETRIEVAL, *RELEVANCE)),
    "entailment": (EntailmentItems, SCORES),
}
"""{benchmark, or the end of its name: (class of its items, measured columns)}."""

Setting = Mapping[str, float]
"""{printed name of a setting: number} of one folder."""


@dataclass(frozen=True, kw_only=True)
class Ablation(PairTable):
    """A table or figure over settings; other arguments as for ``PairTable``.

    Args:
        settings: {name: key of the folders' ``run.json``}, every relevant setting.
        held: {name: number}, the value of each setting when it is not varied.
    """

    settings: Mapping[str, str]
    held: Mapping[str, float] = field(default_factory=dict)

    def variants(self, checkpoints: Checkpoints) -> list[tuple[Setting, str]]:
        """Return the settings of each method that has them, sorted by settings."""
        found = []
        for method in self.named(checkpoints).values():
            sources = checkpoints[0].sources(method)
            settings = [read_settings(source, self.settings) for source in sources]
            first = settings[0]
            if first is not None and all(setting == first for setting in settings):
                found.append((first, method))
        return sorted(found, key=lambda one: [*one[0].values()])


@dataclass(frozen=True, kw_only=True)
class AblationTable(Ablation):
    """A row per setting (Tables 3 and 6).

    Args:
        shown: the settings that name a row; the others are held fixed.
        timing: file of ``benchmarks/insertion.py``, for a column of seconds; ``None`` for no
            column.
        timed: the method of the timing file to show.
    """

    shown: Sequence[str]
    timing: str | None = None
    timed: str = "xmai"

    read_with: ClassVar[ReadWith] = {"timed": {"timing": GIVEN}}

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers and ours.

        Raises:
            MissingError: if no folder with these settings has answers, unless ``partial``.
        """
        kind, columns = TASKS["insertion"]
        found = self.read(runs, kind)
        variants = {model: self._rows(own) for model, own in found.items()}
        variants = {model: own for model, own in variants.items() if own}
        self.require(
            variants, f"answers to benchmark={self.benchmark} about folders made with "
            f"{', '.join(self.settings.values())}",
        )  # fmt: skip
        known = known_columns(columns, found)
        times = [] if self.timing is None else read_timings(self.timing)
        parts = [
            self._part(model, found[model], own, known, times) for model, own in variants.items()
        ]
        return self.document(self._theirs(), *parts)

    def _rows(self, checkpoints: Checkpoints) -> list[tuple[Setting, str]]:
        """Return the shown settings of each method with the fixed settings."""
        held = {name: value for name, value in self.held.items() if name not in self.shown}
        return [
            ({name: settings[name] for name in self.shown}, method)
            for settings, method in self.variants(checkpoints)
            if all(settings[name] == value for name, value in held.items())
        ]

    def _theirs(self) -> Part:
        found = published(self.name)
        labels = [name for name in found["rows"][0] if name != "values"]

        def cell(at: int, row: Mapping[str, Any]) -> Entry:
            return _printed(row["values"][at])

        return make_part(
            self.paper,
            [*map(_letter, labels)],
            [Column(name, partial(cell, at)) for at, name in enumerate(found["columns"])],
            [(tuple(_number(row[name]) for name in labels), row) for row in found["rows"]],
            [found["note"]],
            ours=False,
        )

    def _part(
        self,
        model: str,
        checkpoints: Checkpoints,
        variants: Sequence[tuple[Setting, str]],
        columns: Sequence[MeasureColumn],
        times: Sequence[Timing],
    ) -> Part:
        methods = [method for _, method in variants]
        measured = [column.column(checkpoints, methods) for column in columns]

        def cell(column: Column[str | None], row: tuple[Setting, str]) -> Entry:
            return column.cell(row[1])

        cells = [Column(one.name, partial(cell, one), one.group) for one in measured]
        if times:
            cells.append(Column("Time (s) ↓", lambda row: self._time(row[0], times)))
        machines = ", ".join(dict.fromkeys(time.machine for time in times))
        return make_part(
            f"Ours: {model}",
            [*map(_letter, self.shown)],
            cells,
            [
                (tuple(map(_number, settings.values())), (settings, method))
                for settings, method in variants
            ],
            (f"Seconds a caption on {machines}.",) if times else (),
        )

    def _time(self, settings: Setting, times: Sequence[Timing]) -> Entry:
        """Return the seconds in the file's row with these settings."""
        for time in times:
            own = {name: time.settings.get(name) for name in settings}
            if time.method == self.timed and all(
                own[name] is not None and _number(value) == own[name]
                for name, value in settings.items()
            ):
                numbers = {"value": time.seconds, "n": float(time.captions)}
                return Entry(f"{time.seconds:.{DIGITS}f}", numbers=numbers)
        return Entry(DASH)


@dataclass(frozen=True, kw_only=True)
class AblationFigure(Ablation):
    """The effect of one setting while the others stay fixed (Figures 4 to 6).

    Args:
        vary: the settings to vary, each with its own line.
        x_title: the title of the horizontal axis.
        tasks: {printed name: end of the benchmark's name}, in order, with a panel for each metric.
        metrics: headers, as in tables, of the numbers to show; ``None`` for all.
    """

    vary: Sequence[str]
    x_title: str
    tasks: Mapping[str, str] = field(default_factory=lambda: {"Retrieval": "insertion"})
    metrics: Sequence[str] | None = None

    read_with: ClassVar[ReadWith] = {"benchmark": ()}  # those of ``tasks``

    def build(self, runs: Runs) -> Document:
        """Return a panel for each task, model and metric.

        Raises:
            MissingError: if no folders that differ in one setting have answers, unless ``partial``.
        """
        curves: list[Curve] = []
        for title, benchmark in self.tasks.items():
            kind, columns = _task(benchmark)
            for model, own in self._answers_of(runs, benchmark, kind).items():
                curves += self._curves(f"{title}, {model}", own, columns)
        self.require(
            curves, f"answers to benchmark={' and '.join(self.tasks.values())} about folders that "
            f"differ only in {' or '.join(self.vary)}",
        )  # fmt: skip
        return self.document(curves=curves)

    def _answers_of(
        self, runs: Runs, benchmark: str, kind: type[TextPairItems]
    ) -> dict[str, Checkpoints]:
        from cfaug.report.paper_tables import read_answers

        def wrap(name: str, items: Items) -> TextPairItems:
            return kind(name, items)

        found = read_answers(runs.root, benchmark, self.models, wrap)
        return {name: [one for _, one in own] for name, own in found.items()}

    def _curves(
        self, title: str, checkpoints: Checkpoints, columns: Sequence[MeasureColumn]
    ) -> list[Curve]:
        series = {name: self._line(name, checkpoints) for name in self.vary}
        lines = {name: own for name, own in series.items() if len(own) > 1}
        curves = []
        for column in known_columns(columns, {title: checkpoints}) if lines else ():
            header = " ".join((column.group, column.title)).strip()
            if self.metrics is not None and header not in self.metrics:
                continue
            points = {
                _letter(name): {
                    x: _by_checkpoint(column, checkpoints, method) for x, method in own.items()
                }
                for name, own in lines.items()
            }
            curves.append(Curve(f"{title}: {header}", self.x_title, header, points, unit=""))
        return curves

    def _line(self, name: str, checkpoints: Checkpoints) -> dict[float, str]:
        """Return {value of a setting: method}, with every other setting at its default."""
        return {
            settings[name]: method
            for settings, method in self.variants(checkpoints)
            if all(settings[other] == value for other, value in self.held.items() if other != name)
        }


def _by_checkpoint(
    column: MeasureColumn, checkpoints: Checkpoints, method: str
) -> dict[int, float]:
    return {
        number: column.measure([one], method).numbers["value"]
        for number, one in enumerate(checkpoints)
    }


def _task(benchmark: str) -> tuple[type[TextPairItems], Sequence[MeasureColumn]]:
    """Return the items' class and columns of a benchmark, found by the end of its name."""
    for name, task in TASKS.items():
        if benchmark.endswith(name):
            return task
    raise UserError(f"table.tasks: {benchmark!r} is invalid: choose from {', '.join(TASKS)}")


def _letter(name: str) -> str:
    """Return a setting in the paper's notation.

    >>> _letter("lambda_2"), _letter("k")
    ('λ2', 'k')
    """
    return name.replace("lambda_", "λ")


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _printed(value: float) -> Entry:
    return Entry(f"{value:.{DIGITS}f}", numbers={"value": value})
