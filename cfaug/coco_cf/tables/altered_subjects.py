"""Altered subjects in errors, and which are hard to tell apart (COCO-CFs, A.3.2)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from cfaug.annotation.findings import Findings
from cfaug.annotation.sections import ReportSection
from cfaug.core.caption_difference import altered_subjects
from cfaug.core.errors import UserError
from cfaug.core.validation import Positive, check_fields
from cfaug.report.numbers import percent

HUMAN = frozenset({
    "girl", "boy", "man", "men", "woman", "guy", "kid", "person", "people", "child", "children",
    "couple", "group", "lady",
})  # fmt: skip
"""Words of the human taxonomy (COCO-CFs, A.3.2)."""

PAPERS_HUMAN = " (in the paper 1,864 of 4,117, which is 45.28 %)"


@dataclass(frozen=True)
class ErrorRate:
    """The number of errors among some images."""

    images: int
    errors: int

    @property
    def share(self) -> float:
        """The share of errors, ``nan`` without images."""
        return self.errors / self.images if self.images else math.nan


@dataclass(frozen=True)
class Subjects:
    """Counts of errors by altered subject.

    Attributes:
        at_least: smallest number of errors of listed altered subjects.
        kinds: number of distinct altered subjects in errors.
        most: number of errors of the most frequent altered subject.
        altered: (before, after, errors) of the listed altered subjects, most frequent first.
        human: the errors among images of human subjects.
        hyponymy: the errors among images whose altered subjects are kinds of each other, and among
            the others; ``None`` without a lookup.
    """

    at_least: int
    kinds: int
    most: int
    altered: tuple[tuple[str, str, int], ...]
    human: ErrorRate
    hyponymy: tuple[ErrorRate, ErrorRate] | None

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Subjects:
        """Read the output of ``asdict``; raises ``KeyError`` or ``TypeError`` for anything else."""
        kinds = found["hyponymy"]
        return cls(
            at_least=int(found["at_least"]),
            kinds=int(found["kinds"]),
            most=int(found["most"]),
            altered=tuple((str(a), str(b), int(n)) for a, b, n in found["altered"]),
            human=_rate(found["human"]),
            hyponymy=None if kinds is None else (_rate(kinds[0]), _rate(kinds[1])),
        )

    def notes(self) -> tuple[str, ...]:
        """Return sentences about the list and the listed subjects."""
        listed = (
            f"{len(self.altered):,} of {self.kinds:,} altered subjects have at least "
            f"{self.at_least} errors; the most is {self.most}."
        )
        if not self.human.images:
            return (listed, "No altered subject is a word of the paper's human taxonomy.")
        return (
            listed,
            f"Human taxonomy: {self.human.errors:,} errors of {self.human.images:,} images, "
            f"{percent(self.human.share, 1)} %.",
        )


def _rate(found: Mapping[str, Any]) -> ErrorRate:
    return ErrorRate(int(found["images"]), int(found["errors"]))


@dataclass(frozen=True)
class AlteredSubjects:
    """Counts errors by altered subject: Table 10, the human taxonomy and hyponymy.

    Args:
        at_least: smallest number of errors of listed altered subjects (20 in Table 10).
        wordnet_senses: number of senses of the altered subjects to look up in WordNet, to separate
            those that are kinds of each other; ``None`` for no lookup.

    Raises:
        UserError: if ``at_least`` is not a whole number from 1.
    """

    at_least: Positive = 20
    wordnet_senses: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, "annotate.analyses.altered_subjects")

    def concerns(self, findings: Findings) -> bool:
        """Return whether all images belong to pairs."""
        return all(len(item.texts) == 2 for item in findings.items)

    def analyse(self, findings: Findings, simulated: bool) -> ReportSection:
        """Return the subjects of the errors as a section of the report.

        Args:
            findings: the answers to the question which of two captions an image matches.
            simulated: whether all annotators were simulated; then the paper's numbers are left out.

        Raises:
            UserError: if an image does not belong to a pair, or WordNet is needed and missing.
        """
        related = None
        if self.wordnet_senses is not None:
            from cfaug.editing.wordnet import Hyponymy

            related = Hyponymy(self.wordnet_senses).related
        found = count_subjects(findings, self.at_least, related)
        notes = found.notes()
        if found.human.images and not simulated:
            notes = (notes[0], notes[1].removesuffix(".") + PAPERS_HUMAN + ".")
        return ReportSection(
            title="Altered subjects in errors",
            columns=("altered subjects", "errors"),
            rows=tuple((f"{a} → {b}", f"{n:,}") for a, b, n in found.altered),
            notes=notes,
            sentences=() if found.hyponymy is None else (describe_hyponymy(*found.hyponymy),),
            data=asdict(found),
        )


def count_subjects(
    findings: Findings, at_least: int, related: Callable[[str, str], bool] | None = None
) -> Subjects:
    """Count errors by the altered subjects of their pairs.

    Args:
        findings: the answers to the question which of two captions an image matches.
        at_least: smallest number of errors of listed altered subjects.
        related: a function that returns whether one of two nouns is a kind of the other; ``None``
            for no lookup.

    Raises:
        UserError: if an image does not belong to a pair.
    """
    if any(len(item.texts) != 2 for item in findings.items):
        raise UserError(
            "annotate.analyses.altered_subjects compares the two captions of a pair; the question "
            f"{findings.question.title!r} is not about pairs: leave the analysis out"
        )
    subjects = {i: altered_subjects(*findings.items[i].texts) for i in findings.by_item}
    counts = Counter(subjects[i] for i in findings.rejected)
    ordered = sorted(counts.items(), key=lambda found: (-found[1], found[0]))
    wrong = set(findings.rejected)

    def rate(images: list[int]) -> ErrorRate:
        return ErrorRate(len(images), len(wrong.intersection(images)))

    hyponymy = None
    if related is not None:
        known = lru_cache(maxsize=None)(related)
        kinds = [i for i in subjects if known(*subjects[i])]
        hyponymy = rate(kinds), rate(sorted(subjects.keys() - set(kinds)))
    return Subjects(
        at_least=at_least,
        kinds=len(counts),
        most=max(counts.values(), default=0),
        altered=tuple((a, b, n) for (a, b), n in ordered if n >= at_least),
        # The altered subject of the image's own caption says whether it shows a person.
        human=rate([i for i in subjects if subjects[i][findings.items[i].member] in HUMAN]),
        hyponymy=hyponymy,
    )


def describe_hyponymy(kinds: ErrorRate, others: ErrorRate) -> str:
    """Return a sentence on the errors of altered subjects that are kinds of each other.

    If one is a kind of the other, both captions may fit an image (COCO-CFs, A.3.1).
    """
    if not kinds.images:
        return "No altered subjects are kinds of each other (WordNet)."
    return (
        f"Where the altered subjects are kinds of each other (WordNet), {percent(kinds.share, 1)} "
        f"% of {kinds.images:,} images are errors; elsewhere {percent(others.share, 1)} % of "
        f"{others.images:,}."
    )
