"""Tables 1 to 4: judgements of images, prompts as detectors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from cfaug.annotation.page import NOT_PEOPLE
from cfaug.annotation.record import FILE, AnnotationRecord, ImageExample, read_record
from cfaug.annotation.strata import ILLUSTRATIONS, STRATA
from cfaug.core.errors import UserError
from cfaug.core.json_records import from_json
from cfaug.core.validation import check_fields
from cfaug.report.arm_results import Runs
from cfaug.report.document import Column, Document, DocumentImage, Entry, Part, make_part
from cfaug.report.items import Items
from cfaug.report.page import DASH, percent
from cfaug.report.paper_tables import ModelsTable, PaperTable, published
from cfaug.settings.read_if import ReadIf
from cfaug.stats.classification import ClassScores, class_scores, confusion_matrix
from cfaug.stats.effects import wilson_interval
from cfaug.stats.significance import summarise

# Tables 1 to 3: people's judgements of images, from ``annotation.json`` and the paper.

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
        folder: the folder below ``paths.runs`` with the answers that ``cfaug annotate read`` wrote.

    Raises:
        UserError: if ``shows`` is invalid.
    """

    shows: Literal["categories", "examples", "strata"]
    by: Annotated[str, ReadIf({"shows": ("strata",)})] = "race"
    folder: str = "annotation"

    def __post_init__(self) -> None:
        check_fields(self, "table")

    def build(self, runs: Runs) -> Document:
        """Lay out the paper's numbers and people's answers."""
        digits = 1 if self.shows == "categories" else 0
        theirs = self.printed(
            "Error Category", "category", lambda _, value: _percent(value / 100, digits)
        )
        file = runs.root / self.folder / FILE
        record = read_record(file) if file.exists() else None
        missing = "nobody was asked"
        if record is not None:
            complete = set(CATEGORIES) <= set(record.tallies[-1].counts) and STRATA in record.extra
            another = f"answers to another question than the paper's ({record.question})"
            missing = "" if complete else another
        self.require(not missing, f"{file}: {missing}")
        if record is None or missing:
            document = self.document(theirs)
            return replace(document, notes=(*document.notes, f"Ours: {DASH}. {file}: {missing}"))
        if self.shows == "examples":
            with _reading(file):
                every = from_json(list[ImageExample], record.extra[ILLUSTRATIONS])
            rows, pictures = [], []
            for example in every:
                if example.category not in CATEGORIES:
                    continue
                category, caption = CATEGORIES[example.category], example.texts[example.member]
                rows.append(((category, caption, example.key), example))
                shown = f"{category}. {caption} ({example.key})"
                pictures.append(DocumentImage(shown, example.png))
            labels = ("Error Category", "Caption", "Set")
            note = "Images with unanimous answers, drawn by key; the page shows them."
            ours = make_part(record.title, labels, (), rows, (note,))
            document = self.document(theirs, ours, pictures=pictures)
        elif self.shows == "strata":
            document = self.document(theirs, _lay_out_strata(record, self.by, file))
        else:
            document = self.document(theirs, _lay_out_categories(record))
        return (
            replace(document, notes=(*document.notes, NOT_PEOPLE)) if record.simulated else document
        )


def _percent(share: float, digits: int, n: float | None = None) -> Entry:
    numbers = {"value": share} | ({} if n is None else {"n": n})
    return Entry(f"{percent(share, digits)}%", numbers=numbers)


def _between(count: float, n: int) -> str:
    low, high = wilson_interval(count, n)
    return f"[{percent(low, 1)}, {percent(high, 1)}]"


def _lay_out_categories(record: AnnotationRecord) -> Part:
    """Return a row for each of the paper's categories, and for every other answer."""
    every = record.tallies[-1]
    names = dict.fromkeys([*CATEGORIES, *every.counts])
    notes = [
        f"{every.answers:,} answers to {every.images:,} images; an image with several "
        "answers counts once, in equal parts. The interval is Wilson's, 95 %."
    ]
    if record.agreement.several:
        notes.append(
            f"Krippendorff's alpha of {record.agreement.several:,} images with two or more "
            f"answers: {record.agreement.alpha:.2f}."
        )
    columns = [
        Column[str](
            "% present in sample", lambda name: _percent(every.share(name), 1, every.images)
        ),
        Column[str]("images", lambda name: Entry(f"{every.counts[name]:g}")),
        Column[str]("95 %", lambda name: Entry(_between(every.counts[name], every.images))),
    ]
    rows = [((CATEGORIES.get(name, name),), name) for name in names]
    return make_part(record.title, ("Error Category",), columns, rows, notes)


