"""``annotation.html``: annotators' answers, on one page that opens anywhere, offline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from cfaug.annotation.findings import Agreement, AnswerCounts, Findings, ReportSection
from cfaug.annotation.question import AnnotationQuestion
from cfaug.annotation.record import AnnotationRecord, Sorting
from cfaug.report.charts import grouped_bars
from cfaug.report.document import Part, plain_part
from cfaug.report.drawing import Drawing, style
from cfaug.report.page import percent, render, write_page
from cfaug.report.plots import (
    ACCENT,
    LINE,
    PAPER,
    QUIET,
    RULE,
    SMALL,
    bar,
    lines_of,
    name_rows,
    new_axes,
    write,
)
from cfaug.stats.effects import wilson_interval

FILE = "annotation.html"
LISTED = 40
"""Maximum number of rows of a section that the page lists."""
NOT_PEOPLE = (
    "Simulated: an oracle's answers with mistakes drawn by key. It shows that the tool works and "
    "says nothing about people."
)


def sentences(
    record: AnnotationRecord,
    question: AnnotationQuestion,
    categories: AnnotationQuestion,
    sections: Sequence[ReportSection] = (),
) -> list[str]:
    """Return the findings as sentences, the verdict first.

    Args:
        categories: the question that sorted rejected images.
    """
    everything, agreed = record.tallies[-1], record.agreement
    accepted = sum(everything.counts[name] for name in question.accepted)
    low, high = wilson_interval(accepted, everything.images)
    found = [
        f"{percent(accepted / everything.images, 1)} % of {everything.images:,} images were "
        f"{question.accepted_as} (95 % interval {percent(low, 1)} to {percent(high, 1)}"
        f"{_reference(record, question, 'accepted')})."
    ]
    if math.isnan(agreed.fleiss):
        found.append("No image has several answers that differ: agreement cannot be measured.")
    else:
        found.append(
            f"On {agreed.images:,} images with {agreed.raters} answers Fleiss' kappa is "
            f"{agreed.fleiss:.2f}; Krippendorff's alpha on {agreed.several:,} images with two or "
            f"more is {agreed.alpha:.2f}{_reference(record, question, 'agreement')}."
        )
    for asked, counts, total, what in (
        (question, everything.counts, everything.images, "answered images"),
        (categories, record.categories, record.sampled, "sorted errors"),
    ):
        for said, members in asked.groups.items() if total else ():
            share = sum(counts[name] for name in members) / total
            found.append(
                f"Of {total:,} {what} {percent(share, 0)} % are {said}"
                f"{_reference(record, asked, said)}."
            )
    found += [sentence for section in sections for sentence in section.sentences]
    if everything.images < record.items:
        found.append(f"{record.items - everything.images:,} images have no answer.")
    return found + ([NOT_PEOPLE] if record.simulated else [])


def _reference(record: AnnotationRecord, question: AnnotationQuestion, statement: str) -> str:
    """Return known results to show beside people's answers; empty for simulated ones."""
    text = question.reference.get(statement, "")
    return f"; {text}" if text and not record.simulated else ""


def write_report(
    record: AnnotationRecord,
    findings: Findings,
    sorting: Sorting,
    sections: Sequence[ReportSection],
    folder: Path,
) -> Path:
    """Write ``annotation.html`` and return its path.

    Args:
        sorting: the categories of rejected images.
    """
    question = findings.question
    names = {name: question.wording(name) for name in question.reported}
    categories = dict(sorting.question.options)
    verdict, *more = sentences(record, question, sorting.question, sections)
    text = render(
        "annotation.html",
        title=f"Annotation: {record.title}",
        verdict=verdict,
        more=more,
        record=record,
        question=question,
        outcomes=names,
        bars=outcome_bars(record.tallies, names),
        matrix=disagreement_matrix(record.agreement, list(names.values()))
        if record.agreement.several
        else None,
        causes=category_bars(record.categories, record.sampled, categories)
        if record.sampled
        else None,
        categories=categories,
        tallies=_tallies(record, names),
        people=_people(findings, names),
        sections=[
            (section, plain_part(section.columns, section.rows[:LISTED])) for section in sections
        ],
    )
    return write_page(folder / FILE, text)


