"""Tables 1 to 5: judgements of images, prompts as detectors, sizes of grids."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from cfaug.annotation.assignment import ILLUSTRATIONS, STRATA
from cfaug.annotation.page import NOT_PEOPLE
from cfaug.annotation.record import FILE, AnnotationRecord, ImageExample, read_record
from cfaug.core.binding import ReadWith
from cfaug.core.errors import UserError
from cfaug.core.validation import check_fields, from_json
from cfaug.editing.caption_grids import CaptionGrid, read_grid
from cfaug.report.arm_results import Runs
from cfaug.report.document import Column, Document, DocumentImage, Entry, Part, make_part
from cfaug.report.items import Items
from cfaug.report.page import DASH, percent
from cfaug.report.paper_tables import ModelsTable, PaperTable, published
from cfaug.stats.classification import ClassScores, class_scores, confusion_matrix
from cfaug.stats.effects import wilson_interval
from cfaug.stats.significance import summarise

# Tables 1 to 3: people's judgements of images, from ``annotation.json`` and the paper.

FOLDER = "annotation"
"""The folder below ``paths.runs`` that ``annotate=read`` writes."""
Shows = Literal["categories", "examples", "strata"]
CATEGORIES: Mapping[str, str] = dict(
    zip(
        ("good", "unclear", "not_female", "out_of_frame", "not_male"),
        (row["category"] for row in published("social_1")["rows"]),
        strict=True,
    )
)
"""{answer to ``annotate/question=social_errors``: the paper's word for it}, in Table 1's order."""


@dataclass(frozen=True)
class StratumCounts:
    """People's judgements of the images of one stratum.

    Attributes:
        stratum: {attribute: value}, the attributes in the images' captions.
        counts: {answer: number of images}; an image with several answers counts once, in equal
            parts.
    """

    stratum: Mapping[str, str]
    images: int
    counts: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class ErrorTable(PaperTable):
    """People's judgements of the images of grid sets.

    Args:
        shows: the kind of table: ``categories`` (Table 1), ``examples`` of them (Table 2), or
            ``strata``, answers that fit only some labels, by another label (Table 3).
        by: the attribute whose values are the columns of ``strata``.
        folder: the folder below ``paths.runs`` with the answers that ``annotate=read`` wrote.

    Raises:
        UserError: if ``shows`` is invalid.
    """

    shows: Shows
    by: str = "race"
    folder: str = FOLDER

    read_with: ClassVar[ReadWith] = {"by": {"shows": ("strata",)}}

    def __post_init__(self) -> None:
        check_fields(self, "table")

    def build(self, runs: Runs) -> Document:
        """Lay out the paper's numbers and people's answers.

        Raises:
            MissingError: if there are no answers, unless ``partial``.
        """
        digits = 1 if self.shows == "categories" else 0
        theirs = self.printed(
            "Error Category", "category", lambda _, value: _percent(value / 100, digits)
        )
        file = runs.root / self.folder / FILE
        record = read_record(file) if file.exists() else None
        missing = "nobody was asked" if record is None else _missing(record)
        self.require(not missing, f"{file}: {missing}")
        if record is None or missing:
            found = self.document(theirs)
            return replace(found, notes=(*found.notes, f"Ours: {DASH}. {file}: {missing}"))
        parts, pictures = _OURS[self.shows](record, self, file)
        found = self.document(theirs, *parts, pictures=pictures)
        return replace(found, notes=(*found.notes, NOT_PEOPLE)) if record.simulated else found


def _missing(record: AnnotationRecord) -> str:
    """Return why a record is not about the paper's question; "" if it is."""
    if not set(CATEGORIES) <= set(record.tallies[-1].counts) or STRATA not in record.extra:
        return f"answers to another question than the paper's ({record.question})"
    return ""


def _percent(share: float, digits: int, n: float | None = None) -> Entry:
    numbers = {"value": share} | ({} if n is None else {"n": n})
    return Entry(f"{percent(share, digits)}%", numbers=numbers)


def _between(count: float, n: int) -> str:
    low, high = wilson_interval(count, n)
    return f"[{percent(low, 1)}, {percent(high, 1)}]"


def _interval(count: float, n: int) -> Entry:
    return Entry(_between(count, n))


Ours = tuple[tuple[Part, ...], tuple[DocumentImage, ...]]


def _categories(record: AnnotationRecord, table: ErrorTable, file: Path) -> Ours:
    """Return a row for each of the paper's categories, and for every other answer."""
    everything = record.tallies[-1]
    names = [*CATEGORIES, *(name for name in everything.counts if name not in CATEGORIES)]
    notes = [
        f"{everything.answers:,} answers to {everything.images:,} images; an image with several "
        "answers counts once, in equal parts. The interval is Wilson's, 95 %."
    ]
    if record.agreement.several:
        notes.append(
            f"Krippendorff's alpha of {record.agreement.several:,} images with two or more "
            f"answers: {record.agreement.alpha:.2f}."
        )
    columns = [
        Column[str](
            "% present in sample",
            lambda name: _percent(everything.share(name), 1, everything.images),
        ),
        Column[str]("images", lambda name: Entry(f"{everything.counts[name]:g}")),
        Column[str](
            "95 %", lambda name: Entry(_between(everything.counts[name], everything.images))
        ),
    ]
    rows = [((CATEGORIES.get(name, name),), name) for name in names]
    return (make_part(record.title, ("Error Category",), columns, rows, notes),), ()


def _examples(record: AnnotationRecord, table: ErrorTable, file: Path) -> Ours:
    examples = _read(file, lambda: from_json(list[ImageExample], record.extra[ILLUSTRATIONS]))
    shown = [example for example in examples if example.category in CATEGORIES]
    rows = [((CATEGORIES[one.category], _caption(one), one.key), one) for one in shown]
    pictures = tuple(
        DocumentImage(f"{CATEGORIES[one.category]}. {_caption(one)} ({one.key})", one.png)
        for one in shown
    )
    labels = ("Error Category", "Caption", "Set")
    notes = ("Images with unanimous answers, drawn by key; the page shows them.",)
    return (make_part(record.title, labels, (), rows, notes),), pictures


def _caption(example: ImageExample) -> str:
    return example.texts[example.member]


def _strata(record: AnnotationRecord, table: ErrorTable, file: Path) -> Ours:
    """Return a row for each answer that fits only some labels, a column per value of ``by``."""
    offered: Mapping[str, Mapping[str, str]] = _read(
        file, lambda: from_json(dict[str, dict[str, str]], record.extra[STRATA]["offered"])
    )
    tallies = _read(file, lambda: from_json(list[StratumCounts], record.extra[STRATA]["tallies"]))
    lacking = next((tally for tally in tallies if table.by not in tally.stratum), None)
    if lacking is not None:
        raise UserError(
            f"table.by={table.by}: the captions of {file} do not ask for it, but for "
            f"{', '.join(lacking.stratum)}: choose one of these"
        )
    values = list(dict.fromkeys(tally.stratum[table.by] for tally in tallies))

    def share(value: str, answer: str) -> Entry:
        return _share(answer, offered[answer], (table.by, value), tallies)

    columns = [Column(value, partial(share, value)) for value in values]
    rows = [((CATEGORIES.get(answer, answer),), answer) for answer in offered]
    note = (
        "Share of the images whose captions ask for that gender and race. Brackets: 95 % "
        "(Wilson), uncorrected for the number of cells."
    )
    return (make_part(record.title, ("Error Category",), columns, rows, [note]),), ()


def _share(
    answer: str, of: Mapping[str, str], by: tuple[str, str], tallies: Sequence[StratumCounts]
) -> Entry:
    """Return the share with an answer among the images that it fits and whose label is ``by``."""
    wanted = {*of.items(), by}
    own = [tally for tally in tallies if wanted <= set(tally.stratum.items())]
    images = sum(one.images for one in own)
    if not images:
        return Entry(DASH)
    count = sum(one.counts[answer] for one in own)
    entry = _percent(count / images, 1, images)
    return Entry(entry.text, small=_between(count, images), numbers=entry.numbers)


def _read(file: Path, read: Callable[[], Any]) -> Any:
    """Read the part of a record that is specific to a question."""
    try:
        return read()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{file} is not what annotate=read writes of this question ({error!r}): make it again "
            "with `python evaluate.py annotate=read annotate/question=social_errors`"
        ) from error


