"""Tables 4 and 5 of XMAI, and people's judgements (section 5.1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from annotated_types import Interval

from cfaug.annotation.forms import ORIGINAL
from cfaug.annotation.ratings import FILE as RATINGS
from cfaug.annotation.ratings import OVERALL, Score, read_summary
from cfaug.annotation.record import FILE as RECORD
from cfaug.annotation.record import read_record
from cfaug.core.errors import UserError
from cfaug.core.validation import check_fields
from cfaug.evaluation.text_pairs.text_pair_items import OverlapItems
from cfaug.papers.xmai.answer_tables import (
    DIGITS,
    Checkpoints,
    PairTable,
)
from cfaug.report.arm_results import Runs
from cfaug.report.document import Column, Document, Entry, Part, make_part, text_column
from cfaug.report.page import DASH, p_text, percent
from cfaug.report.paper_tables import PaperTable, published
from cfaug.stats.item_tests import mcnemar
from cfaug.stats.significance import Equivalence, SeedSummary, equivalence

# Tables 4 and 5 of XMAI: the number of inserted words and of changed texts.

OVERLAP_COMMANDS = (
    "python evaluate.py benchmark=text_overlap "
    "'benchmark.data={eda: shards/eda, xmai: shards/xmai}'",
)


@dataclass(frozen=True, kw_only=True)
class CountTable(PairTable):
    """A row per method; counts need no model, so each of our columns is one set of answers."""

    commands: Sequence[str] = OVERLAP_COMMANDS
    """the commands that make what it needs"""
    benchmark: str = "text_overlap"

    counts: ClassVar[Sequence[tuple[str, str, Callable[[Any, str], Entry]]]]
    """The name, the group and the cell of each column; ``{}`` stands for the set's name."""
    note: ClassVar[str]

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers and ours."""
        by_model = self.read(runs, OverlapItems)
        self.require(by_model, f"answers to benchmark={self.benchmark}")
        theirs = self.printed("Method", "method", lambda _, value: self.show_printed(value))
        if not by_model:
            return self.document(theirs)

        def cell(
            checkpoints: Checkpoints, count: Callable[[Any, str], Entry], printed: str
        ) -> Entry:
            method = self.named(checkpoints).get(printed)
            return Entry(DASH) if method is None else count(checkpoints[0], method)

        there = dict.fromkeys(
            name for checkpoints in by_model.values() for name in self.named(checkpoints)
        )
        printed = [name for name in self.methods if name in there]
        printed += [name for name in there if name not in self.methods]
        columns = [
            Column(header.format(name), partial(cell, checkpoints, count), group.format(name))
            for name, checkpoints in by_model.items()
            for header, group, count in self.counts
        ]
        rows = [((name,), name) for name in printed]
        return self.document(theirs, make_part("Ours", ("Method",), columns, rows, [self.note]))

    def show_printed(self, value: Any) -> Entry:
        """Return a value of the paper's table as a cell."""
        raise NotImplementedError


def _mean_sd(value: Sequence[float]) -> Entry:
    mean, sd = value
    return Entry(f"{mean:.{DIGITS}f}", f"{sd:.{DIGITS}f}", numbers={"value": mean, "sd": sd})


def _words(items: OverlapItems, method: str) -> Entry:
    values = np.array(list(items.by_key("inserted_words", method).values()))
    entry = _mean_sd((float(values.mean()), float(values.std())))
    return replace(entry, numbers={**entry.numbers, "n": float(len(values))})


def _count(n: int, of: int) -> Entry:
    numbers = {"value": float(n), **({"n": float(of)} if of else {})}
    return Entry(f"{n:,}", small=f"{percent(n / of, 1)} %" if of else "", numbers=numbers)


def _changed(metric: str, items: OverlapItems, method: str) -> Entry:
    values = items.by_key(metric, method).values()
    return _count(int(sum(values)), len(values))


@dataclass(frozen=True, kw_only=True)
class InsertedWordsTable(CountTable):
    """Mean and standard deviation of the number of new words (Table 4)."""

    counts = (("{}", "", _words),)
    note = (
        "Distinct words of the changed text that the original does not have, without punctuation, "
        "case kept. ± is the population standard deviation over texts."
    )

    def show_printed(self, value: Sequence[float]) -> Entry:
        return _mean_sd(value)


@dataclass(frozen=True, kw_only=True)
class ModifiedTable(CountTable):
    """The numbers of texts with a new word, and of texts with any change (Table 5)."""

    counts = (
        ("r/i", "{}", partial(_changed, "novel")),
        ("any", "{}", partial(_changed, "changed")),
    )
    note = "r/i: texts with a new word, by replacement or insertion. Small: the share of all texts."

    def show_printed(self, value: int) -> Entry:
        return _count(value, 0)


# People's judgements of XMAI's captions (section 5.1): preference and quality.

PREFER_NOTE = "Photos for which more than half of the annotators prefer one caption; p: sign test."
QUALITY_NOTE = (
    "Mean ± standard deviation over captions of each caption's mean over annotators. Different: "
    "Welch's two-sided test; a large p does not show equality. Equivalent: two one-sided tests "
    "(TOST). A small p shows that the means differ by less than {margin:g}, the setting "
    "table.margin; the 90 % interval then lies within it."
)


