"""Results of models on compositional tests, beside published numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypedDict

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.types import CLUSTER
from cfaug.report.arm_results import ArmResults, Runs, require_one_test
from cfaug.report.arm_table import MeasuredCell, print_cell
from cfaug.report.comparison import measures
from cfaug.report.document import Column, Document, Entry, make_part, rules_of
from cfaug.report.items import read_items
from cfaug.report.page import DASH, PERCENT
from cfaug.report.paper_tables import PaperTable, published
from cfaug.report.results import Cell, name_part
from cfaug.stats.cluster_tests import standard_error
from cfaug.stats.item_tests import describe_resolution

PARTS = "category"
"""The key of ``by`` that names the parts of a test."""


@dataclass(frozen=True)
class CompositionalTest:
    """One compositional test.

    Args:
        benchmark: the name of the test in results.
        scores: {printed name: metric} over the whole test.
        parts: the metric to show by category, one row each; ``None`` for no parts.
    """

    benchmark: str
    scores: Mapping[str, str]
    parts: str | None = None


class RequiredTestSettings(TypedDict):
    """Required settings of every test; see ``CompositionalTest``."""

    benchmark: str
    scores: Mapping[str, str]


class SetSettings(RequiredTestSettings, total=False):
    """The settings of a test, arguments of ``CompositionalTest``."""

    parts: str | None


@dataclass(frozen=True, kw_only=True)
class CompositionalTable(PaperTable):
    """A row per test and score, a column per model; then columns of published numbers.

    Args:
        sets: {printed name: settings of ``CompositionalTest``}.
        models: {printed name: ``experiment/arm`` or ``weights/NAME``}; ``None`` uses all below
            ``paths.runs`` with results of one of the tests.
        references: names of the columns of published numbers to show; ``None`` for all.
    """

    sets: Mapping[str, SetSettings]
    models: Mapping[str, str] | None = None
    references: Sequence[str] | None = None
    _references: Mapping[Cell, Mapping[str, tuple[float, str]]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        table = published(self.name)
        shown = table["columns"] if self.references is None else self.references
        unknown = [name for name in shown if name not in table["columns"]]
        if unknown:
            raise UserError(
                f"table.references: no published column is called {unknown[0]!r}: choose from "
                f"{', '.join(table['columns'])}"
            )
        at = {name: table["columns"].index(name) for name in shown}
        values = {
            (name_part(row["benchmark"], row["by"]), row["metric"]): {
                name: (row["values"][i], row["sources"][i])
                for name, i in at.items()
                if row["values"][i] is not None
            }
            for row in table["rows"]
        }
        object.__setattr__(self, "_references", values)

    def build(self, runs: Runs) -> Document:
        """Return our numbers and the published ones, test by test."""
        try:
            sets = {name: CompositionalTest(**settings) for name, settings in self.sets.items()}
        except TypeError as error:
            raise UserError(f"table.sets of {self.name}: {error}") from error
        benchmarks = {test.benchmark for test in sets.values()}
        if self.models is None:
            folders = sorted({folder.parent for folder in runs.root.glob("*/*/seed=*")})
            known = [folder.relative_to(runs.root).as_posix() for folder in folders]
            arms = {name: runs.arm(name) for name in known}
            arms = {
                name: arm
                for name, arm in arms.items()
                if any(row.benchmark in benchmarks for row in arm.rows)
            }
        else:
            arms = {printed: runs.arm(name) for printed, name in self.models.items()}
        self.require(arms, *(f"results of {test.benchmark}" for test in sets.values()))
        require_one_test(self.name, arms.items(), benchmarks)
        rows = [
            ((name, label), cell)
            for name, test in sets.items()
            for label, cell in self._cells(test, arms)
        ]
        names = published(self.name)["columns"] if self.references is None else self.references
        shown = [
            name
            for name in names
            if any(name in self._references.get(cell, {}) for _, cell in rows)
        ]
        every = [row for arm in arms.values() for row in arm.rows]

        def ours(arm: ArmResults, cell: Cell) -> Entry:
            same = measures([row for row in every if row.cell == cell])
            measure = next(iter(same.values()), PERCENT)
            return print_cell(MeasuredCell(arm.values(cell)), "", measure)

        def theirs(name: str, cell: Cell) -> Entry:
            references = self._references.get(cell, {})
            if name not in references:
                return Entry(DASH)
            value, source = references[name]
            return Entry(f"{value:.2f}", above=(source,), numbers={"value": value / 100})

        notes = [published(self.name)["note"]] if shown else []
        part = make_part(
            self.paper,
            ("Test", "Score"),
            [
                *(Column(name, partial(ours, arm), "Ours") for name, arm in arms.items()),
                *(Column(name, partial(theirs, name), "Reference") for name in shown),
            ],
            rows,
            (*notes, *self._resolutions(runs, arms, sets)),
            rules=rules_of([labels[0] for labels, _ in rows]),
        )
        return self.document(part)

    def _cells(
        self, test: CompositionalTest, arms: Mapping[str, ArmResults]
    ) -> Iterator[tuple[str, Cell]]:
        """Yield the rows of a test with results of any model, or all if ``partial``."""
        rows = [row for arm in arms.values() for row in arm.rows if row.benchmark == test.benchmark]
        if not rows and not self.partial:
            return
        known = {row.cell for row in rows}
        for label, metric in test.scores.items():
            if (test.benchmark, metric) in known or self.partial:
                yield label, (test.benchmark, metric)
        if test.parts is None:
            return
        # Categories with results, those of the published numbers first.
        ours = dict.fromkeys(row.by[PARTS] for row in rows if set(row.by) == {PARTS})
        theirs = [
            row["by"][PARTS]
            for row in published(self.name)["rows"]
            if row["benchmark"] == test.benchmark and row["by"]
        ]
        for part in dict.fromkeys([*(name for name in theirs if name in ours), *ours]):
            yield f"{test.parts}: {part}", (name_part(test.benchmark, {PARTS: part}), test.parts)

    def _resolutions(
        self, runs: Runs, arms: Mapping[str, ArmResults], sets: Mapping[str, CompositionalTest]
    ) -> Iterator[str]:
        """Yield a sentence per test on the difference it can show, by the first model's items.

        The score is that of the parts if the test has parts, otherwise its first score.
        """
        folders = [folder for arm in arms.values() for folder in runs.folders(arm.name)]
        for name, test in sets.items():
            metric = test.parts or next(iter(test.scores.values()))
            tables = (read_items(folder, test.benchmark) for folder in folders)
            items = next((table for table in tables if table is not None), None)
            if items is None:
                continue
            values = items.metric(metric)
            counts = ~np.isnan(values)
            if not counts.any():
                continue
            clusters = np.asarray(items.columns[CLUSTER])[counts]
            resolution = describe_resolution(
                standard_error(values[counts], clusters), int(counts.sum()), len(set(clusters))
            )
            yield f"{name}, {metric}: {resolution}."
