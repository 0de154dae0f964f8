"""Figures 2 and 3 of COCO-Counterfactuals, and its tables of human annotation."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np

from cfaug.annotation.findings import AnswerCounts
from cfaug.annotation.page import NOT_PEOPLE
from cfaug.annotation.record import FILE, AnnotationRecord, ImageExample, read_record
from cfaug.core.errors import UserError
from cfaug.core.safety.json_text import load_json
from cfaug.core.validation import check_fields
from cfaug.papers.coco_cf.label_gains import Subjects, describe_hyponymy
from cfaug.papers.coco_cf.tables import PLACES, Place
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.charts import ORDER, READABLE, read_gaps, shifts
from cfaug.report.document import (
    Column,
    Document,
    DocumentImage,
    Entry,
    GapPlot,
    Part,
    make_part,
    text_column,
)
from cfaug.report.page import DASH, p_text, percent
from cfaug.report.paper_tables import PaperTable, published
from cfaug.settings.read_if import ReadIf
from cfaug.stats.effects import wilson_interval
from cfaug.stats.ranking import GapSummary, summary

Gaps = Mapping[str, np.ndarray]
"""{kind of gap: its values, (pairs,)}."""


@dataclass(frozen=True)
class GapFigure:
    """Matching gaps of several models, their pairs pooled over seeds (Figure 3, section 4.2.2).

    Args:
        name: the name of the output files.
        models: {printed name: {"world": ``experiment/arm``, "folders": ``experiment/arm``}}.
        benchmarks: {"world": benchmark, "folders": benchmark}.
        partial: whether to leave out models without scores.
    """

    name: str
    title: str
    """the heading"""
    models: Mapping[str, Mapping[Place, str]]
    benchmarks: Mapping[Place, str]
    commands: Sequence[str]
    """the commands that make what it needs"""
    notes: Sequence[str] = ()
    """sentences under the table"""
    partial: bool = False

    def build(self, runs: Runs) -> Document:
        """Return a table of the gaps and a plot per model, for every place with scores."""
        columns = [
            Column(header, partial(cell, name), f"{name} ({READABLE[name]})")
            for name in ORDER
            for header, cell in (("mean", _mean_gap), ("below 0", _below_zero))
        ]
        columns += [Column(way, partial(_shift, way), "p of the shift") for way in ("IR", "TR")]
        note = (
            "Gap: score of the right pair minus that of the wrong one, in the model's own unit; ± "
            "is over pairs. p: one-sided Wilcoxon test that an anchor's counterfactual gap is "
            "below its random gap."
        )
        parts, plots, missing = [], [], []
        for place in PLACES:
            benchmark = self.benchmarks[place]
            rows: list[tuple[tuple[str, ...], Gaps]] = []
            lacking = []
            for model, arms in self.models.items():
                # The gaps of all seeds together.
                per_run = [read_gaps(folder).get(benchmark) for folder in runs.folders(arms[place])]
                known = [scores for scores in per_run if scores is not None]
                gaps = {
                    name: np.concatenate(
                        [scores.gaps.get(name, np.full(len(scores), np.nan)) for scores in known]
                    )
                    for name in ORDER
                    if any(name in scores.gaps for scores in known)
                }
                if gaps:
                    rows.append(((model, known[0].kind), gaps))
                else:
                    lacking.append(f"{benchmark} of {arms[place]}")
            if not rows:
                continue
            missing += lacking
            parts.append(make_part(f"Ours: {benchmark}", ("Model", "Score"), columns, rows, [note]))
            for (model, kind), of_model in rows:
                kept = {  # five significant digits are enough for the plot
                    name: [float(f"{value:.5g}") for value in values[np.isfinite(values)]]
                    for name, values in of_model.items()
                }
                plots.append(GapPlot(f"{model}, {benchmark}", kind, kept))
        if (missing or not parts) and not self.partial:
            every = [f"matching scores of {arms[PLACES[0]]}" for arms in self.models.values()]
            raise MissingError(self.name, missing or every, self.commands)
        return Document(self.name, self.title, tuple(parts), tuple(self.notes), gaps=tuple(plots))


def _summary(name: str, gaps: Gaps) -> GapSummary | None:
    known = gaps[name][np.isfinite(gaps[name])] if name in gaps else np.empty(0)
    return summary(known) if len(known) else None


def _mean_gap(name: str, gaps: Gaps) -> Entry:
    stats = _summary(name, gaps)
    if stats is None:
        return Entry(DASH)
    spread = {} if math.isnan(stats.sd) else {"sd": stats.sd}
    numbers = {"value": stats.mean, "n": float(stats.n), **spread}
    return Entry(f"{stats.mean:.3g}", f"{stats.sd:.2g}" if spread else "", numbers=numbers)


def _below_zero(name: str, gaps: Gaps) -> Entry:
    stats = _summary(name, gaps)
    if stats is None:
        return Entry(DASH)
    numbers = {"value": stats.below_zero, "n": float(stats.n)}
    return Entry(f"{percent(stats.below_zero, 1)}%", numbers=numbers)


def _shift(way: str, gaps: Gaps) -> Entry:
    shift = shifts(gaps).get(way)
    if shift is None:
        return Entry(DASH)
    return Entry(p_text(shift.p), numbers={"value": shift.p, "n": float(shift.n)})


@dataclass(frozen=True)
class SharingFigure:
    """Pairs drawn with and without shared attention (Figure 2), from ``benchmarks/sharing.py``.

    Args:
        name: the name of the output files.
        commands: the commands that make ``sharing.json`` and ``sharing.png``.
        folder: the folder below ``paths.runs`` that contains these files.
        partial: whether to print nothing if these files are missing.
    """

    name: str
    title: str
    """the heading"""
    commands: Sequence[str]
    folder: str = "sharing"
    notes: Sequence[str] = ()
    """sentences under the table"""
    partial: bool = False

    def build(self, runs: Runs) -> Document:
        """Return the table and the picture."""
        file, picture = (runs.root / self.folder / f"sharing.{kind}" for kind in ("json", "png"))
        lacks = [str(path) for path in (file, picture) if not path.exists()]
        if lacks and not self.partial:
            raise MissingError(self.name, lacks, self.commands)
        if lacks:
            return Document(self.name, self.title, (), tuple(self.notes))
        headers = {
            "target": "target subject right", "every": "all of both right",
            "direction": "CLIP direction", "outside": "difference outside (0-255)",
        }  # fmt: skip
        try:
            content = load_json(file.read_text(encoding="utf-8"))
            rows = [
                ((str(row["name"]),), {key: float(row[key]) for key in headers})
                for row in content["arms"]
            ]
            pairs = int(content["pairs"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file} is not what benchmarks/sharing.py writes: {error}") from error

        def cell(key: str, row: Mapping[str, float]) -> Entry:
            return Entry(f"{row[key]:.3f}", numbers={"value": row[key]})

        where = f"the embedded world ShapeScapes, drawn by {content['model']}"
        columns = [Column(name, partial(cell, key)) for key, name in headers.items()]
        part = make_part(f"Ours: {pairs} pairs of {where}", ("",), columns, rows)
        png = picture.read_bytes()
        if not png.startswith(b"\x89PNG\r\n\x1a\n"):
            raise UserError(f"{picture} is not a PNG; make it again with benchmarks/sharing.py")
        caption = (
            "Rows: source, then targets with the same noise and attention shared for a share "
            "p of the steps, then independent noise."
        )
        shown = DocumentImage(caption, base64.b64encode(png).decode())
        return Document(self.name, self.title, (part,), tuple(self.notes), pictures=(shown,))


# Tables 1 and 7 to 10 of COCO-Counterfactuals, from ``annotation.json`` and from the paper.

FOLDER = "annotation"
"""The folder below ``paths.runs`` that ``cfaug annotate read`` writes and tables read."""
OUTCOMES = ("correct", "incorrect", "neither", "both")
"""The columns of Table 1."""
CATEGORIES: Mapping[str, str] = dict(
    zip(
        ("subject", "details", "hyponymy", "annotation", "spatial", "count", "both_present",
         "attribute"),
        (row["category"] for row in published("coco_cf_7")["rows"]),
        strict=True,
    )
)  # fmt: skip
"""The paper's categories of errors, the most frequent first (COCO-CFs, Table 7)."""
COMMANDS = (
    "cfaug annotate export pairs=FOLDER  # people answer",
    "cfaug annotate read pairs=FOLDER",
    "or, on ShapeScapes, simulated people: cfaug annotate simulate, then read, both with "
    "pairs=shapescapes:counterfactual",
)