def _lay_out_strata(record: AnnotationRecord, by: str, file: Path) -> Part:
    """Return a row for each answer that fits only some labels, a column per value of ``by``."""
    with _reading(file):
        strata: Any = record.extra[STRATA]
        offered = from_json(dict[str, dict[str, str]], strata["offered"])
        tallies = from_json(list[StratumCounts], strata["tallies"])
    lacking = next((tally for tally in tallies if by not in tally.stratum), None)
    if lacking is not None:
        raise UserError(
            f"table.by={by}: the captions of {file} do not ask for it, but for "
            f"{', '.join(lacking.stratum)}: choose one of these"
        )

    def share(value: str, answer: str) -> Entry:
        """Return the share with an answer among the images that it fits, for a value of ``by``."""
        wanted = {*offered[answer].items(), (by, value)}
        fitting = [tally for tally in tallies if wanted <= set(tally.stratum.items())]
        images = sum(tally.images for tally in fitting)
        if not images:
            return Entry(DASH)
        count = sum(tally.counts[answer] for tally in fitting)
        return replace(_percent(count / images, 1, images), small=_between(count, images))

    values = dict.fromkeys(tally.stratum[by] for tally in tallies)
    columns = [Column(value, partial(share, value)) for value in values]
    rows = [((CATEGORIES.get(answer, answer),), answer) for answer in offered]
    note = (
        "Share of the images whose captions ask for that gender and race. Brackets: 95 % "
        "(Wilson), uncorrected for the number of cells."
    )
    return make_part(record.title, ("Error Category",), columns, rows, [note])


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Refuse a record whose part that is specific to a question cannot be read."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{file} is not what cfaug annotate read writes of this question ({error!r}): "
            "make it again with `cfaug annotate read annotate/question=social_errors`"
        ) from error


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
        """Return the paper's numbers, and ours in the paper's layout."""
        answers = self.answers(runs, lambda _, items: items)
        self.require(answers, "answers of a model to prompts")

        def count(at: int, row: Sequence[int]) -> Entry:
            return Entry(f"{row[at]:,}", numbers={"value": row[at]})

        ours = []
        for model, pairs in answers.items():
            checkpoints = [items for _, items in pairs]
            matrices = [_confusion(items) for items in checkpoints]
            values = dict.fromkeys(value for names, _ in matrices for value in names)
            scores = [dict(zip(names, class_scores(m), strict=True)) for names, m in matrices]
            rows = [
                ((value,), [score[value] for score in scores if value in score]) for value in values
            ]
            left_out = sum(reason is not None for reason in checkpoints[0].columns["left_out"])
            note = (
                f"{len(checkpoints[0]) - left_out:,} images"
                + (f"; {left_out:,} more are left out" if left_out else "")
                + (f"; ± over {len(checkpoints)} checkpoints." if len(checkpoints) > 1 else ".")
            )
            names, matrix = matrices[0]
            ours += [
                make_part(model, (self.attribute,), DETECTOR_COLUMNS, rows, [note]),
                make_part(
                    f"{model}: predicted labels of the images",
                    (f"{self.attribute}, the truth",),
                    [Column(name, partial(count, at)) for at, name in enumerate(names)],
                    [((name,), row) for name, row in zip(names, matrix.tolist(), strict=True)],
                ),
            ]

        def cell(row: Mapping[str, Any], value: float) -> Entry:
            text = f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
            return Entry(text, numbers={"value": value})

        return self.document(self.printed("gender", "gender", cell), *ours)


def _confusion(items: Items) -> tuple[list[str], np.ndarray]:
    """Return the values in order, and their confusion matrix."""
    truth, predicted = (np.asarray(items.columns[name]) for name in ("truth", "predicted"))
    kept = np.array([reason is None for reason in items.columns["left_out"]])
    values = list(dict.fromkeys([*items.columns["asked"], *truth[kept], *predicted[kept]]))
    number = {value: at for at, value in enumerate(values)}
    codes = [np.array([number[v] for v in column[kept]], np.int64) for column in (truth, predicted)]
    return values, confusion_matrix(codes[0], codes[1], len(values))


def _score(metric: str, scores: Sequence[ClassScores]) -> Entry:
    every = [getattr(score, metric) for score in scores]
    known = [value for value in every if not math.isnan(value)]
    if not known:
        return Entry(DASH)
    summary = summarise(known)
    numbers: Mapping[str, float] = {"value": summary.mean}
    if math.isnan(summary.sd):
        return Entry(f"{summary.mean:.2f}", numbers=numbers)
    return Entry(f"{summary.mean:.2f}", f"{summary.sd:.2f}", numbers={**numbers, "sd": summary.sd})


DETECTOR_COLUMNS = (
    *(
        Column[Sequence[ClassScores]](name, partial(_score, metric))
        for name, metric in (("precision", "precision"), ("recall", "recall"), ("f1-score", "f1"))
    ),
    Column(
        "support",
        lambda scores: Entry(f"{scores[0].support:,}", numbers={"value": scores[0].support}),
    ),
)