def _tallies(record: AnnotationRecord, names: Mapping[str, str]) -> Part:
    """Return the answers by sets of images; ``names`` maps outcomes to their names."""
    rows = (
        (
            tally.name,
            f"{tally.images:,}",
            f"{tally.answers:,}",
            *(percent(tally.share(n)) for n in names),
        )
        for tally in record.tallies
    )
    return plain_part(
        ("image set", "images", "answers", *(f"{n}, %" for n in names.values())), rows
    )


def _people(findings: Findings, names: Mapping[str, str]) -> Part:
    """Return the answers by annotators."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in findings.annotators}
    for answer in findings.answers:
        counts[answer.annotator][findings.outcome(answer)] += 1
    rows = (
        (name, f"{own.total():,}", *(percent(own[found] / own.total(), 1) for found in names))
        for name, own in counts.items()
    )
    return plain_part(("annotator", "answers", *(f"{n}, %" for n in names.values())), rows)


# Bar charts of outcomes, and a matrix of the disagreement between annotators.

CELL, COLUMN = 39, 14
"""Height of a cell of the matrix in pixels, and letters in a line of a column's name."""
STRONG = 0.55
"""Shares above this are written in the colour of the paper."""


def outcome_bars(tallies: Sequence[AnswerCounts], names: Mapping[str, str]) -> Drawing:
    """Draw a bar per outcome and set of images, with Wilson's 95 % interval over the images.

    Args:
        tallies: the counts of outcomes, one tally per set of images.
        names: {outcome: its name in the figure}, in the order of the figure.
    """
    groups = {
        name: [(t.name, t.counts[outcome], t.images) for t in tallies]
        for outcome, name in names.items()
    }
    return _grouped(groups, "share of the images, %")


def category_bars(
    categories: Mapping[str, float], sampled: int, names: Mapping[str, str]
) -> Drawing:
    """Draw a bar per category of rejected images, most frequent first, with Wilson's 95 % interval.

    Args:
        sampled: number of images that were sorted.
    """
    ordered = sorted(categories, key=lambda name: -categories[name])
    groups = {names[name]: [("", categories[name], sampled)] for name in ordered}
    return _grouped(groups, "share of the sorted images, %")


def _grouped(groups: Mapping[str, Sequence[tuple[str, float, int]]], title: str) -> Drawing:
    """Draw shares as groups of bars: {group: [(name, count, total)]}."""
    spans = {
        group: [(name, c / n if n else 0.0, *wilson_interval(c, n)) for name, c, n in bars]
        for group, bars in groups.items()
    }
    return grouped_bars(spans, title)


@style()
def disagreement_matrix(agreement: Agreement, names: Sequence[str]) -> Drawing:
    """Draw how often each pair of answers to the same image occurs; rows sum to 100 %.

    A row is an answer, a column the answer of another annotator of the image. Darker is more.

    Args:
        names: names of the rows and columns of the matrix, in order.
    """
    totals = agreement.matrix.sum(axis=1)
    row, above = max(CELL, LINE * lines_of(names)), LINE * lines_of(names, COLUMN)
    axes = new_axes(row * len(names) + above + 50)
    middles = [(name, row * (i + 0.5)) for i, name in enumerate(names)]
    for i, (name, y) in enumerate(middles):
        for j, other in enumerate(names):
            share = float(agreement.matrix[i, j] / totals[i]) if totals[i] else float("nan")
            told = f"{name}, another: {other}: {percent(share, 1)}"
            fill = (ACCENT, share if share == share else 0.0)
            bar(axes, (j - 0.485, j + 0.485), y, row - 2, told, facecolor=fill, edgecolor=RULE)
            strong = {"color": PAPER, "fontweight": "bold"} if share > STRONG else {}
            write(axes, percent(share, 1), (j, y), ha="center", **strong)
        up = (0, 10 + above / 2)
        write(axes, name, (i, 0), up, width=COLUMN, ha="center")
    name_rows(axes, middles, row * len(names))
    axes.set(xlim=(-0.5, len(names) - 0.5), xticks=[])
    title = "answer of another annotator of the same image"
    axes.set_title(title, fontsize=SMALL, color=QUIET, pad=above + 18)
    return Drawing.of(axes, "Disagreement between annotators")