@dataclass(frozen=True, kw_only=True)
class AnnotationTable(PaperTable):
    """A table of human annotation.

    Args:
        shows: the kind of table.
        first: number of categories that an earlier table shows, for ``examples``.

    Raises:
        UserError: if ``shows`` is invalid.
    """

    shows: Literal["labels", "categories", "examples", "subjects"]
    first: Annotated[int, ReadIf({"shows": ("examples",)})] = 0
    commands: Sequence[str] = COMMANDS
    """the commands that make what it needs"""

    def __post_init__(self) -> None:
        check_fields(self, "table")

    def build(self, runs: Runs) -> Document:
        """Lay out the paper's numbers and those under ``<runs>/annotation``."""
        lay_out = _PARTS[self.shows]
        file = runs.root / FOLDER / FILE
        record = read_record(file) if file.exists() else None
        missing = "no answers were read" if record is None else self._lacks(record)
        self.require(not missing, f"{file}: {missing}")
        if record is None or missing:
            document = self.document(*lay_out(self, None))
            return replace(document, notes=(*document.notes, f"Ours: {DASH}. {file}: {missing}"))
        examples = _shown(record, self) if self.shows == "examples" else ()
        notes = []
        if self.shows == "examples" and not examples:
            categories = len(record.examples)
            notes.append(f"Ours ({record.title}): errors fell into {categories} categories only.")
        if record.simulated:
            notes.append(NOT_PEOPLE)
        pictures = []
        for example in examples:
            about = "counterfactual" if example.member else "original"
            caption = (
                f"{CATEGORIES[example.category]}. {example.texts[0]} / {example.texts[1]} "
                f"({example.key}; the {about} image was labelled: {example.said})"
            )
            pictures.append(DocumentImage(caption, example.png))
        document = self.document(*lay_out(self, record), pictures=pictures)
        return replace(document, notes=(*document.notes, *notes))

    def _lacks(self, record: AnnotationRecord) -> str:
        """Say what this table lacks in a record of answers; "" if it lacks nothing."""
        if self.shows in ("categories", "examples") and not record.sampled:
            return "no errors were sorted into categories"
        if not set(record.categories) <= set(CATEGORIES):
            return f"its errors were not sorted into the paper's categories ({record.question})"
        if self.shows == "labels" and set(record.tallies[-1].counts) != set(OUTCOMES):
            return f"answers to another question than the paper's ({record.question})"
        if self.shows == "subjects" and "altered" not in record.extra:
            return "altered subjects were not counted (annotate.analyses.altered_subjects)"
        return ""


