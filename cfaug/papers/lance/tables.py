"""LANCE's Tables 2 to 4 and Figures 7 to 9: accuracy, the perturber, ratings, classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cfaug.annotation.ratings import FILE, ratings_part, read_summary
from cfaug.core.errors import UserError
from cfaug.core.types import ORIGINAL, RECONSTRUCTION
from cfaug.core.validation import check_fields
from cfaug.data.shards.shards import FOLDER, read_all_edits
from cfaug.editing.edit_checks import OVERALL, EditMeasures, measure_edits
from cfaug.evaluation.stress.stress_items import (
    EDITED,
    EDITED_PHOTOS,
    Drop,
    StressItems,
    compare_drops,
)
from cfaug.report.arm_results import Runs
from cfaug.report.document import BarPlot, Column, Document, Entry, make_part, text_column
from cfaug.report.page import DASH, p_text, percent, points
from cfaug.report.paper_tables import ModelsTable, PaperTable, published
from cfaug.stats.cluster_tests import cluster_mean
from cfaug.stats.significance import summarise

# Table 2 of LANCE: accuracy on photos, reconstructions and edits, and paired tests.

COMMANDS = (
    "python generate.py recipe=lance data.source=PHOTOS paths.shards=shards/lance",
    "python generate.py recipe=lance_r data.source=PHOTOS paths.shards=shards/lance_r",
    "python evaluate.py model=timm weights=resnet50 benchmark=stress benchmark.data=shards/lance "
    "benchmark.random=shards/lance_r",
)


@dataclass(frozen=True, kw_only=True)
class StressTable(ModelsTable):
    """A table of the answers to a stress test; arguments as for ``ModelsTable``."""

    benchmark: str = "stress"
    commands: Sequence[str] = COMMANDS
    """the commands that make what it needs"""

    def read(self, runs: Runs) -> dict[str, list[tuple[Path, StressItems]]]:
        """Return each classifier's answers, one per checkpoint, with the checkpoint's folder."""
        return self.answers(runs, StressItems)


HITS = {"acc1": "acc@1", "acc5": "acc@5"}
UNPAIRED = (
    "Small: the change against Original by the paper's equation 3, over the photos that have an "
    "edit; sets differ in size. ± is over checkpoints."
)
PAIRED = (
    "Each image is compared with its own photo, which counts once per image. Interval: 95 %, "
    "over photos. p: a permutation that flips whole photos (two-sided), corrected by Holm over the "
    "sets of a checkpoint. McNemar's exact test treats edits of one photo as independent."
)


@dataclass(frozen=True, kw_only=True)
class AccuracyTable(StressTable):
    """A row per set, two columns per model.

    Args:
        sets: {printed name: set of the items}, in order.
        types: {printed name: the paper's name of that kind of set}.
        optional: printed names of sets that are left out if no model has answers about them.
    """

    sets: Mapping[str, str]
    types: Mapping[str, str]
    optional: Sequence[str] = ()

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours in the paper's layout and paired."""
        by_model = self.read(runs)
        self.require(by_model, "answers to a stress test")
        answers = {
            name: [items for _, items in checkpoints] for name, checkpoints in by_model.items()
        }
        paper = published(self.name)

        def cell(at: int, row: Mapping[str, Any]) -> Entry:
            value, change = row["values"][at], row["change"][at]
            small = "" if change is None else f"{change:+.1f}"
            numbers = {"value": value / 100, "n": paper["sizes"][row["set"]]}
            return Entry(f"{value:.2f}", small=small, numbers=numbers)

        headers = [(model, name) for model in paper["models"] for name in HITS.values()]
        theirs = make_part(
            self.paper,
            ("Test Set", "Type"),
            [Column(name, partial(cell, at), group) for at, (group, name) in enumerate(headers)],
            [((row["set"], row["type"]), row) for row in paper["rows"]],
            [paper["note"]],
            ours=False,
        )
        if not answers:
            return self.document(theirs)
        benchmarks = {
            part for checkpoints in answers.values() for items in checkpoints for part in items.sets
        }
        shown = [
            (printed, part)
            for printed, part in self.sets.items()
            if part in benchmarks or printed not in self.optional
        ]
        unpaired = make_part(
            "Ours",
            ("Test Set", "Type"),
            [
                Column(name, partial(_accuracy, checkpoints, hit), model)
                for model, checkpoints in answers.items()
                for hit, name in HITS.items()
            ],
            [((printed, self.types.get(printed, "")), part) for printed, part in shown],
            [UNPAIRED],
        )
        names = {part: name for name, part in self.sets.items()}
        rows = []
        for model, checkpoints in answers.items():
            for number, items in enumerate(checkpoints, 1):
                name = model if len(checkpoints) == 1 else f"{model}, {number}"
                rows += [
                    ((name, names.get(drop.name, drop.name)), drop)
                    for drop in compare_drops(items.items)
                ]
        title = "Ours, each image with its own photo"
        paired = make_part(title, ("Model", "Test Set"), DROP_COLUMNS, rows, [PAIRED])
        return self.document(theirs, unpaired, paired)


def _rows(items: StressItems, part: str) -> np.ndarray:
    """Return the rows of a set; for photos, only those with an edit."""
    rows = items.rows(part) if part in items.sets else np.zeros(0, np.int64)
    if part not in (ORIGINAL, RECONSTRUCTION):
        return rows
    return np.asarray(rows[np.array(items.texts("photos"))[rows] == EDITED_PHOTOS])


def _accuracy(checkpoints: Sequence[StressItems], hit: str, part: str) -> Entry:
    """Return the mean over checkpoints, and its change against the photos."""
    means, changes, images = [], [], 0
    for items in checkpoints:
        rows = _rows(items, part)
        if hit not in items.items.columns or not len(rows):
            continue
        hits = items.items.metric(hit)
        means.append(float(hits[rows].mean()))
        changes.append(means[-1] - float(hits[_rows(items, ORIGINAL)].mean()))
        images = len(rows)
    if not means:
        return Entry(DASH)
    summary = summarise(means)
    numbers = {"value": summary.mean, "n": float(images)}
    numbers |= {} if math.isnan(summary.sd) else {"sd": summary.sd}
    return Entry(
        percent(summary.mean),
        sub="" if math.isnan(summary.sd) else percent(summary.sd, 1),
        small="" if part == ORIGINAL else points(sum(changes) / len(changes)),
        numbers=numbers,
    )


def _paired_change(drop: Drop) -> Entry:
    mean = drop.paired.mean
    between = "" if math.isnan(mean.low) else f"[{_change(mean.high)}, {_change(mean.low)}]"
    numbers = {"value": -mean.mean, "n": drop.images}
    return Entry(_change(mean.mean), small=between, numbers=numbers)


def _change(drop: float) -> str:
    return points(0.0 - drop)  # 0.0 for no drop, not -0.0


DROP_COLUMNS: tuple[Column[Drop], ...] = (
    text_column("images", lambda drop: f"{drop.images:,}"),
    text_column("photos", lambda drop: f"{drop.paired.mean.clusters:,}"),
    text_column("photos", lambda drop: percent(drop.paired.before), "acc@1, %"),
    text_column("images", lambda drop: percent(drop.paired.after), "acc@1, %"),
    Column("paired", _paired_change, "change, points"),
    text_column("beyond reconstruction", lambda drop: _change(drop.net), "change, points"),
    text_column("McNemar", lambda drop: p_text(drop.paired.p_sign), "p"),
    text_column("permutation", lambda drop: p_text(drop.p), "p"),
    text_column("Holm", lambda drop: p_text(drop.p_holm), "p"),
)


# Figures 7 to 9 of LANCE: edits, accuracy and drops by class; one intervention on every class.

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

    shows: Literal["edits", "accuracy", "change"]
    kind: str | None = None
    after: str | None = None
    part: str = EDITED

    def __post_init__(self) -> None:
        check_fields(self, "table")

    def build(self, runs: Runs) -> Document:
        """Return the table and its bars."""
        by_model: dict[str, list[dict[str, _Measured]]] = {}
        for name, answers in self.read(runs).items():
            for _, items in answers:
                if values := self._by_class(items):
                    by_model.setdefault(name, []).append(values)
        kind = f" of kind {self.kind}" if self.kind else ""
        subject = f"edits{kind}{f' to {self.after!r}' if self.after else ''}"
        self.require(by_model, f"answers to {subject}")
        if not by_model:
            return self.document()
        bars: dict[str, list[tuple[str, float | None, float | None, float | None]]] = {}
        cells: dict[tuple[str, str], Entry] = {}
        labels = [
            label
            for checkpoints in by_model.values()
            for by_class in checkpoints
            for label in by_class
        ]
        for label in dict.fromkeys(labels):
            for name, checkpoints in by_model.items():
                measured = [by_class[label] for by_class in checkpoints if label in by_class]
                if len(measured) > 1:  # the mean and the spread of several checkpoints
                    means = [result.value for result in measured]
                    middle, sd = float(np.mean(means)), float(np.std(means, ddof=1))
                    ends = middle, middle - sd, middle + sd
                elif measured:
                    ends = measured[0].value, measured[0].low, measured[0].high
                else:
                    ends = math.nan, math.nan, math.nan
                mean, low, high = (None if math.isnan(end) else end for end in ends)
                bars.setdefault(label, []).append((name, mean, low, high))
                cells[name, label] = self._cell(measured, *ends)
        part = make_part(
            f"Ours: {subject}, {AXES[self.shows]}",
            ("Class",),
            [
                Column(name, partial(lambda name, label: cells[name, label], name))
                for name in by_model
            ],
            [((label,), label) for label in bars],
            (
                "Brackets: 95 % interval over photos, uncorrected. With several "
                "checkpoints: ± over them.",
            ),
        )
        unit = "edits" if self.shows == "edits" else "fraction"
        plot = BarPlot("", AXES[self.shows], bars, tuple(by_model), unit=unit)
        return self.document(part, bars=[plot])

    def _by_class(self, items: StressItems) -> dict[str, _Measured]:
        """Return the measured values of each class, in order of names."""
        by_class: dict[str, list[int]] = {}
        for row in items.rows(self.part).tolist() if self.part in items.sets else ():
            kind, after = items.texts("kind")[row], items.texts("after")[row]
            if self.kind in (None, kind) and (
                self.after is None or after.lower() == self.after.lower()
            ):
                by_class.setdefault(items.texts("class")[row], []).append(row)
        measured = {}
        for label, rows in sorted(by_class.items()):
            n = len(rows)
            if self.shows == "edits":
                measured[label] = _Measured(float(n), math.nan, math.nan, n)
                continue
            hits, photo = items.items.metric("acc1")[rows], items.items.metric("photo_acc1")[rows]
            values = hits if self.shows == "accuracy" else hits - photo
            photos = [items.texts("photo")[row] for row in rows]
            bounds = (0.0, 1.0) if self.shows == "accuracy" else (-1.0, 1.0)
            estimate = cluster_mean(values, photos, bounds=bounds)
            measured[label] = _Measured(estimate.mean, estimate.low, estimate.high, n)
        return measured

    def _cell(self, measured: Sequence[_Measured], mean: float, low: float, high: float) -> Entry:
        if not measured:
            return Entry(DASH)
        if self.shows == "edits":
            return Entry(f"{mean:g}", numbers={"value": mean})
        text = percent if self.shows == "accuracy" else points
        alone = len(measured) == 1
        between = f"[{text(low, 1)}, {text(high, 1)}]" if alone and not math.isnan(low) else ""
        numbers = {"value": mean, "n": float(sum(result.edits for result in measured))}
        sub = "" if alone else percent((high - low) / 2, 1)
        return Entry(text(mean, 1), sub=sub, small=between, numbers=numbers)


@dataclass(frozen=True)
class _Measured:
    """One class and checkpoint: a value, its interval, and its number of edits."""

    value: float
    low: float
    high: float
    edits: int


# Table 4 of LANCE: people's ratings of the edited images, from ``ratings.json``.


@dataclass(frozen=True, kw_only=True)
class HumanStudyTable(PaperTable):
    """A row per question, a column per kind of edit.

    Args:
        folder: the folder below ``paths.runs`` with the answers that ``cfaug annotate read`` wrote.
    """

    folder: str = "annotation"

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers and ours."""

        def cell(row: Mapping[str, Any], value: Sequence[float]) -> Entry:
            mean, sd = value
            factor = 100 if "%" in row["metric"] else 1
            numbers = {"value": mean / factor, "sd": sd / factor}
            return Entry(f"{mean:.1f}", f"{sd:.1f}", numbers=numbers)

        theirs = self.printed("Metric", "metric", cell)
        file = runs.root / self.folder / FILE
        self.require(file.exists(), f"{file}: nobody was asked")
        if file.exists():
            return self.document(theirs, ratings_part(read_summary(file)))
        note = f"Ours: {DASH}. Nobody was asked; the page is made with {self.commands[0]}"
        alone = self.document(theirs)
        return replace(alone, notes=(*alone.notes, note))


# Table 3 of LANCE: do caption edits succeed, and does the label filter work?

ROWS: Mapping[str, tuple[str, str]] = {
    "Edit Success (%)": ("success", "edits"),
    "Label kept before the filter (%)": ("label_kept", "labelled"),
    "Filter precision (%)": ("precision", "rejected"),
    "Filter recall (%)": ("recall", ""),
}
"""{printed name: (share of ``EditMeasures``, its count)}."""


@dataclass(frozen=True, kw_only=True)
class PerturberTable(PaperTable):
    """A column per kind of edit, a part per backend that writes edits.

    Args:
        backends: {printed name: folder of shards with the backend's edits}.
        kinds: the kinds of edits, in order; others follow.
    """

    backends: Mapping[str, str]
    kinds: Sequence[str]

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and those of every folder."""
        by_backend: dict[str, list[EditMeasures]] = {}
        for name, folder in self.backends.items():
            by_backend[name] = []
            if (Path(folder) / FOLDER).is_dir():
                try:
                    by_backend[name] = measure_edits(e for _, e in read_all_edits(Path(folder)))
                except (KeyError, TypeError, ValueError) as error:
                    raise UserError(
                        f"{Path(folder) / FOLDER} does not hold edits of captions: {error}"
                    ) from error
        lacking = [f"checked edits in {self.backends[name]}" for name, values in by_backend.items()
                   if not values]  # fmt: skip
        self.require(by_backend and not lacking, *(lacking or ["table.backends={NAME: SHARDS}"]))
        theirs = self.printed(
            "Metric", "metric", lambda _, v: Entry(f"{v:g}", numbers={"value": v / 100})
        )
        ours = []
        for name, measures in by_backend.items():
            if not measures:
                continue
            by = {measure.kind: measure for measure in measures}
            others = [kind for kind in by if kind not in (*self.kinds, OVERALL)]
            kinds = [*(kind for kind in self.kinds if kind in by), *others, OVERALL]
            overall = by[OVERALL]
            note = (
                f"Checks judged {overall.edits:,} edits. For {overall.labelled:,} it is known "
                f"whether they keep the label; the filter rejected {overall.rejected:,}. A dash: "
                "nothing to judge."
            )
            columns = [Column(kind.capitalize(), partial(_share, by[kind])) for kind in kinds]
            rows = [((printed,), about) for printed, about in ROWS.items()]
            ours.append(make_part(f"Ours: {name}", ("Metric",), columns, rows, (note,)))
        return self.document(theirs, *ours)


def _share(measures: EditMeasures, about: tuple[str, str]) -> Entry:
    share, count = about
    value = getattr(measures, share)
    n = getattr(measures, count) if count else measures.labelled - measures.kept
    if value is None:
        return Entry(DASH)
    return Entry(percent(value, 1), numbers={"value": value, "n": float(n)})
