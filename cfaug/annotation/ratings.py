"""Completed forms: reading, means by kind of edit, and agreement."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.annotation.answers import (
    ANNOTATOR,
    NO_ANSWERS,
    check_texts,
    require_list,
    require_somebody,
    who_failed,
)
from cfaug.annotation.forms import EditedItem, Form, Value
from cfaug.annotation.records import Answer
from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.json_records import from_json
from cfaug.core.safety.json_text import load_json
from cfaug.data.sources.lists import list_records
from cfaug.data.sources.row import ErrorCollector
from cfaug.report.document import Column, Entry, Part, make_part
from cfaug.report.page import DASH, percent, render, write_page
from cfaug.stats.agreement import Level, krippendorff_alpha

FILE = "ratings.json"
OVERALL = "overall"
LEVELS: Mapping[str, Level] = {"scale": "ordinal", "check": "nominal"}
"""The level of Krippendorff's alpha for each kind of field."""


@dataclass(frozen=True)
class Rating:
    """One annotator's values for one image, ``item`` of all possible images."""

    item: int
    annotator: str
    values: Mapping[str, Value]


def read_ratings(
    files: Iterable[str | Path], items: Sequence[EditedItem], form: Form
) -> list[Rating]:
    """Read the forms of every annotator, in the order of the files.

    The same answer may be in several files, for example if somebody downloads twice.

    Args:
        files: jsonl, csv or tsv files with ``key``, ``member``, ``annotator`` and the form's
            fields.
    """
    places = {item.name: i for i, item in enumerate(items)}
    given: dict[tuple[int, str], tuple[Rating, str]] = {}
    errors = ErrorCollector()
    for file in files:
        for where, record in list_records(require_list(Path(file))):
            with errors.collect():
                rating = _rating(record, where, places, form)
                check_texts(record, where, items[rating.item])
                before, earlier = given.setdefault((rating.item, rating.annotator), (rating, where))
                if before != rating:
                    raise UserError(
                        f"{where}: annotator {rating.annotator!r} answers differently about "
                        f"{items[rating.item].name} in {earlier}: keep the file that was "
                        "downloaded last"
                    )
    errors.report()
    if not given:
        raise UserError(NO_ANSWERS)
    return [rating for rating, _ in given.values()]


def leave_out_inattentive(
    ratings: Sequence[Rating], items: Sequence[EditedItem], form: Form
) -> tuple[list[Rating], dict[str, float]]:
    """Return the forms of annotators who passed every attention check, and those who failed.

    Args:
        form: the form; a check is about its first scale.

    Returns:
        The forms about other images, and {annotator: share of the checks answered right}.
    """
    scale = next((name for name, field in form.fields.items() if field.kind == "scale"), None)
    if scale is None:
        return list(ratings), {}
    failed = who_failed([Answer(r.item, r.annotator, str(r.values[scale])) for r in ratings], items)
    kept = [r for r in ratings if r.annotator not in failed and not items[r.item].expected]
    require_somebody(failed, kept)
    return kept, failed


def _rating(record: Mapping[str, Any], where: str, places: Mapping[str, int], form: Form) -> Rating:
    required = [name for name, field in form.fields.items() if field.kind != "text"]
    missing = [n for n in ("key", "member", "annotator", *required) if record.get(n) in (None, "")]
    if missing:
        raise UserError(f"{where} lacks {', '.join(missing)}")
    name = f"{str(record['key']).strip()}_{str(record['member']).strip()}"
    if name not in places:
        raise UserError(
            f"{where}: {name[:80]!r} is not an edited image of the pairs: are these the "
            "answers to another source's page?"
        )
    annotator = str(record["annotator"]).strip()
    if not ANNOTATOR.fullmatch(annotator):
        raise UserError(
            f"{where}: annotator={annotator[:70]!r} should be up to 64 letters, digits, spaces and "
            ". @ - _"
        )
    values: dict[str, Value] = {}
    for field_name, field in form.fields.items():
        value = field.parse(record.get(field_name))
        if value is None:
            shown = str(record.get(field_name))[:40]
            raise UserError(f"{where}: {field_name}={shown!r} is invalid: enter {field.choices}")
        values[field_name] = value
    return Rating(places[name], annotator, values)


@dataclass(frozen=True)
class Score:
    """The answers to one question about some images.

    Attributes:
        mean: mean over images of each image's mean over its annotators; for a check, the share of
            yes.
        sd: standard deviation (n - 1) of the images' means; ``nan`` for fewer than two.
    """

    mean: float
    sd: float
    images: int
    answers: int


@dataclass(frozen=True)
class FieldFindings:
    """The answers to one question of a form.

    Attributes:
        kind: ``scale`` or ``check``.
        by: {kind of edit: score} for kinds with an answer, and for ``overall``.
        alpha: Krippendorff's alpha, ordinal for a scale and nominal for a check, over images with
            several answers; ``nan`` without such images, or if all answers are equal.
    """

    title: str
    kind: str
    by: Mapping[str, Score]
    alpha: float
    several: int


@dataclass(frozen=True)
class Remark:
    """A text that somebody entered about an image."""

    image: str
    annotator: str
    field: str
    text: str


