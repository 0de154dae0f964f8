"""Findings from the answers to a question: outcomes, agreement, and rejected images."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cfaug.annotation.question import AnnotationQuestion
from cfaug.annotation.records import Answer, ImageItem
from cfaug.annotation.strata import STRATA, Strata, name_stratum
from cfaug.core.errors import UserError
from cfaug.core.rng import derive
from cfaug.report.page import percent
from cfaug.stats.agreement import coincidence_matrix, fleiss_kappa, krippendorff_alpha


@dataclass(frozen=True)
class AnswerCounts:
    """Counts of the answers to some images.

    Attributes:
        counts: {outcome: number of images}; an image with several answers counts once, in equal
            parts.
    """

    name: str
    images: int
    answers: int
    counts: Mapping[str, float]

    def share(self, *outcomes: str) -> float:
        """Return the share of the images with any of some outcomes; ``nan`` without images."""
        return sum(self.counts[o] for o in outcomes) / self.images if self.images else math.nan


@dataclass(frozen=True)
class Agreement:
    """The agreement between annotators of the same image.

    Attributes:
        raters: number of answers per image for Fleiss' kappa, chosen so that the images with that
            many answers have the most answers in total; the larger number on a tie.
        fleiss: Fleiss' kappa over those images; ``nan`` if fewer than two people answered.
        several: number of images with two or more answers, for ``alpha``.
        alpha: Krippendorff's alpha for nominal data, over ``several``.
        disputed: number of those images whose answers differ.
        labels: share of each outcome among the answers to disputed images.
        matrix: number of pairs of answers to the same image by their two outcomes, (outcomes,
            outcomes), in the order of ``Question.reported``; an image counts as many times as it
            has answers.
    """

    raters: int
    images: int
    fleiss: float
    several: int
    alpha: float
    disputed: int
    labels: Mapping[str, float]
    matrix: np.ndarray


@dataclass(frozen=True)
class Findings:
    """The answers to some images, and statistics of them.

    Attributes:
        answers: the answers, at most one per annotator and image.
    """

    question: AnnotationQuestion
    items: Sequence[ImageItem]
    answers: Sequence[Answer]

    @cached_property
    def by_item(self) -> dict[int, list[str]]:
        """The answers to each image, by its index, in the order of the source."""
        labels: dict[int, list[str]] = {}
        for answer in sorted(self.answers, key=lambda a: (a.item, a.annotator)):
            labels.setdefault(answer.item, []).append(answer.label)
        return labels

    @cached_property
    def annotators(self) -> list[str]:
        """The names of the annotators; numbers are in numerical order."""
        names = {answer.annotator for answer in self.answers}
        return sorted(names, key=lambda n: (not n.isdecimal(), len(n) if n.isdecimal() else 0, n))

    def outcome(self, answer: Answer) -> str:
        """Return the outcome of an answer."""
        return self.question.outcome(self.items[answer.item], answer.label)

    def outcomes_of(self, i: int) -> list[str]:
        """Return the outcomes of the answers to an image."""
        return [self.question.outcome(self.items[i], label) for label in self.by_item[i]]

    def tallies(self) -> tuple[AnswerCounts, ...]:
        """Return the counts of answers for each of the question's sets of images, then for all."""
        tallies = []
        for member, name in [*enumerate(self.question.image_sets), (None, "All images")]:
            counts = dict.fromkeys(self.question.reported, 0.0)
            indices = [i for i in self.by_item if member is None or self.items[i].member == member]
            for i in indices:
                outcomes = self.outcomes_of(i)
                for outcome in outcomes:
                    counts[outcome] += 1 / len(outcomes)
            answers = sum(len(self.by_item[i]) for i in indices)
            tallies.append(AnswerCounts(name, len(indices), answers, counts))
        return tuple(tallies)

    @cached_property
    def rejected(self) -> list[int]:
        """Indices of answered images that at most half of their answers accept."""
        accepted = self.question.accepted
        return [
            i
            for i in self.by_item
            if 2 * sum(o in accepted for o in self.outcomes_of(i)) <= len(self.by_item[i])
        ]

    def sample_rejected(self, count: int, seed: int) -> list[int]:
        """Return ``count`` rejected images drawn by key, in the order drawn, or all if fewer."""
        if type(count) is not int or count < 1:
            raise UserError(f"{count} is an invalid number of rejected images: choose 1 or more")
        keys = {i: derive(seed, "error", self.items[i].name) for i in self.rejected}
        return sorted(keys, key=keys.__getitem__)[:count]

    def agreement(self) -> Agreement:
        """Measure agreement on the images that several annotators answered."""
        several = {i: labels for i, labels in self.by_item.items() if len(labels) > 1}
        times = Counter(map(len, several.values()))
        # A single image with one more answer should not exclude all the others.
        raters = max(times, key=lambda n: (n * times[n], n), default=0)
        full = [labels for labels in several.values() if len(labels) == raters]
        disputed = {i: labels for i, labels in several.items() if len(set(labels)) > 1}
        outcomes = Counter(outcome for i in disputed for outcome in self.outcomes_of(i))
        row_of = {i: row for row, i in enumerate(several)}
        column = {name: i for i, name in enumerate(self.annotators)}
        table = np.full((len(several), len(column)), np.nan)
        for answer in self.answers:
            if answer.item in row_of:
                row, who = row_of[answer.item], column[answer.annotator]
                table[row, who] = self.question.labels.index(answer.label)
        names = self.question.reported
        matrix = np.zeros((len(names), len(names)))
        if several:
            outcomes_of = [self.outcomes_of(i) for i in several]
            counts = [[outcome.count(name) for name in names] for outcome in outcomes_of]
            matrix = coincidence_matrix(np.array(counts, np.float64))
        return Agreement(
            raters=raters,
            images=len(full),
            fleiss=fleiss_kappa(
                [[labels.count(label) for label in self.question.labels] for labels in full]
            ),
            several=len(several),
            alpha=krippendorff_alpha(table),
            disputed=len(disputed),
            labels={name: outcomes[name] / max(1, outcomes.total()) for name in names},
            matrix=matrix,
        )

    def said_of(self, i: int) -> str:
        """Return a summary of an image's answers: ``incorrect``, or ``2 correct, 1 both``."""
        counts = Counter(self.outcomes_of(i))
        if counts.total() == 1:
            return next(iter(counts))
        return ", ".join(f"{counts[o]} {o}" for o in self.question.reported if counts[o])

    def label_lines(self) -> Iterator[dict[str, object]]:
        """Yield every answer in the format of ``data.human_labels``, in the order of the source."""
        for answer in sorted(self.answers, key=lambda a: (a.item, a.annotator)):
            item = self.items[answer.item]
            yield {
                "key": item.key,
                "member": item.member,
                "annotator": answer.annotator,
                self.question.field: answer.label,
            }


