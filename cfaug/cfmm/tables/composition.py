"""Figure 4 of CFMM: the composition of a question set by category, length and answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cfaug.cfmm.question_items import ALL
from cfaug.core.question_sets import (
    BASIC,
    COUNTERFACTUAL,
    SOURCE,
    VERIFIED,
    AskedImage,
    AskedQuestion,
)
from cfaug.data.sources.question_sets import read_questions
from cfaug.report.arm_results import Runs
from cfaug.report.document import BarPlot, Curve, Document, Entry, Part
from cfaug.report.numbers import DASH, percent
from cfaug.report.paper_tables import PaperTable
from cfaug.report.published import published
from cfaug.stats.significance import summarise

Row = tuple[tuple[str, ...], tuple[Entry, ...]]

COMMANDS = ("python evaluate.py table=cfmm_figure_4 'table.questions={MINE: questions.jsonl}'",)
MEANS_NOTE = "± is over questions. Words are separated by spaces. Answers are the right options."
KINDS_NOTE = (
    "Per cent of the questions: with the right option at each place (mostly one place gives the "
    "answers away), written by a person, and verified by a person. A dash: the set does not say."
)
PLACES = 2
"""Number of positions of the right option that have a column."""


@dataclass(frozen=True, kw_only=True)
class CompositionFigure(PaperTable):
    """Tables and plots of question sets; other arguments as for ``PaperTable``.

    Args:
        questions: {printed name: file of questions, as for ``benchmark=vqa benchmark.data=``}.
        categories: {printed name: category of the questions}, in order; others follow under their
            own names.
        image_roots: absolute folders whose images the files may name, besides their own.
        shown: number of the most frequent right answers to show for each set.
    """

    questions: Mapping[str, str] | None = None
    categories: Mapping[str, str] = field(default_factory=dict)
    image_roots: Sequence[str] = ()
    shown: int = 10
    commands: Sequence[str] = COMMANDS

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, ours, and the plots.

        Raises:
            MissingError: if no file is given, unless ``partial``.
            UserError: if a file cannot be read.
        """
        self.require(self.questions, "table.questions={NAME: FILE}")
        theirs = self.printed("Set", "what", lambda _, value: Entry(
            f"{value:,g}", numbers={"value": value}
        ))  # fmt: skip
        roots = [Path(one) for one in self.image_roots]
        sets = {name: read_questions(file, roots) for name, file in (self.questions or {}).items()}
        if not sets:
            return self.document(theirs, self._categories({}))
        rows = tuple(_sizes(name, images) for name, images in sets.items())
        ours = Part("Ours", theirs.labels, (), theirs.columns, rows, notes=(MEANS_NOTE,))
        return self.document(
            theirs, ours, self._categories(sets), _kinds_part(sets), self._answers_part(sets),
            bars=[self._bars(sets)], curves=[_lengths(name, own) for name, own in sets.items()],
        )  # fmt: skip

    def _counts(self, sets: Mapping[str, Sequence[AskedImage]]) -> dict[str, Counter[str]]:
        """Return {set: number of images by printed category}, the paper's set first."""
        printed = {name: one for one, name in self.categories.items()}
        found = {self.paper: Counter(published(self.name)["categories"])}
        for name, images in sets.items():
            found[name] = Counter(printed.get(one.category, one.category or ALL) for one in images)
        return found

    def _categories(self, sets: Mapping[str, Sequence[AskedImage]]) -> Part:
        counts = self._counts(sets)
        columns = tuple(dict.fromkeys(name for own in counts.values() for name in own))
        rows = tuple(
            ((name,), tuple(_count(own[one], own.total()) for one in columns))
            for name, own in counts.items()
        )
        return Part("Images by category", ("Set",), (), columns, rows, ours=bool(sets))

    def _bars(self, sets: Mapping[str, Sequence[AskedImage]]) -> BarPlot:
        counts = self._counts(sets)
        names = dict.fromkeys(name for own in counts.values() for name in own)
        groups = {
            one: [(name, own[one] / own.total(), None, None) for name, own in counts.items()]
            for one in names
        }
        return BarPlot("Images by category", "share of the images (%)", groups, tuple(counts))

    def _answers_part(self, sets: Mapping[str, Sequence[AskedImage]]) -> Part:
        rows: list[Row] = []
        for name, images in sets.items():
            answers = Counter(
                one.right for image in images for one in image.questions if one.right is not None
            )
            frequent = sorted(answers.items(), key=lambda one: (-one[1], one[0]))[: self.shown]
            rows += [((name, one), (_count(n, answers.total()),)) for one, n in frequent]
        return Part(
            "Ours: the most frequent right answers", ("Set", "Answer"), (), ("questions",),
            tuple(rows),
        )  # fmt: skip


