"""``annotation.html``: what annotators said, on one page that opens anywhere, offline."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from cfaug.annotation.figures import category_bars, disagreement_matrix, label_bars
from cfaug.annotation.findings import CORRECT, OUTCOMES, Findings, outcome
from cfaug.annotation.page import CATEGORIES, DIFFUSION
from cfaug.annotation.record import Record
from cfaug.metrics.summary import wilson_interval
from cfaug.papers.coco_cf.annotation_tables import NOT_PEOPLE, hyponymy_says
from cfaug.report.numbers import percent
from cfaug.report.page import render, write_page

FILE = "annotation.html"
LISTED = 40
"""Altered subjects that the page lists; the record has them all."""


@dataclass(frozen=True)
class Person:
    """What one annotator answered: shares by outcome."""

    name: str
    answers: int
    shares: tuple[str, ...]


def sentences(record: Record) -> list[str]:
    """Return what was found in plain sentences, the verdict first."""
    everything, agreed = record.tallies[-1], record.agreement
    low, high = wilson_interval(everything.counts[CORRECT], everything.images)
    found = [
        f"{percent(everything.share(CORRECT), 1)} % of {everything.images:,} images were matched "
        f"to their own caption (95 % interval {percent(low, 1)} to {percent(high, 1)}"
        f"{_paper(record, '73.18 % of 34,820')})."
    ]
    if math.isnan(agreed.fleiss):
        found.append("No image has several answers that differ: agreement cannot be measured.")
    else:
        found.append(
            f"On {agreed.images:,} images with {agreed.raters} answers Fleiss' kappa is "
            f"{agreed.fleiss:.2f}; Krippendorff's alpha on {agreed.several:,} images with two or "
            f"more is {agreed.alpha:.2f}{_paper(record, 'kappa 0.74')}."
        )
    if record.sampled:
        known = sum(record.categories[name] for name in DIFFUSION)
        found.append(
            f"Of {record.sampled:,} sorted errors {percent(known / record.sampled, 0)} % are in "
            "the categories that the paper calls known limits of text-to-image diffusion"
            f"{_paper(record, '66 %')}."
        )
    if record.hyponymy is not None:
        found.append(hyponymy_says(*record.hyponymy))
    if everything.images < record.items:
        found.append(f"{record.items - everything.images:,} images have no answer.")
    return found + ([NOT_PEOPLE] if record.simulated else [])


def _paper(record: Record, number: str) -> str:
    """Return the paper's number, to be read beside that of people."""
    return "" if record.simulated else f"; in the paper {number}"


def write_report(record: Record, findings: Findings, folder: Path) -> Path:
    """Write ``annotation.html`` and return its path."""
    verdict, *more = sentences(record)
    text = render(
        "annotation.html",
        title=f"Annotation: {record.title}",
        verdict=verdict,
        more=more,
        record=record,
        outcomes=OUTCOMES,
        bars=label_bars(record.tallies),
        matrix=disagreement_matrix(record.agreement) if record.agreement.several else None,
        causes=category_bars(record.categories, record.sampled, CATEGORIES)
        if record.sampled
        else None,
        categories=CATEGORIES,
        people=_people(findings),
        listed=record.altered[:LISTED],
    )
    return write_page(folder / FILE, text)


def _people(findings: Findings) -> list[Person]:
    counts: dict[str, Counter[str]] = {name: Counter() for name in findings.annotators}
    for answer in findings.answers:
        counts[answer.annotator][outcome(findings.items[answer.item], answer.label)] += 1
    return [
        Person(
            name,
            own.total(),
            tuple(percent(own[found] / own.total(), 1) for found in OUTCOMES),
        )
        for name, own in counts.items()
    ]
