"""``ratings.html``: people's answers to a form, on one page that opens anywhere, offline."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from cfaug.annotation.ratings import OVERALL, FieldFindings, Ratings, Score
from cfaug.report.document import Entry, Part
from cfaug.report.numbers import DASH, percent
from cfaug.report.page import render, write_page

PAGE_FILE = "ratings.html"

HOW = (
    "Mean ± standard deviation over images of each image's mean over its annotators. Agreement is "
    "Krippendorff's alpha over images with several answers, ordinal for scales and nominal for "
    "checks: 1 is perfect agreement, 0 agreement by chance."
)


def ratings_part(ratings: Ratings) -> Part:
    """Return the answers as a table: a row per question, a column per kind of edit."""
    rows = tuple(
        (
            (field.title,),
            (
                *(_entry(field.by.get(kind), field) for kind in (*ratings.kinds, OVERALL)),
                _agreement(field),
            ),
        )
        for field in ratings.fields.values()
    )
    overall = next(iter(ratings.fields.values())).by[OVERALL]
    return Part(
        title=f"{ratings.source}, {ratings.annotators} annotators",
        labels=("Metric",),
        groups=(),
        columns=(*(kind.capitalize() for kind in ratings.kinds), "Overall", "Agreement"),
        rows=rows,
        notes=(
            f"{overall.answers:,} forms about {overall.images:,} of {ratings.items:,} images. "
            f"{HOW}",
        ),
    )


def _entry(score: Score | None, field: FieldFindings) -> Entry:
    if score is None:
        return Entry(DASH)
    known = not math.isnan(score.sd)
    numbers = {"value": score.mean, "n": float(score.images)} | ({"sd": score.sd} if known else {})
    if field.kind == "check":
        return Entry(percent(score.mean, 1), percent(score.sd, 1) * known, numbers=numbers)
    return Entry(f"{score.mean:.1f}", f"{score.sd:.1f}" * known, numbers=numbers)


def _agreement(field: FieldFindings) -> Entry:
    if math.isnan(field.alpha):
        return Entry(DASH)
    return Entry(f"{field.alpha:.2f}", numbers={"value": field.alpha, "n": float(field.several)})


def sentences(ratings: Ratings) -> Iterator[str]:
    """Return the findings as sentences, the number of answers first."""
    yield ratings_part(ratings).notes[0]
    for field in ratings.fields.values():
        one = field.by[OVERALL]
        said = f"{percent(one.mean, 1)} %" if field.kind == "check" else f"{one.mean:.2f}"
        alpha = "" if math.isnan(field.alpha) else f", alpha {field.alpha:.2f}"
        yield f"{field.title}: {said}{alpha}."
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
    return write_page(folder / PAGE_FILE, text)
