"""Do altered classes gain, and are altered subjects confused: Table 6 and A.3.2 of COCO-CFs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from cfaug.annotation.findings import Findings, ReportSection
from cfaug.core.errors import UserError
from cfaug.core.validation import Positive, check_fields
from cfaug.data.captions import altered_subjects
from cfaug.evaluation.label_frequency import FILE, Association, associate
from cfaug.papers.coco_cf.tables import PLACES, Place, ValueColumn, columns_of
from cfaug.report.arm_results import MissingError, Runs, require_one_test
from cfaug.report.document import Column, Document, Entry, Part, make_part
from cfaug.report.page import DASH, p_text, percent
from cfaug.report.paper_tables import published
from cfaug.report.results import read_record
from cfaug.stats.significance import summarise

# Gains against label frequency, with the paper's p and one over whole data sets (Table 6).


@dataclass(frozen=True)
class GainTable:
    """A row per data set: the pairs that alter one of its classes, and each mixture's gain.

    Args:
        name: the name of the paper's numbers and of the output files.
        paper: the source of the paper's numbers, the title of their part.
        columns: {data set: settings of ``Column``}.
        before: the ``experiment/arm`` from which gains are measured.
        mixtures: {printed name: ``experiment/arm``}, one for each of the paper's mixtures.
        partial: whether to print dashes for missing values.
    """

    name: str
    title: str
    """the heading"""
    paper: str
    columns: Mapping[str, Mapping[str, Any]]
    before: str
    mixtures: Mapping[str, str]
    commands: Sequence[str]
    """the commands that make what it needs"""
    notes: Sequence[str] = ()
    """sentences under the table"""
    partial: bool = False

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours for every place where they were measured."""
        columns = tuple(c for c in columns_of(self.columns, None, None) if c.metric)
        paper = published(self.name)
        theirs = np.array([row["values"] for row in paper["rows"]], np.float64)
        names = [row["dataset"] for row in paper["rows"]]
        parts = self._parts(self.paper, names, theirs[:, 0], theirs[:, 1:], ours=False)
        missing: list[str] = []
        for place in PLACES:
            frequency, gains, lacks = self._measure(runs, columns, place)
            if len(lacks) == len(columns) * (len(self.mixtures) + 2):
                continue  # no measurements there
            missing += lacks
            heads = [c.header(place) for c in columns]
            where = "the embedded world ShapeScapes" if place == "world" else "real data"
            parts += self._parts(f"Ours: {where}", heads, frequency, gains, ours=True)
        if (missing or len(parts) == 2) and not self.partial:
            none = [f"classification results of {arm}" for arm in self._arms]
            raise MissingError(self.name, missing or none, self.commands)
        return Document(self.name, self.title, tuple(parts), (paper["note"], *self.notes))

    @property
    def _arms(self) -> list[str]:
        return [self.before, *self.mixtures.values()]

    def _measure(
        self, runs: Runs, columns: Sequence[ValueColumn], place: Place
    ) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Return frequencies (D,), gains in points (D, mixtures), and names of missing values."""
        # The label frequencies in the counterfactual source that the mixtures share.
        counts: dict[str, int] = {}
        for folder in (folder for arm in self.mixtures.values() for folder in runs.folders(arm)):
            file = folder / FILE
            counted = read_record(file).get("frequency", {}) if file.exists() else {}
            for benchmark, count in counted.items():
                if counts.setdefault(benchmark, count) != count:
                    raise UserError(
                        f"{file}: {benchmark} has {count} pairs, another run {counts[benchmark]}"
                    )
        benchmarks = {str(getattr(column, place)) for column in columns}
        require_one_test(self.name, [(name, runs.arm(name)) for name in self._arms], benchmarks)
        frequency = np.full(len(columns), np.nan)
        means = np.full((len(columns), len(self._arms)), np.nan)
        lacks = []
        for i, column in enumerate(columns):
            benchmark = str(getattr(column, place))
            if benchmark in counts:
                frequency[i] = counts[benchmark]
            else:
                lacks.append(f"the label frequency of {benchmark}")
            for j, name in enumerate(self._arms):
                values = runs.arm(name).values((benchmark, str(column.metric)))
                if values:
                    means[i, j] = 100 * summarise(list(values.values())).mean
                else:
                    lacks.append(f"{benchmark} of {name}")
        return frequency, means[:, 1:] - means[:, :1], lacks

    def _parts(
        self,
        title: str,
        names: Sequence[str],
        frequency: np.ndarray,
        gains: np.ndarray,
        *,
        ours: bool,
    ) -> list[Part]:
        # The paper's order is by gain; ours is by frequency, as some gains may be missing.
        order = np.argsort(-np.nan_to_num(frequency), kind="stable") if ours else range(len(names))

        def gain(mixture: int, row: int) -> Entry:
            return _number(gains[row, mixture], "+.2f")

        columns: list[Column[int]] = [
            Column("Label frequency", lambda row: _number(frequency[row], ",.0f")),
            *(Column(f"Δ {name}", partial(gain, at)) for at, name in enumerate(self.mixtures)),
        ]
        rows = [((names[i],), int(i)) for i in order]
        parts = [make_part(title, ("Data set",), columns, rows, ours=ours)]
        kept = np.isfinite(frequency) & np.isfinite(gains).all(axis=1)
        if not kept.any():
            return parts
        known, changes, count = frequency[kept], gains[kept], int(kept.sum())
        association = associate(known, changes)
        # Notes on the data of the correlation, or the reason why there is none.
        notes = [f"Frequency and gains of {count} data set{'s' * (count > 1)}; two-sided p."]
        if count < 3:
            notes.append("There is no correlation of fewer than 3 data sets.")
        elif np.ptp(known) == 0:
            notes.append("There is no correlation: every data set has the same label frequency.")
        elif np.ptp(changes) == 0:
            notes.append("There is no correlation: every gain is the same.")
        elif (known == 0).any():
            notes.append("A label frequency is 0: log10 is of frequency + 1.")
        name = f"{title}: correlation"
        parts.append(make_part(name, ("",), CORRELATION, [(("",), association)], notes, ours=ours))
        return parts


def _number(value: float, form: str) -> Entry:
    return Entry(DASH) if math.isnan(value) else Entry(f"{value:{form}}", numbers={"value": value})


def _p(value: float) -> Entry:
    return Entry(DASH) if math.isnan(value) else Entry(p_text(value), numbers={"value": value})


CORRELATION: tuple[Column[Association], ...] = (
    Column("Pearson r", lambda association: _number(association.r, ".3f")),
    Column("p, every gain counted as independent", lambda association: _p(association.naive_p)),
    Column("p, whole data sets exchanged", lambda association: _p(association.permutation_p)),
    Column("Spearman r", lambda association: _number(association.spearman, ".3f")),
    Column("Pearson r with log10 frequency", lambda association: _number(association.log_r, ".3f")),
    Column(
        "p of it, whole data sets exchanged", lambda association: _p(association.log_permutation_p)
    ),
)


# Altered subjects in errors, and which are hard to tell apart (COCO-CFs, A.3.2).

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
    def read(cls, record: Mapping[str, Any]) -> Subjects:
        """Read the output of ``asdict``; raises ``KeyError`` or ``TypeError`` for anything else."""
        kinds = record["hyponymy"]
        return cls(
            at_least=int(record["at_least"]),
            kinds=int(record["kinds"]),
            most=int(record["most"]),
            altered=tuple((str(a), str(b), int(n)) for a, b, n in record["altered"]),
            human=_rate(record["human"]),
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


def _rate(counts: Mapping[str, Any]) -> ErrorRate:
    return ErrorRate(int(counts["images"]), int(counts["errors"]))


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
        return all(len(item.texts) == 2 for item in findings.items)

    def analyse(self, findings: Findings, simulated: bool) -> ReportSection:
        """Return the subjects of the errors as a section of the report.

        Args:
            findings: the answers to the question which of two captions an image matches.
            simulated: whether all annotators were simulated; then the paper's numbers are left out.
        """
        related = None
        if self.wordnet_senses is not None:
            from cfaug.editing.wordnet import Hyponymy

            related = Hyponymy(self.wordnet_senses).related
        subjects = count_subjects(findings, self.at_least, related)
        notes = subjects.notes()
        if subjects.human.images and not simulated:
            notes = (notes[0], notes[1].removesuffix(".") + PAPERS_HUMAN + ".")
        return ReportSection(
            title="Altered subjects in errors",
            columns=("altered subjects", "errors"),
            rows=tuple((f"{a} → {b}", f"{n:,}") for a, b, n in subjects.altered),
            notes=notes,
            sentences=() if subjects.hyponymy is None else (describe_hyponymy(*subjects.hyponymy),),
            data=asdict(subjects),
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
    """
    if any(len(item.texts) != 2 for item in findings.items):
        raise UserError(
            "annotate.analyses.altered_subjects compares the two captions of a pair; the question "
            f"{findings.question.title!r} is not about pairs: leave the analysis out"
        )
    subjects = {i: altered_subjects(*findings.items[i].texts) for i in findings.by_item}
    counts = Counter(subjects[i] for i in findings.rejected)
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
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
