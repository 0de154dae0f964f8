"""Tables 1 and 7 to 10 of COCO-Counterfactuals, from ``annotation.json`` and from the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from cfaug.annotation.record import FILE, AnnotationRecord, ImageExample, read_record
from cfaug.annotation.report import NOT_PEOPLE
from cfaug.coco_cf.label_gains import Subjects, describe_hyponymy
from cfaug.core.read_with import ReadWith
from cfaug.core.validation import check_fields
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import Document, DocumentImage, Entry, Part
from cfaug.report.page import DASH, percent
from cfaug.report.paper_tables import published
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


@dataclass(frozen=True)
class AnnotationTable:
    """A table of human annotation.

    Args:
        name: the name of the paper's numbers and of the output files.
        title: the title above the table.
        paper: the source of the paper's numbers, the title of their part.
        shows: the kind of table.
        first: number of categories that an earlier table shows, for ``examples``.
        notes: notes printed below everything.
        partial: whether to print dashes for missing values.

    Raises:
        UserError: if ``shows`` is invalid.
    """

    name: str
    title: str
    paper: str
    shows: Shows
    first: int = 0
    notes: Sequence[str] = ()
    partial: bool = False

    read_with: ClassVar[ReadWith] = {"first": {"shows": ("examples",)}}

    def __post_init__(self) -> None:
        check_fields(self, "table")

    def build(self, runs: Runs) -> Document:
        """Lay out the paper's numbers and those under ``<runs>/annotation``."""
        theirs = _PAPERS[self.shows](self)
        record, missing = self._read(runs.root / FOLDER / FILE)
        if record is None:
            if not self.partial:
                raise MissingError(self.name, [missing], COMMANDS)
            return Document(
                self.name, self.title, theirs, (*self.notes, f"Ours: {DASH}. {missing}")
            )
        examples = _shown(record, self) if self.shows == "examples" else ()
        notes = [*self.notes]
        if self.shows == "examples" and not examples:
            found = len(record.examples)
            notes.append(f"Ours ({record.title}): errors fell into {found} categories only.")
        if record.simulated:
            notes.append(NOT_PEOPLE)
        return Document(
            name=self.name,
            title=self.title,
            parts=(*theirs, *_OURS[self.shows](record, self)),
            notes=tuple(notes),
            pictures=tuple(map(_picture, examples)),
        )

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
    found = published(table.name)
    rows = tuple(
        ((row["images"],), tuple(_percent(value / 100, 2) for value in row["values"]))
        for row in found["rows"]
    )
    agreed = found["agreement"]
    labels = {name: agreed[name] / 100 for name in OUTCOMES if name in agreed}
    return (
        Part(table.paper, ("Image set",), (), tuple(found["columns"]), rows,
             notes=(found["note"],), ours=False),
        Part(f"{table.paper}: agreement", *_AGREEMENT,
             _agreement({"Fleiss' kappa": agreed["fleiss"]}, labels), ours=False),
    )  # fmt: skip


def _our_labels(record: AnnotationRecord, table: AnnotationTable) -> tuple[Part, ...]:
    rows = tuple(
        ((t.name,), tuple(_percent(t.share(name), 2, t.images) for name in OUTCOMES))
        for t in record.tallies
    )
    everything, agreed = record.tallies[-1], record.agreement
    kappas = {"Fleiss' kappa": agreed.fleiss, "Krippendorff's alpha": agreed.alpha}
    notes = (
        f"{everything.answers:,} answers to {everything.images:,} of {record.items:,} images; an "
        f"image with several answers counts once, in equal parts. {record.validated:,} images "
        "were matched to their own caption by more than half of their annotators.",
        f"{agreed.images:,} images have {agreed.raters} answers (kappa), {agreed.several:,} two or "
        f"more (alpha, nominal); the answers to {agreed.disputed:,} of them differ.",
    )
    return (
        Part(record.title, ("Image set",), (), tuple(n.capitalize() for n in OUTCOMES), rows,
             notes=notes[:1]),
        Part(f"{record.title}: agreement", *_AGREEMENT,
             _agreement(kappas, agreed.labels if agreed.disputed else {}), notes=notes[1:]),
    )  # fmt: skip