# Further findings in the answers: sections of the report, made by analyses.


@dataclass(frozen=True)
class ReportSection:
    """A section of ``annotation.html``, and its data for ``annotation.json``.

    Attributes:
        rows: the rows of the table; the first cell names the row.
        notes: lines below the table.
        data: further keys of ``annotation.json`` and their values, JSON.
    """

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


class Analysis(Protocol):
    """An analysis of the answers."""

    def analyse(self, findings: Findings, simulated: bool) -> ReportSection:
        """Return the findings."""
        ...


@runtime_checkable
class Selective(Analysis, Protocol):
    """An analysis that applies only to some questions."""

    def concerns(self, findings: Findings) -> bool:
        """Return whether the analysis applies."""
        ...


def count_strata(findings: Findings, strata: Strata) -> ReportSection:
    """Count outcomes by stratum: a section of the report, and the data for tables.

    An image with several answers counts once, in equal parts.
    """
    names = findings.question.reported
    wording = findings.question.wording
    order = dict.fromkeys(item.stratum for item in findings.items)
    counts: dict[tuple[tuple[str, str], ...], dict[str, float]] = {
        stratum: dict.fromkeys(names, 0) for stratum in order
    }
    images = Counter[tuple[tuple[str, str], ...]]()
    for i in findings.by_item:
        stratum, outcomes = findings.items[i].stratum, findings.outcomes_of(i)
        images[stratum] += 1
        for outcome in outcomes:
            counts[stratum][outcome] += 1 / len(outcomes)
    answered = [stratum for stratum in order if images[stratum]]
    rows = []
    for stratum in answered:
        shares = (percent(counts[stratum][name] / images[stratum], 1) for name in names)
        rows.append((name_stratum(stratum), f"{images[stratum]:,}", *shares))
    return ReportSection(
        title="By what the captions asked for",
        columns=("asked for", "images", *(f"{wording(name)}, %" for name in names)),
        rows=tuple(rows),
        data={
            STRATA: {
                "offered": {label: dict(of) for label, of in strata.offered.items()},
                "tallies": [
                    {"stratum": dict(s), "images": images[s], "counts": counts[s]} for s in answered
                ],
            }
        },
    )