_OURS: dict[str, Callable[[AnnotationRecord, ErrorTable, Path], Ours]] = {
    "categories": _categories,
    "examples": _examples,
    "strata": _strata,
}


# Table 5 of the paper: the number of sets and images of each grid.

LABELS = ("Subject", "Attribute Pair")


@dataclass(frozen=True, kw_only=True)
class SizesTable(PaperTable):
    """The printed sizes beside those of the grids, with and without duplicates.

    Args:
        grids: {name or file of a grid: [printed subjects, printed attributes]}.
        candidates: number of images generated per caption.
    """

    grids: Mapping[str, Sequence[str]]
    candidates: int = 100

    read_with: ClassVar[ReadWith] = {"partial": (), "commands": ()}  # nothing can be missing

    def build(self, runs: Runs) -> Document:
        """Return the paper's sizes, and ours with the lists as printed and without duplicates."""
        lists = [{name: read_grid(name, keep_duplicates=kept) for name in self.grids}
                 for kept in (True, False)]  # fmt: skip
        removed = sorted({one for grid in lists[1].values() for one in grid.left_out})
        note = (
            f"{len(removed):,} entries are duplicated in the lists, ignoring case, such as "
            f"{', '.join(removed[:4])}."
            if removed
            else "No entry is duplicated."
        )
        return self.document(
            self._theirs(),
            self._part("Ours: the grids with every entry of the lists", lists[0], ()),
            self._part("Ours: the grids as they are used, without duplicates", lists[1], (note,)),
        )

    def _theirs(self) -> Part:
        found = published(self.name)
        rows = [((row["subject"], row["pair"]), row["values"]) for row in found["rows"]]
        return _lay_out(self.paper, rows, (found["note"],), found["columns"], ours=False)

    def _part(self, title: str, grids: Mapping[str, CaptionGrid], notes: Sequence[str]) -> Part:
        rows = []
        for name, grid in grids.items():
            subject, pair = self.grids[name]
            rows.append(((subject, pair), (grid.sets, grid.members, self._images(grid))))
        columns = published(self.name)["columns"]
        return _lay_out(title, rows, notes, columns, ours=True)

    def _images(self, grid: CaptionGrid) -> int:
        return grid.captions * self.candidates