_AGREEMENT: tuple[tuple[str, ...], tuple[tuple[str, int], ...], tuple[str, ...]] = (
    ("Agreement",), (), ("Value",),
)  # fmt: skip


def _agreement(kappas: Mapping[str, float], labels: Mapping[str, float]) -> Rows:
    known = {name: value for name, value in kappas.items() if not math.isnan(value)}
    return (
        *(((name,), (Entry(f"{v:.2f}", numbers={"value": v}),)) for name, v in known.items()),
        *(
            ((f"Labels of images with disagreement: {name}",), (_percent(share, 1),))
            for name, share in labels.items()
        ),
    )


def _percent(share: float, digits: int, n: int | None = None) -> Entry:
    if math.isnan(share):
        return Entry(DASH)
    numbers = {"value": share} | ({"n": n} if n else {})
    return Entry(f"{percent(share, digits)}%", numbers=numbers)


def _paper_categories(table: AnnotationTable) -> tuple[Part, ...]:
    found = published(table.name)
    rows = tuple(
        ((row["category"],), (_percent(row["values"][0] / 100, 0),)) for row in found["rows"]
    )
    return (
        Part(table.paper, ("Error category",), (), ("% of sampled errors",), rows,
             notes=(found["note"],), ours=False),
    )  # fmt: skip


def _our_categories(record: AnnotationRecord, table: AnnotationTable) -> tuple[Part, ...]:
    rows = []
    for name, count in sorted(record.categories.items(), key=lambda found: -found[1]):
        low, high = wilson_interval(count, record.sampled)
        share = _percent(count / record.sampled, 0, record.sampled)
        interval = Entry(f"{percent(low, 0)} to {percent(high, 0)}")
        rows.append(((CATEGORIES[name],), (share, interval)))
    known = sum(record.categories[name] for name in DIFFUSION) / record.sampled
    note = (
        f"{record.sampled} errors, drawn at random; {percent(known, 0)} % are in the categories "
        "that the paper calls known limits of text-to-image diffusion (66 % of its own)."
    )
    return (
        Part(record.title, ("Error category",), (), ("% of sampled errors", "95 % (Wilson)"),
             tuple(rows), notes=(note,)),
    )  # fmt: skip


def _paper_examples(table: AnnotationTable) -> tuple[Part, ...]:
    found = published(table.name)
    rows = tuple(
        ((row["category"], row["original"], row["counterfactual"]), ()) for row in found["rows"]
    )
    return (
        Part(table.paper, ("", "Original", "Counterfactual"), (), (), rows,
             notes=(found["note"],), ours=False),
    )  # fmt: skip


def _our_examples(record: AnnotationRecord, table: AnnotationTable) -> tuple[Part, ...]:
    rows = tuple(((CATEGORIES[one.category], *one.texts), ()) for one in _shown(record, table))
    if not rows:
        return ()
    return (Part(record.title, ("", "Original", "Counterfactual"), (), (), rows),)


def _paper_subjects(table: AnnotationTable) -> tuple[Part, ...]:
    found = published(table.name)
    rows = tuple(
        ((row["subjects"],), (Entry(f"{row['values'][0]}", numbers={"value": row["values"][0]}),))
        for row in found["rows"]
    )
    return (
        Part(table.paper, ("Altered subjects",), (), ("Count",), rows, notes=(found["note"],),
             ours=False),
    )  # fmt: skip


def _our_subjects(record: AnnotationRecord, table: AnnotationTable) -> tuple[Part, ...]:
    found = Subjects.read(record.extra)
    rows = tuple(
        ((f"{before} → {after}",), (Entry(f"{count:,}", numbers={"value": count}),))
        for before, after, count in found.altered
    )
    notes = found.notes()
    if found.hyponymy is not None:
        notes += (describe_hyponymy(*found.hyponymy),)
    return (Part(record.title, ("Altered subjects",), (), ("Count",), rows, notes=notes),)


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