def _sizes(name: str, images: Sequence[AskedImage]) -> Row:
    questions = [one for image in images for one in image.questions]
    by_kind = [[one for one in questions if one.kind == kind] for kind in (BASIC, COUNTERFACTUAL)]
    return (name,), (
        Entry(f"{len(images):,}", numbers={"value": float(len(images))}),
        Entry(f"{len(questions):,}", numbers={"value": float(len(questions))}),
        *(_words([one.text for one in own]) for own in by_kind),
        _words([one.right for one in questions if one.right is not None]),
    )


def _words(texts: Sequence[str]) -> Entry:
    """Return the mean number of words with its spread over texts; a dash without texts."""
    if not texts:
        return Entry(DASH)
    found = summarise([len(text.split()) for text in texts])
    known = len(texts) > 1
    return Entry(
        f"{found.mean:.2f}",
        f"{found.sd:.2f}" if known else "",
        numbers={"value": found.mean, "n": float(found.n), **({"sd": found.sd} if known else {})},
    )


def _count(count: int, of: int) -> Entry:
    small = f"{percent(count / of, 1)} %" if of else ""
    return Entry(f"{count:,}", small=small, numbers={"value": float(count), "n": float(of)})


def _kinds_part(sets: Mapping[str, Sequence[AskedImage]]) -> Part:
    rows: list[Row] = []
    for name, images in sets.items():
        by_kind: dict[str, list[AskedQuestion]] = {}
        for one in (one for image in images for one in image.questions):
            by_kind.setdefault(one.kind, []).append(one)
        rows += [((name, kind), _kind(own)) for kind, own in by_kind.items()]
    columns = ("questions", "words", "options", *(f"right: {n + 1}." for n in range(PLACES)),
               "by a person", "verified")  # fmt: skip
    return Part(
        "Ours: kinds of questions", ("Set", "Kind"), (), columns, tuple(rows), notes=(KINDS_NOTE,)
    )


def _kind(own: Sequence[AskedQuestion]) -> tuple[Entry, ...]:
    answers = [one.answer for one in own if one.right is not None]
    writers = [one.extra[SOURCE] == "human" for one in own if SOURCE in one.extra]
    verified = [one.extra[VERIFIED] is True for one in own if VERIFIED in one.extra]
    options = summarise([len(one.options) for one in own]).mean
    return (
        Entry(f"{len(own):,}", numbers={"value": float(len(own))}),
        _words([one.text for one in own]),
        Entry(f"{options:.3g}", numbers={"value": options}),
        *(_share([answer == place for answer in answers]) for place in range(PLACES)),
        _share(writers),
        _share(verified),
    )


def _share(found: Sequence[bool]) -> Entry:
    if not found:
        return Entry(DASH)
    share = sum(found) / len(found)
    return Entry(percent(share, 1), numbers={"value": share, "n": float(len(found))})


def _lengths(name: str, images: Sequence[AskedImage]) -> Curve:
    """Return the shares of questions with each number of words, by kind."""
    counts: dict[str, Counter[int]] = {}
    for one in (one for image in images for one in image.questions):
        counts.setdefault(one.kind, Counter())[len(one.text.split())] += 1
    series = {
        kind: {
            float(words): {0: own[words] / own.total()} for words in range(min(own), max(own) + 1)
        }
        for kind, own in counts.items()
    }
    return Curve(f"{name}: words of a question", "words", "share of the kind (%)", series)
