"""Tables 1 and 7 to 10 of COCO-Counterfactuals, from ``annotation.json`` and from the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from cfaug.annotation.findings import AnswerCounts
from cfaug.annotation.record import FILE, AnnotationRecord, ImageExample, read_record
from cfaug.annotation.report import NOT_PEOPLE
from cfaug.coco_cf.label_gains import Subjects, describe_hyponymy
from cfaug.core.read_with import ReadWith
from cfaug.core.validation import check_fields
from cfaug.report.arm_results import Runs
from cfaug.report.document import (
    Column,
    Document,
    DocumentImage,
    Entry,
    Part,
    make_part,
    text_column,
)
from cfaug.report.page import DASH, percent
from cfaug.report.paper_tables import PaperTable, published
from cfaug.stats.effects import wilson_interval

FOLDER = "annotation"
"""The folder below ``paths.runs`` that ``annotate=read`` writes and tables read."""
Rows = tuple[tuple[tuple[str, ...], tuple[Entry, ...]], ...]
Shows = Literal["labels", "categories", "examples", "subjects"]
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
DIFFUSION = ("subject", "details", "spatial", "count", "attribute")
"""Categories that are known limits of text-to-image diffusion models (COCO-CFs, A.3.1)."""
COMMANDS = (
    "python evaluate.py annotate=export data=folder data.counterfactual=FOLDER  # people answer",
    "python evaluate.py annotate=read data=folder data.counterfactual=FOLDER",
    "or, on ShapeScapes: python evaluate.py annotate=simulate && python evaluate.py annotate=read",
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

    shows: Shows
    first: int = 0
    commands: Sequence[str] = COMMANDS

    read_with: ClassVar[ReadWith] = {"first": {"shows": ("examples",)}}

    def __post_init__(self) -> None:
        check_fields(self, "table")

    def build(self, runs: Runs) -> Document:
        """Lay out the paper's numbers and those under ``<runs>/annotation``."""
        theirs = _PAPERS[self.shows](self)
        record, missing = self._read(runs.root / FOLDER / FILE)
        self.require(record, missing)
        if record is None:
            found = self.document(*theirs)
            return replace(found, notes=(*found.notes, f"Ours: {DASH}. {missing}"))
        examples = _shown(record, self) if self.shows == "examples" else ()
        notes = []
        if self.shows == "examples" and not examples:
            categories = len(record.examples)
            notes.append(f"Ours ({record.title}): errors fell into {categories} categories only.")
        if record.simulated:
            notes.append(NOT_PEOPLE)
        pictures = [_picture(example) for example in examples]
        found = self.document(*theirs, *_OURS[self.shows](record, self), pictures=pictures)
        return replace(found, notes=(*found.notes, *notes))

    def _read(self, file: Path) -> tuple[AnnotationRecord | None, str]:
        """Return the record of the answers, or a sentence on what this table lacks."""
        if not file.exists():
            return None, f"{file}: no answers were read"
        record = read_record(file)
        missing = self._missing(record)
        return (None, f"{file}: {missing}") if missing else (record, "")

    def _missing(self, record: AnnotationRecord) -> str:
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


def _picture(example: ImageExample) -> DocumentImage:
    about = "counterfactual" if example.member else "original"
    return DocumentImage(
        f"{CATEGORIES[example.category]}. {example.texts[0]} / {example.texts[1]} "
        f"({example.key}; the {about} image was labelled: {example.said})",
        example.png,
    )


def _paper_labels(table: AnnotationTable) -> tuple[Part, ...]:
    agreed = published(table.name)["agreement"]
    labels = {name: agreed[name] / 100 for name in OUTCOMES if name in agreed}
    kappas = {"Fleiss' kappa": agreed["fleiss"]}
    return (
        table.printed("Image set", "images", lambda _, value: _percent(value / 100, 2)),
        _agreement(table.paper, kappas, labels, (), ours=False),
    )


def _our_labels(record: AnnotationRecord, table: AnnotationTable) -> tuple[Part, ...]:
    columns = [Column(name.capitalize(), partial(_outcome, name)) for name in OUTCOMES]
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
    labels = agreed.labels if agreed.disputed else {}
    return (
        make_part(record.title, ("Image set",), columns, rows, notes[:1]),
        _agreement(record.title, kappas, labels, notes[1:], ours=True),
    )


def _outcome(name: str, counts: AnswerCounts) -> Entry:
    return _percent(counts.share(name), 2, counts.images)


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


def _paper_categories(table: AnnotationTable) -> tuple[Part, ...]:
    return (table.printed("Error category", "category", lambda _, v: _percent(v / 100, 0)),)


def _our_categories(record: AnnotationRecord, table: AnnotationTable) -> tuple[Part, ...]:
    columns: tuple[Column[float], ...] = (
        Column(
            "% of sampled errors",
            lambda count: _percent(count / record.sampled, 0, record.sampled),
        ),
        text_column("95 % (Wilson)", lambda count: _interval(count, record.sampled)),
    )
    ordered = sorted(record.categories.items(), key=lambda found: -found[1])
    rows = [((CATEGORIES[name],), count) for name, count in ordered]
    known = sum(record.categories[name] for name in DIFFUSION) / record.sampled
    note = (
        f"{record.sampled} errors, drawn at random; {percent(known, 0)} % are in the categories "
        "that the paper calls known limits of text-to-image diffusion (66 % of its own)."
    )
    return (make_part(record.title, ("Error category",), columns, rows, [note]),)


def _interval(count: float, of: int) -> str:
    low, high = wilson_interval(count, of)
    return f"{percent(low, 0)} to {percent(high, 0)}"


EXAMPLES = ("", "Original", "Counterfactual")


def _paper_examples(table: AnnotationTable) -> tuple[Part, ...]:
    found = published(table.name)
    rows = [
        ((row["category"], row["original"], row["counterfactual"]), row) for row in found["rows"]
    ]
    columns: tuple[Column[Any], ...] = ()
    return (make_part(table.paper, EXAMPLES, columns, rows, [found["note"]], ours=False),)


def _our_examples(record: AnnotationRecord, table: AnnotationTable) -> tuple[Part, ...]:
    rows = [
        ((CATEGORIES[example.category], *example.texts), example)
        for example in _shown(record, table)
    ]
    return (make_part(record.title, EXAMPLES, (), rows),) if rows else ()


def _paper_subjects(table: AnnotationTable) -> tuple[Part, ...]:
    return (
        table.printed(
            "Altered subjects",
            "subjects",
            lambda _, count: Entry(f"{count}", numbers={"value": count}),
        ),
    )


def _our_subjects(record: AnnotationRecord, table: AnnotationTable) -> tuple[Part, ...]:
    found = Subjects.read(record.extra)
    rows = [((f"{before} → {after}",), count) for before, after, count in found.altered]
    columns: list[Column[int]] = [
        Column("Count", lambda count: Entry(f"{count:,}", numbers={"value": count}))
    ]
    notes = found.notes()
    if found.hyponymy is not None:
        notes += (describe_hyponymy(*found.hyponymy),)
    return (make_part(record.title, ("Altered subjects",), columns, rows, notes),)


_PAPERS: dict[str, Callable[[AnnotationTable], tuple[Part, ...]]] = {
    "labels": _paper_labels,
    "categories": _paper_categories,
    "examples": _paper_examples,
    "subjects": _paper_subjects,
}
_OURS: dict[str, Callable[[AnnotationRecord, AnnotationTable], tuple[Part, ...]]] = {
    "labels": _our_labels,
    "categories": _our_categories,
    "examples": _our_examples,
    "subjects": _our_subjects,
}