def _shown(record: AnnotationRecord, table: AnnotationTable) -> tuple[ImageExample, ...]:
    return record.examples[table.first : table.first + 3]


# The parts of each kind of table: the paper's, and those of a record of answers if there is one.


def _labels(table: AnnotationTable, record: AnnotationRecord | None) -> list[Part]:
    theirs = published(table.name)["agreement"]
    labels = {name: theirs[name] / 100 for name in OUTCOMES if name in theirs}
    kappas = {"Fleiss' kappa": theirs["fleiss"]}
    parts = [
        table.printed("Image set", "images", lambda _, value: _percent(value / 100, 2)),
        _agreement(table.paper, kappas, labels, (), ours=False),
    ]
    if record is None:
        return parts

    def share(name: str, counts: AnswerCounts) -> Entry:
        return _percent(counts.share(name), 2, counts.images)

    columns = [Column(name.capitalize(), partial(share, name)) for name in OUTCOMES]
    rows = [((counts.name,), counts) for counts in record.tallies]
    everything, agreed = record.tallies[-1], record.agreement
    kappas = {"Fleiss' kappa": agreed.fleiss, "Krippendorff's alpha": agreed.alpha}
    notes = (
        f"{everything.answers:,} answers to {everything.images:,} of {record.items:,} images; an "
        f"image with several answers counts once, in equal parts. {record.validated:,} images "
        "were matched to their own caption by more than half of their annotators.",
        f"{agreed.images:,} images have {agreed.raters} answers (kappa), {agreed.several:,} two or "
        f"more (alpha, nominal); the answers to {agreed.disputed:,} of them differ.",
    )
    disputed = agreed.labels if agreed.disputed else {}
    return [
        *parts,
        make_part(record.title, ("Image set",), columns, rows, notes[:1]),
        _agreement(record.title, kappas, disputed, notes[1:], ours=True),
    ]