@dataclass(frozen=True)
class Ratings:
    """The findings of a form that tables print."""

    source: str
    title: str
    annotators: int
    items: int
    fields: Mapping[str, FieldFindings]
    remarks: tuple[Remark, ...]

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of edits with answers, in the order of the source."""
        kinds = dict.fromkeys(kind for field in self.fields.values() for kind in field.by)
        return tuple(kind for kind in kinds if kind != OVERALL)


def summarise_ratings(
    ratings: Sequence[Rating], items: Sequence[EditedItem], form: Form, source: str
) -> Ratings:
    """Average the answers by kind of edit and over all, and measure agreement.

    Every image counts once, however many people answered about it.
    """
    ordered = sorted(ratings, key=lambda r: (r.item, r.annotator))
    fields: dict[str, FieldFindings] = {}
    for name, field in form.fields.items():
        if field.kind == "text":
            continue
        answers: dict[int, dict[str, float]] = {}
        for rating in sorted(ratings, key=lambda r: r.item):
            answers.setdefault(rating.item, {})[rating.annotator] = float(rating.values[name])
        by_kind: dict[str, list[dict[str, float]]] = {}
        for i, values in answers.items():
            by_kind.setdefault(items[i].kind, []).append(values)
        several = [values for values in answers.values() if len(values) > 1]
        people = sorted({who for values in several for who in values})
        table = np.array([[values.get(who) for who in people] for values in several], np.float64)
        fields[name] = FieldFindings(
            title=field.title,
            kind=field.kind,
            by={kind: _score(scores) for kind, scores in by_kind.items()}
            | {OVERALL: _score(list(answers.values()))},
            alpha=krippendorff_alpha(table, LEVELS[field.kind]) if several else math.nan,
            several=len(several),
        )
    remarks = tuple(
        Remark(items[rating.item].name, rating.annotator, name, str(rating.values[name]))
        for rating in ordered
        for name, field in form.fields.items()
        if field.kind == "text" and rating.values[name]
    )
    people_count = len({rating.annotator for rating in ratings})
    count = sum(not item.expected for item in items)
    return Ratings(source, form.title, people_count, count, fields, remarks)


def _score(answers: Sequence[Mapping[str, float]]) -> Score:
    means = [statistics.fmean(values.values()) for values in answers]
    sd = statistics.stdev(means) if len(means) > 1 else math.nan
    return Score(statistics.fmean(means), sd, len(means), sum(map(len, answers)))


def write_ratings(ratings: Ratings, folder: Path) -> Path:
    """Write ``ratings.json`` and return its path."""
    content = json.loads(json.dumps(asdict(ratings)), parse_constant=lambda _: None)
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return write_page(folder / FILE, text)


def read_summary(file: Path) -> Ratings:
    """Read ``ratings.json``, which ``write_ratings`` wrote."""
    try:
        summary = load_json(require_regular(file).read_text(encoding="utf-8"))
        for field in summary["fields"].values():
            if field["kind"] not in LEVELS:
                raise ValueError(f"a question of kind {field['kind']!r}")
            field["alpha"] = _number(field["alpha"])
            for score in field["by"].values():
                score |= {name: _number(score[name]) for name in ("mean", "sd")}
        return from_json(Ratings, summary)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{file} is not what cfaug annotate read writes of a form ({error}): make it with "
            "`cfaug annotate read annotate/question=lance annotate.answers=[...]`"
        ) from error


def _number(given: Any) -> float:
    value = math.nan if given is None else float(given)
    if math.isinf(value):
        raise ValueError("an infinite number")
    return value


# ``ratings.html``: people's answers to a form, on one page that opens anywhere, offline.

HOW = (
    "Mean ± standard deviation over images of each image's mean over its annotators. Agreement is "
    "Krippendorff's alpha over images with several answers, ordinal for scales and nominal for "
    "checks: 1 is perfect agreement, 0 agreement by chance."
)


def ratings_part(ratings: Ratings) -> Part:
    """Return the answers as a table: a row per question, a column per kind of edit."""

    def mean(kind: str, field: FieldFindings) -> Entry:
        score = field.by.get(kind)
        if score is None:
            return Entry(DASH)
        numbers = {"value": score.mean, "n": float(score.images)}
        value, sd = f"{score.mean:.1f}", f"{score.sd:.1f}"
        if field.kind == "check":
            value, sd = percent(score.mean, 1), percent(score.sd, 1)
        if math.isnan(score.sd):
            return Entry(value, numbers=numbers)
        return Entry(value, sd, numbers=numbers | {"sd": score.sd})

    def agreement(field: FieldFindings) -> Entry:
        if math.isnan(field.alpha):
            return Entry(DASH)
        numbers = {"value": field.alpha, "n": float(field.several)}
        return Entry(f"{field.alpha:.2f}", numbers=numbers)

    columns = [
        *(Column(kind.capitalize(), partial(mean, kind)) for kind in ratings.kinds),
        Column("Overall", partial(mean, OVERALL)),
        Column("Agreement", agreement),
    ]
    overall = next(iter(ratings.fields.values())).by[OVERALL]
    return make_part(
        f"{ratings.source}, {ratings.annotators} annotators",
        ("Metric",),
        columns,
        [((field.title,), field) for field in ratings.fields.values()],
        (f"{overall.answers:,} forms about {overall.images:,} of {ratings.items:,} images. {HOW}",),
    )


def sentences(ratings: Ratings) -> Iterator[str]:
    """Return the findings as sentences, the number of answers first."""
    yield ratings_part(ratings).notes[0]
    for field in ratings.fields.values():
        score = field.by[OVERALL]
        average = f"{percent(score.mean, 1)} %" if field.kind == "check" else f"{score.mean:.2f}"
        alpha = "" if math.isnan(field.alpha) else f", alpha {field.alpha:.2f}"
        yield f"{field.title}: {average}{alpha}."
    if ratings.remarks:
        yield f"{len(ratings.remarks)} remarks were entered."


def write_ratings_page(ratings: Ratings, folder: Path) -> Path:
    """Write ``ratings.html`` and return its path."""
    text = render(
        "ratings.html",
        title=f"{ratings.title} {ratings.source}",
        part=ratings_part(ratings),
        remarks=ratings.remarks,
    )
    return write_page(folder / "ratings.html", text)