def _lay_out(
    title: str,
    rows: Sequence[tuple[tuple[str, str], Sequence[int | None]]],
    notes: Sequence[str],
    columns: Sequence[Any],
    *,
    ours: bool,
) -> Part:
    """Return a part with a last row of sums where values can be added."""
    sets, images = (sum(values[at] or 0 for _, values in rows) for at in (0, 2))
    every = [*rows, (("Sum", ""), (sets, None, images))]
    cells = [Column(name, partial(_count, at)) for at, name in enumerate(columns)]
    return make_part(title, LABELS, cells, every, notes, rules=(len(rows),), ours=ours)


def _count(at: int, values: Sequence[int | None]) -> Entry:
    value = values[at]
    return Entry("") if value is None else Entry(f"{value:,}", numbers={"value": float(value)})


# Table 4: how well prompts distinguish the labels of images, from items and from the paper.


@dataclass(frozen=True, kw_only=True)
class DetectorTable(ModelsTable):
    """A row per value of the attribute: precision, recall, F1 and support, and the confusions.

    Args:
        attribute: the attribute, which is the header of its values.
    """

    attribute: str = "gender"
    benchmark: str = "attribute_detector"

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours in the paper's layout.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
        """
        found = self.answers(runs, lambda _, items: items)
        self.require(found, "answers of a model to prompts")
        ours = [
            part
            for model, own in found.items()
            for part in self._parts(model, [items for _, items in own])
        ]
        return self.document(self.printed("gender", "gender", _printed), *ours)

    def _parts(self, model: str, answers: Sequence[Items]) -> tuple[Part, Part]:
        """Return a model's scores, averaged over its checkpoints, and its confusion matrix."""
        matrices = [_confusion(answer) for answer in answers]
        values = list(dict.fromkeys(value for names, _ in matrices for value in names))
        scores = [dict(zip(names, class_scores(m), strict=True)) for names, m in matrices]
        rows = [
            ((value,), [score[value] for score in scores if value in score]) for value in values
        ]
        left_out = sum(one is not None for one in np.asarray(answers[0].columns["left_out"]))
        total = len(answers[0])
        note = (
            f"{total - left_out:,} images"
            + (f"; {left_out:,} more are left out" if left_out else "")
            + (f"; ± over {len(answers)} checkpoints." if len(answers) > 1 else ".")
        )
        names, matrix = matrices[0]
        taken = make_part(
            f"{model}: predicted labels of the images",
            (f"{self.attribute}, the truth",),
            [Column(name, partial(_number, at)) for at, name in enumerate(names)],
            [((name,), row) for name, row in zip(names, matrix.tolist(), strict=True)],
        )
        return make_part(model, (self.attribute,), DETECTOR_COLUMNS, rows, [note]), taken


def _number(at: int, row: Sequence[int]) -> Entry:
    return Entry(f"{row[at]:,}", numbers={"value": row[at]})


def _printed(row: Mapping[str, Any], value: float) -> Entry:
    count = isinstance(value, int)
    return Entry(f"{value:,}" if count else f"{value:.2f}", numbers={"value": value})


def _confusion(items: Items) -> tuple[list[str], np.ndarray]:
    """Return the values in order, and their confusion matrix."""
    truth, predicted = (np.asarray(items.columns[name]) for name in ("truth", "predicted"))
    kept = np.array([reason is None for reason in items.columns["left_out"]])
    values = list(dict.fromkeys([*items.columns["asked"], *truth[kept], *predicted[kept]]))
    number = {value: at for at, value in enumerate(values)}
    codes = [np.array([number[v] for v in own[kept]], np.int64) for own in (truth, predicted)]
    return values, confusion_matrix(codes[0], codes[1], len(values))


def _score(values: Sequence[float]) -> Entry:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Entry(DASH)
    found = summarise(known)
    numbers: Mapping[str, float] = {"value": found.mean}
    if math.isnan(found.sd):
        return Entry(f"{found.mean:.2f}", numbers=numbers)
    return Entry(f"{found.mean:.2f}", f"{found.sd:.2f}", numbers={**numbers, "sd": found.sd})


def _support(scores: Sequence[ClassScores]) -> Entry:
    return Entry(f"{scores[0].support:,}", numbers={"value": scores[0].support})


DETECTOR_COLUMNS = (
    Column[Sequence[ClassScores]]("precision", lambda own: _score([one.precision for one in own])),
    Column[Sequence[ClassScores]]("recall", lambda own: _score([one.recall for one in own])),
    Column[Sequence[ClassScores]]("f1-score", lambda own: _score([one.f1 for one in own])),
    Column[Sequence[ClassScores]]("support", _support),
)
