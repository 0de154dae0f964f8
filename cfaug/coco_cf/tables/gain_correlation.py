"""Gains against label frequency, with the paper's p and one over whole data sets (Table 6)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfaug.coco_cf.label_frequency import FILE
from cfaug.coco_cf.label_frequency_metrics import Association, associate
from cfaug.coco_cf.tables.columns import PLACES, Place, ValueColumn, columns_of
from cfaug.core.errors import UserError
from cfaug.report.arm_results import MissingError, Runs, require_one_test
from cfaug.report.document import Document, Entry, Part
from cfaug.report.numbers import DASH, p_text
from cfaug.report.published import published
from cfaug.report.results import read_record
from cfaug.stats.significance import summarise

CORRELATION = (
    "Pearson r", "p, every gain counted as independent", "p, whole data sets exchanged",
    "Spearman r", "Pearson r with log10 frequency", "p of it, whole data sets exchanged",
)  # fmt: skip


@dataclass(frozen=True)
class GainTable:
    """A row per data set: the pairs that alter one of its classes, and each mixture's gain.

    Args:
        name: the name of the paper's numbers and of the output files.
        title: the title above the table.
        paper: the source of the paper's numbers, the title of their part.
        columns: {data set: settings of ``Column``}.
        before: the ``experiment/arm`` from which gains are measured.
        mixtures: {printed name: ``experiment/arm``}, one for each of the paper's mixtures.
        commands: the commands that make the runs and their results.
        notes: notes printed below everything.
        partial: whether to print dashes for missing values.
    """

    name: str
    title: str
    paper: str
    columns: Mapping[str, Mapping[str, Any]]
    before: str
    mixtures: Mapping[str, str]
    commands: Sequence[str]
    notes: Sequence[str] = ()
    partial: bool = False

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours for every place where they were measured.

        Raises:
            MissingError: if runs, results or frequencies are missing, unless ``partial``.
            UserError: if settings or files are invalid.
        """
        columns = tuple(c for c in columns_of(self.columns, None, None) if c.metric)
        found = published(self.name)
        theirs = np.array([row["values"] for row in found["rows"]], np.float64)
        names = [row["dataset"] for row in found["rows"]]
        parts = self._parts(self.paper, names, theirs[:, 0], theirs[:, 1:], ours=False)
        missing: list[str] = []
        for place in PLACES:
            frequency, gains, lacks = self._measure(runs, columns, place)
            if len(lacks) == len(columns) * (len(self.mixtures) + 2):
                continue  # no measurements there
            missing += lacks
            heads = [c.header(place) for c in columns]
            parts += self._parts(f"Ours: {self._where(place)}", heads, frequency, gains, ours=True)
        if (missing or len(parts) == 2) and not self.partial:
            none = [f"classification results of {arm}" for arm in self._arms]
            raise MissingError(self.name, missing or none, self.commands)
        return Document(self.name, self.title, tuple(parts), (found["note"], *self.notes))

    @property
    def _arms(self) -> list[str]:
        return [self.before, *self.mixtures.values()]

    def _where(self, place: Place) -> str:
        return "the embedded world ShapeScapes" if place == "world" else "real data"

    def _measure(
        self, runs: Runs, columns: Sequence[ValueColumn], place: Place
    ) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Return frequencies (D,), gains in points (D, mixtures), and names of missing values."""
        counts = self._counts(runs)
        asked = {str(getattr(column, place)) for column in columns}
        require_one_test(self.name, [(name, runs.arm(name)) for name in self._arms], asked)
        frequency = np.full(len(columns), np.nan)
        means = np.full((len(columns), len(self._arms)), np.nan)
        lacks = []
        for i, column in enumerate(columns):
            benchmark = str(getattr(column, place))
            if benchmark in counts:
                frequency[i] = counts[benchmark]
            else:
                lacks.append(f"the label frequency of {benchmark}")
            for j, name in enumerate(self._arms):
                values = runs.arm(name).values((benchmark, str(column.metric)))
                if values:
                    means[i, j] = 100 * summarise(list(values.values())).mean
                else:
                    lacks.append(f"{benchmark} of {name}")
        return frequency, means[:, 1:] - means[:, :1], lacks

    def _counts(self, runs: Runs) -> dict[str, int]:
        """Return the label frequencies in the counterfactual source that the mixtures share.

        Raises:
            UserError: if two runs counted different pairs.
        """
        found: dict[str, int] = {}
        for name in self.mixtures.values():
            for folder in runs.folders(name):
                file = folder / FILE
                counted = read_record(file).get("frequency", {}) if file.exists() else {}
                for benchmark, count in counted.items():
                    if found.setdefault(benchmark, count) != count:
                        raise UserError(
                            f"{file}: {benchmark} has {count} pairs, another run {found[benchmark]}"
                        )
        return found

    def _parts(
        self,
        title: str,
        names: Sequence[str],
        frequency: np.ndarray,
        gains: np.ndarray,
        *,
        ours: bool,
    ) -> list[Part]:
        # The paper's order is by gain; ours is by frequency, as some gains may be missing.
        order = np.argsort(-np.nan_to_num(frequency), kind="stable") if ours else range(len(names))
        rows = tuple(
            (
                (names[i],),
                (_count(frequency[i]), *(_gain(gain) for gain in gains[i])),
            )
            for i in order
        )
        columns = ("Label frequency", *(f"Δ {mixture}" for mixture in self.mixtures))
        found = [Part(title, ("Data set",), (), columns, rows, ours=ours)]
        known = np.isfinite(frequency) & np.isfinite(gains).all(axis=1)
        cells = _correlation(associate(frequency[known], gains[known])) if known.any() else ()
        if cells:
            notes = _describe(frequency[known], gains[known])
            found.append(
                Part(f"{title}: correlation", ("",), (), CORRELATION, ((("",), cells),),
                     notes=notes, ours=ours)
            )  # fmt: skip
        return found


def _describe(frequency: np.ndarray, gains: np.ndarray) -> tuple[str, ...]:
    """Return notes on the data of the correlation, or the reason why there is none."""
    count = len(frequency)
    found = [f"Frequency and gains of {count} data set{'s' * (count > 1)}; two-sided p."]
    if count < 3:
        found.append("There is no correlation of fewer than 3 data sets.")
    elif np.ptp(frequency) == 0:
        found.append("There is no correlation: every data set has the same label frequency.")
    elif np.ptp(gains) == 0:
        found.append("There is no correlation: every gain is the same.")
    elif (frequency == 0).any():
        found.append("A label frequency is 0: log10 is of frequency + 1.")
    return tuple(found)


def _count(value: float) -> Entry:
    return Entry(DASH) if math.isnan(value) else Entry(f"{value:,.0f}", numbers={"value": value})


def _gain(value: float) -> Entry:
    return Entry(DASH) if math.isnan(value) else Entry(f"{value:+.2f}", numbers={"value": value})


def _correlation(found: Association) -> tuple[Entry, ...]:
    values = (
        (found.r, False), (found.naive_p, True), (found.permutation_p, True),
        (found.spearman, False), (found.log_r, False), (found.log_permutation_p, True),
    )  # fmt: skip
    return tuple(
        Entry(DASH)
        if math.isnan(value)
        else Entry(p_text(value) if is_p else f"{value:.3f}", numbers={"value": value})
        for value, is_p in values
    )