def _agreement(
    title: str,
    kappas: Mapping[str, float],
    labels: Mapping[str, float],
    notes: Sequence[str],
    *,
    ours: bool,
) -> Part:
    cells = {
        name: Entry(f"{value:.2f}", numbers={"value": value})
        for name, value in kappas.items()
        if not math.isnan(value)
    }
    for name, share in labels.items():
        cells[f"Labels of images with disagreement: {name}"] = _percent(share, 1)
    columns: list[Column[str]] = [Column("Value", lambda name: cells[name])]
    rows = [((name,), name) for name in cells]
    return make_part(f"{title}: agreement", ("Agreement",), columns, rows, notes, ours=ours)


def _percent(share: float, digits: int, n: int | None = None) -> Entry:
    if math.isnan(share):
        return Entry(DASH)
    numbers = {"value": share} | ({"n": n} if n else {})
    return Entry(f"{percent(share, digits)}%", numbers=numbers)


DIFFUSION = ("subject", "details", "spatial", "count", "attribute")
"""Errors that the paper calls limits of text-to-image diffusion."""


def _categories(table: AnnotationTable, record: AnnotationRecord | None) -> list[Part]:
    theirs = table.printed("Error category", "category", lambda _, v: _percent(v / 100, 0))
    if record is None:
        return [theirs]
    sampled = record.sampled

    def interval(count: float) -> str:
        low, high = wilson_interval(count, sampled)
        return f"{percent(low, 0)} to {percent(high, 0)}"

    columns: tuple[Column[float], ...] = (
        Column("% of sampled errors", lambda count: _percent(count / sampled, 0, sampled)),
        text_column("95 % (Wilson)", interval),
    )
    ordered = sorted(record.categories.items(), key=lambda item: -item[1])
    rows = [((CATEGORIES[name],), count) for name, count in ordered]
    # COCO-CFs, A.3.1.
    known = sum(record.categories[name] for name in DIFFUSION) / sampled
    note = (
        f"{sampled} errors, drawn at random; {percent(known, 0)} % are in the categories "
        "that the paper calls known limits of text-to-image diffusion (66 % of its own)."
    )
    return [theirs, make_part(record.title, ("Error category",), columns, rows, [note])]


def _examples(table: AnnotationTable, record: AnnotationRecord | None) -> list[Part]:
    paper, header = published(table.name), ("", "Original", "Counterfactual")
    columns: tuple[Column[Any], ...] = ()
    rows = [
        ((row["category"], row["original"], row["counterfactual"]), row) for row in paper["rows"]
    ]
    parts = [make_part(table.paper, header, columns, rows, [paper["note"]], ours=False)]
    examples = () if record is None else _shown(record, table)
    if record is not None and examples:
        shown = [((CATEGORIES[example.category], *example.texts), example) for example in examples]
        parts.append(make_part(record.title, header, columns, shown))
    return parts


def _count(count: int) -> Entry:
    return Entry(f"{count:,}", numbers={"value": count})


def _subjects(table: AnnotationTable, record: AnnotationRecord | None) -> list[Part]:
    theirs = table.printed("Altered subjects", "subjects", lambda _, count: _count(count))
    if record is None:
        return [theirs]
    subjects = Subjects.read(record.extra)
    rows = [((f"{before} → {after}",), count) for before, after, count in subjects.altered]
    notes = subjects.notes()
    if subjects.hyponymy is not None:
        notes += (describe_hyponymy(*subjects.hyponymy),)
    columns = [Column("Count", _count)]
    return [theirs, make_part(record.title, ("Altered subjects",), columns, rows, notes)]


_PARTS: Mapping[str, Callable[[AnnotationTable, AnnotationRecord | None], list[Part]]] = {
    "labels": _labels,
    "categories": _categories,
    "examples": _examples,
    "subjects": _subjects,
}
