"""Figures 7 to 9 of LANCE: edits, accuracy and drops by class; one intervention on every class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cfaug.core.rng import generator
from cfaug.core.validation import check_fields
from cfaug.lance.stress_items import EDITED, StressItems
from cfaug.lance.tables.answers import StressTable
from cfaug.report.arm_results import Runs
from cfaug.report.document import BarPlot, Document, Entry, Part
from cfaug.report.numbers import DASH, percent, points
from cfaug.stats.item_tests import cluster_bootstrap

Shows = Literal["edits", "accuracy", "change"]

AXES: Mapping[str, str] = {
    "edits": "edits", "accuracy": "acc@1 on the edits, %",
    "change": "change of acc@1 from the photo to its edit, points",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ClassFigure(StressTable):
    """A row per class, a column per model.

    Args:
        shows: the values to show: the number of ``edits`` (Figure 7), ``accuracy`` on them (Figure
            8), or its ``change`` from each edit's own photo (Figure 9).
        kind: the kind of the edits to use; ``None`` uses all.
        after: the new words of the edits to use; ``None`` uses all.
        part: the set of edits.

    Raises:
        UserError: if ``shows`` is invalid.
    """

    shows: Shows
    kind: str | None = None
    after: str | None = None
    part: str = EDITED

    def __post_init__(self) -> None:
        check_fields(self, "table")

    def build(self, runs: Runs) -> Document:
        """Return the table and its bars.

        Raises:
            MissingError: if there is no such edit, unless ``partial``.
            UserError: if items cannot be read.
        """
        found = {
            name: [by for _, one in own if (by := self._by_class(one))]
            for name, own in self.read(runs).items()
        }
        found = {name: own for name, own in found.items() if own}
        self.require(found, f"answers to {self._what()}")
        if not found:
            return self.document()
        classes = list(dict.fromkeys(label for own in found.values() for by in own for label in by))
        rows = [
            ((label,), tuple(self._cell([by[label] for by in own if label in by])
                             for own in found.values()))
            for label in classes
        ]  # fmt: skip
        part = Part(
            title=f"Ours: {self._what()}, {AXES[self.shows]}",
            labels=("Class",),
            groups=(),
            columns=tuple(found),
            rows=tuple(rows),
            notes=(
                "Brackets: 95 % interval of a bootstrap over photos, uncorrected. With several "
                "checkpoints: ± over them.",
            ),
        )
        unit = "edits" if self.shows == "edits" else "fraction"
        plot = BarPlot("", AXES[self.shows], self._bars(found, classes), tuple(found), unit=unit)
        return self.document(part, bars=[plot])

    def _what(self) -> str:
        kind = f" of kind {self.kind}" if self.kind else ""
        return f"edits{kind}{f' to {self.after!r}' if self.after else ''}"

    def _by_class(self, one: StressItems) -> dict[str, _Measured]:
        """Return the measured values of each class, in order of names."""
        if self.part not in one.sets:
            return {}
        own: dict[str, list[int]] = {}
        for row in one.rows(self.part).tolist():
            kind, after = one.texts("kind")[row], one.texts("after")[row]
            if self.kind in (None, kind) and (
                self.after is None or after.lower() == self.after.lower()
            ):
                own.setdefault(one.texts("class")[row], []).append(row)
        return {label: self._measure(one, own[label], label) for label in sorted(own)}

    def _measure(self, one: StressItems, rows: Sequence[int], label: str) -> _Measured:
        if self.shows == "edits":
            return _Measured(float(len(rows)), math.nan, math.nan, len(rows))
        hits, photo = one.items.metric("acc1")[rows], one.items.metric("photo_acc1")[rows]
        values = hits if self.shows == "accuracy" else hits - photo
        photos = [one.texts("photo")[row] for row in rows]
        found = cluster_bootstrap(values, photos, generator(0, "classes", label))
        return _Measured(found.mean, found.low, found.high, len(rows))

    def _cell(self, found: Sequence[_Measured]) -> Entry:
        if not found:
            return Entry(DASH)
        mean, low, high = _joined(found)
        if self.shows == "edits":
            return Entry(f"{mean:g}", numbers={"value": mean})
        text = percent if self.shows == "accuracy" else points
        between = f"[{text(low, 1)}, {text(high, 1)}]" if len(found) == 1 and low == low else ""
        numbers = {"value": mean, "n": float(sum(one.edits for one in found))}
        sub = percent((high - low) / 2, 1) if len(found) > 1 else ""
        return Entry(text(mean, 1), sub=sub, small=between, numbers=numbers)

    def _bars(
        self, found: Mapping[str, Sequence[Mapping[str, _Measured]]], classes: Sequence[str]
    ) -> dict[str, list[tuple[str, float | None, float | None, float | None]]]:
        bars: dict[str, list[tuple[str, float | None, float | None, float | None]]] = {}
        for label in classes:
            for name, own in found.items():
                there = [by[label] for by in own if label in by]
                numbers = _joined(there) if there else (math.nan,) * 3
                mean, low, high = (None if math.isnan(one) else one for one in numbers)
                bars.setdefault(label, []).append((name, mean, low, high))
        return bars


@dataclass(frozen=True)
class _Measured:
    """One class and checkpoint: a value, its interval, and its number of edits."""

    value: float
    low: float
    high: float
    edits: int


def _joined(found: Sequence[_Measured]) -> tuple[float, float, float]:
    """Return the mean with its interval, or for several checkpoints mean and spread."""
    values = [one.value for one in found]
    mean = float(np.mean(values))
    if len(found) == 1:
        return mean, found[0].low, found[0].high
    sd = float(np.std(values, ddof=1))
    return mean, mean - sd, mean + sd