@dataclass(frozen=True, kw_only=True)
class PreferenceTable(PaperTable):
    """The paper's numbers with additional tests, and ours.

    Args:
        preference: the folder below ``paths.runs`` of the answers to
            ``annotate/question=preference``.
        quality: the folder below ``paths.runs`` of the answers to ``annotate/question=quality``.
        margin: the margin of equivalence on the scale: means that differ by less count as equal.
    """

    preference: str = "preference"
    quality: str = "quality"
    margin: Annotated[float, Interval(gt=0, lt=9)] = 0.25

    def __post_init__(self) -> None:
        check_fields(self, "table")

    def build(self, runs: Runs) -> Document:
        """Return the parts on which caption people prefer, and on whether quality is the same."""
        file, ratings_file = (
            runs.root / folder / name
            for folder, name in ((self.preference, RECORD), (self.quality, RATINGS))
        )
        self.require(
            file.exists() or ratings_file.exists(), f"{file}: nobody was asked",
            f"{ratings_file}: nobody was asked",
        )  # fmt: skip
        parts = [*self._theirs()]
        if file.exists():
            record = read_record(file)
            preference: Any = record.extra.get("preference")
            try:
                first, second = (str(preference[name]) for name in ("first", "second"))
                counts = [int(preference["counts"][name]) for name in (first, second, "neither")]
                if min(counts) < 0:
                    raise ValueError("a count below 0")
            except (TypeError, KeyError, ValueError) as error:
                raise UserError(
                    f"{file} does not hold answers to annotate/question=preference ({error!r}): "
                    "read them with cfaug annotate read annotate/question=preference"
                ) from error
            agreed = record.agreement.alpha
            notes = [] if math.isnan(agreed) else [f"Krippendorff's alpha {agreed:.2f}."]
            answers = [((f"{first} against {second}",), counts)]
            parts.append(make_part(f"Ours: {record.title}", ("Captions",), PREFER, answers, notes))
        if ratings_file.exists():
            ratings = read_summary(ratings_file)
            scales = [field for field in ratings.fields.values() if field.kind == "scale"]
            field = scales[0] if scales else None
            if field is None or ORIGINAL not in field.by:
                raise UserError(
                    f"{ratings_file} has no scale about original captions: read the answers to "
                    "annotate/question=quality"
                )
            original = _summary(field.by[ORIGINAL])
            alpha = Entry(DASH)
            if not math.isnan(field.alpha):
                numbers = {"value": field.alpha, "n": float(field.several)}
                alpha = Entry(f"{field.alpha:.2f}", numbers=numbers)
            rows = [
                ((kind,), self._compare(original, _summary(score), alpha))
                for kind, score in field.by.items()
                if kind not in (ORIGINAL, OVERALL)
            ]
            title = f"Ours: {field.title}, {ratings.source}, {ratings.annotators} annotators"
            parts.append(make_part(title, ("Captions",), QUALITY, rows))
        return self.document(*parts)

    def _theirs(self) -> list[Part]:
        paper = published(self.name)
        rows = []
        for row in paper["rows"]:
            *counts, examples = row["values"]
            assert examples == sum(counts)
            rows.append(((f"{row['first']} against {row['second']}",), counts))
        original, changed = (SeedSummary(*paper["quality"][name]) for name in ("Original", "XMAI"))
        prefer = make_part(
            f"{self.paper}, preference",
            ("Captions",),
            PREFER,
            rows,
            (paper["note"], PREFER_NOTE),
            ours=False,
        )
        alpha = Entry(f"{paper['alpha']:.2f}", numbers={"value": paper["alpha"]})
        quality = make_part(
            f"{self.paper}, quality from 1 to 5",
            ("Captions",),
            QUALITY,
            [(("XMAI",), self._compare(original, changed, alpha))],
            (QUALITY_NOTE.format(margin=self.margin),),
            ours=False,
        )
        return [prefer, quality]

    def _compare(self, original: SeedSummary, changed: SeedSummary, alpha: Entry) -> Quality:
        return Quality(original, changed, equivalence(original, changed, self.margin), alpha)


class Quality(NamedTuple):
    """Ratings of original and changed captions, compared; and the annotators' agreement."""

    original: SeedSummary
    changed: SeedSummary
    test: Equivalence
    alpha: Entry


def _difference(quality: Quality) -> Entry:
    test = quality.test
    small = f"[{test.low:+.2f}, {test.high:+.2f}]" if test.p == test.p else ""
    return Entry(f"{test.difference:+.2f}", small=small, numbers={"value": test.difference})


def _summary(score: Score) -> SeedSummary:
    return SeedSummary(score.mean, score.sd, score.images)


def _mean(summary: SeedSummary) -> Entry:
    entry = Entry(f"{summary.mean:.2f}", numbers={"value": summary.mean, "n": float(summary.n)})
    if math.isnan(summary.sd):
        return entry
    spread = {**entry.numbers, "sd": summary.sd}
    return replace(entry, sub=f"{summary.sd:.2f}", numbers=spread)


QUALITY: tuple[Column[Quality], ...] = (
    Column("original", lambda quality: _mean(quality.original)),
    Column("changed", lambda quality: _mean(quality.changed)),
    Column("difference [90 %]", _difference),
    text_column("t", lambda q: f"{q.test.t:.3f}" if q.test.p == q.test.p else DASH),
    text_column("p, different", lambda quality: p_text(quality.test.p_different)),
    text_column("p, equivalent", lambda quality: p_text(quality.test.p)),
    Column("alpha", lambda quality: quality.alpha),
)


def _preferred(which: int, counts: Sequence[int]) -> Entry:
    numbers = {"value": float(counts[which]), "n": float(sum(counts))}
    return Entry(f"{counts[which]:,}", numbers=numbers)


PREFER: tuple[Column[Sequence[int]], ...] = (
    Column("prefer the first", partial(_preferred, 0)),
    Column("prefer the second", partial(_preferred, 1)),
    Column("neither", partial(_preferred, 2)),
    text_column("photos", lambda counts: f"{sum(counts):,}"),
    text_column("p", lambda counts: p_text(mcnemar(counts[0], counts[1]))),
)
"""Of how often people prefer the first caption, the second, and neither."""
