"""Figure 4 of CFMM, and the quantities and claims that follow from Tables 2 and 3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from cfaug.data.questions import (
    BASIC,
    COUNTERFACTUAL,
    SOURCE,
    VERIFIED,
    QuestionImage,
    SourceQuestion,
)
from cfaug.data.sources.question_sets import read_questions
from cfaug.evaluation.questions.question_items import ALL
from cfaug.report.arm_results import Runs
from cfaug.report.document import (
    BarPlot,
    Column,
    Curve,
    Document,
    Entry,
    Part,
    make_part,
    rules_of,
    text_column,
)
from cfaug.report.page import DASH, percent
from cfaug.report.paper_tables import PaperTable, published
from cfaug.stats.choices import phi_from_margins
from cfaug.stats.significance import summarise

# Figure 4 of CFMM: the composition of a question set by category, length and answer.

COMMANDS = ("cfaug table cfmm_figure_4 'table.questions={MINE: questions.jsonl}'",)
MEANS_NOTE = "± is over questions. Words are separated by spaces. Answers are the right options."
KINDS_NOTE = (
    "Per cent of the questions: with the right option at each place (mostly one place gives the "
    "answers away), written by a person, and verified by a person. A dash: the set does not say."
)


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
    """the commands that make what it needs"""

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, ours, and the plots."""
        self.require(self.questions, "table.questions={NAME: FILE}")
        theirs = self.printed("Set", "what", lambda _, value: Entry(
            f"{value:,g}", numbers={"value": value}
        ))  # fmt: skip
        roots = [Path(root) for root in self.image_roots]
        sets = {name: read_questions(file, roots) for name, file in (self.questions or {}).items()}
        # The number of images by printed category, of the paper's set first.
        printed = {name: category for category, name in self.categories.items()}
        counts = {self.paper: Counter(published(self.name)["categories"])}
        for name, images in sets.items():
            counts[name] = Counter(
                printed.get(image.category, image.category or ALL) for image in images
            )
        names = dict.fromkeys(name for counter in counts.values() for name in counter)
        categories = make_part(
            "Images by category",
            ("Set",),
            [Column(name, partial(_count, name)) for name in names],
            [((name,), counter) for name, counter in counts.items()],
            ours=bool(sets),
        )
        if not sets:
            return self.document(theirs, categories)
        groups = {
            category: [
                (name, counter[category] / counter.total(), None, None)
                for name, counter in counts.items()
            ]
            for category in names
        }
        sizes = [Column(name, size) for name, size in zip(theirs.columns, SIZES, strict=True)]
        rows = [((name,), images) for name, images in sets.items()]
        ours = make_part("Ours", theirs.labels, sizes, rows, [MEANS_NOTE])
        by_kind: dict[tuple[str, str], list[SourceQuestion]] = {}
        answered = []
        for name, images in sets.items():
            questions = _all_questions(images)
            for question in questions:
                by_kind.setdefault((name, question.kind), []).append(question)
            answers = Counter(q.right for q in questions if q.right is not None)
            first = sorted(answers.items(), key=lambda item: (-item[1], item[0]))[: self.shown]
            answered += [((name, answer), (answer, answers)) for answer, _ in first]
        title = "Ours: kinds of questions"
        kinds = make_part(title, ("Set", "Kind"), KIND_COLUMNS, by_kind.items(), [KINDS_NOTE])
        columns: list[Column[tuple[str, Counter[str]]]] = [
            Column("questions", lambda row: _count(*row))
        ]
        title = "Ours: the most frequent right answers"
        frequent = make_part(title, ("Set", "Answer"), columns, answered)
        return self.document(
            theirs, ours, categories, kinds, frequent,
            bars=[
                BarPlot("Images by category", "share of the images (%)", groups, tuple(counts))
            ],
            curves=[_lengths(name, images) for name, images in sets.items()],
        )  # fmt: skip


def _all_questions(images: Sequence[QuestionImage]) -> list[SourceQuestion]:
    return [question for image in images for question in image.questions]


def _number(value: int) -> Entry:
    return Entry(f"{value:,}", numbers={"value": float(value)})


SIZES: tuple[Callable[[Sequence[QuestionImage]], Entry], ...] = (
    lambda images: _number(len(images)),
    lambda images: _number(len(_all_questions(images))),
    lambda images: _words([q.text for q in _all_questions(images) if q.kind == BASIC]),
    lambda images: _words([q.text for q in _all_questions(images) if q.kind == COUNTERFACTUAL]),
    lambda images: _words([q.right for q in _all_questions(images) if q.right is not None]),
)
"""The numbers of the figure's columns, in the paper's order."""


def _words(texts: Sequence[str]) -> Entry:
    """Return the mean number of words with its spread over texts; a dash without texts."""
    if not texts:
        return Entry(DASH)
    summary = summarise([len(text.split()) for text in texts])
    known = len(texts) > 1
    return Entry(
        f"{summary.mean:.2f}",
        f"{summary.sd:.2f}" if known else "",
        numbers={
            "value": summary.mean,
            "n": float(summary.n),
            **({"sd": summary.sd} if known else {}),
        },
    )


def _count(name: str, counts: Counter[str]) -> Entry:
    count, of = counts[name], counts.total()
    small = f"{percent(count / of, 1)} %" if of else ""
    return Entry(f"{count:,}", small=small, numbers={"value": float(count), "n": float(of)})


def _options(questions: Sequence[SourceQuestion]) -> Entry:
    options = summarise([len(question.options) for question in questions]).mean
    return Entry(f"{options:.3g}", numbers={"value": options})


def _right(position: int, questions: Sequence[SourceQuestion]) -> Entry:
    return _share(
        [question.answer == position for question in questions if question.right is not None]
    )


def _marked(name: str, value: Any, questions: Sequence[SourceQuestion]) -> Entry:
    return _share(
        [question.extra[name] == value for question in questions if name in question.extra]
    )


def _share(flags: Sequence[bool]) -> Entry:
    if not flags:
        return Entry(DASH)
    share = sum(flags) / len(flags)
    return Entry(percent(share, 1), numbers={"value": share, "n": float(len(flags))})


KIND_COLUMNS: tuple[Column[Sequence[SourceQuestion]], ...] = (
    Column("questions", lambda questions: _number(len(questions))),
    Column("words", lambda questions: _words([question.text for question in questions])),
    Column("options", _options),
    *(Column(f"right: {position + 1}.", partial(_right, position)) for position in range(2)),
    Column("by a person", partial(_marked, SOURCE, "human")),
    Column("verified", partial(_marked, VERIFIED, True)),
)


def _lengths(name: str, images: Sequence[QuestionImage]) -> Curve:
    """Return the shares of questions with each number of words, by kind."""
    counts: dict[str, Counter[int]] = {}
    for question in _all_questions(images):
        counts.setdefault(question.kind, Counter())[len(question.text.split())] += 1
    series = {
        kind: {
            float(words): {0: lengths[words] / lengths.total()}
            for words in range(min(lengths), max(lengths) + 1)
        }
        for kind, lengths in counts.items()
    }
    return Curve(f"{name}: words of a question", "words", "share of the kind (%)", series)


# Quantities derived from Tables 2 and 3 of CFMM, and the claims of its text.

ZERO_SHOT, ICL = "0-shot", "1-shot ICL"
"""Prompts as the paper prints them."""
Setting = tuple[str, str]
"""The printed names of a model and a prompt."""
DERIVED_NOTE = (
    "Drop: acc_b minus acc_c of Table 3, in points. Consistency: the total of acc+ divided by that "
    "of acc_b. phi: computed for each category from its three percentages (Table 2), then averaged "
    "over categories. Its margins are over pairs: below 0, a right basic answer goes with a wrong "
    "counterfactual one."
)
TEXT_NOTE = (
    "Right: the same from the printed tables. 105.75 is neither the average of the 0-shot rows nor "
    "that of all rows."
)


def cells() -> dict[Setting, dict[str, tuple[float, float, float]]]:
    """Return Table 2: acc_b, acc_c and acc+ of each category by model and prompt, per cent."""
    paper = published("cfmm_2")
    return {
        (row["model"], row["prompt"]): {
            name: _three(row["values"][3 * index : 3 * index + 3])
            for index, name in enumerate(paper["categories"])
        }
        for row in paper["rows"]
    }


def totals() -> dict[Setting, tuple[float, float, float]]:
    """Return Table 3: the totals of acc_b, acc_c and acc+ by model and prompt, of up to 600."""
    return {
        (row["model"], row["prompt"]): _three(row["values"]) for row in published("cfmm_3")["rows"]
    }


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    acc_b, acc_c, acc_plus = values
    return acc_b, acc_c, acc_plus


def drop(setting: Setting) -> float:
    """Return the total of basic questions minus that of counterfactual ones, in points."""
    acc_b, acc_c, _ = totals()[setting]
    return acc_b - acc_c


def mean_phi(percentages: Iterable[tuple[float, float, float]]) -> float:
    """Return the correlation of right answers by the margins, averaged over categories.

    Args:
        percentages: acc_b, acc_c and acc+ of each category, per cent.
    """
    return fmean(phi_from_margins(*(value / 100 for value in triple)) for triple in percentages)


def derived_part() -> Part:
    """Return quantities derived from the paper's percentages, a row per model and prompt."""
    printed = cells()

    def consistency(setting: Setting) -> Entry:
        acc_b, _, acc_plus = totals()[setting]
        both = acc_plus / acc_b
        return Entry(f"{100 * both:.1f}", numbers={"value": both})

    columns: tuple[Column[Setting], ...] = (
        Column("drop", lambda row: _entry(drop(row), "{:.2f}")),
        Column("consistency, %", consistency),
        Column("phi", lambda row: _entry(mean_phi(printed[row].values()), "{:+.3f}")),
    )
    return make_part(
        "Derived from the paper's tables",
        ("Model", "Prompt"),
        columns,
        [(setting, setting) for setting in totals()],
        [DERIVED_NOTE],
        rules=rules_of([model for model, _ in totals()]),
        ours=False,
    )


def _entry(value: float, form: str) -> Entry:
    return Entry(form.format(value), numbers={"value": value})


def text_part() -> Part:
    """Return the claims of the paper's text beside the values from its tables."""
    paper = published("cfmm_text")
    columns: tuple[Column[Mapping[str, Any]], ...] = (
        text_column("text", lambda row: f"{row['values'][0]:g}"),
        text_column("tables", lambda row: SAID[row["key"]]()),
    )
    return make_part(
        "The paper's text against its tables",
        ("Of", "Section"),
        columns,
        [((row["what"], row["section"]), row) for row in paper["rows"]],
        (paper["note"], TEXT_NOTE),
        ours=False,
    )


def _cell(model: str, category: str, index: int) -> str:
    return f"{cells()[model, ZERO_SHOT][category][index]:.2f}"


def _mean_and_range(index: int, prompts: tuple[str, ...]) -> str:
    values = [
        triple[index]
        for (_, prompt), by_category in cells().items()
        if not prompts or prompt in prompts
        for triple in by_category.values()
    ]
    return f"{fmean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _drops() -> str:
    zero = [drop(total) for total in totals() if total[1] == ZERO_SHOT]
    return f"{fmean(zero):.2f} (all rows: {fmean(map(drop, totals())):.2f})"


def _gains(model: str) -> str:
    first, other = (totals()[model, prompt] for prompt in (ZERO_SHOT, ICL))
    gains = [f"{name} {b - a:+.2f}" for name, a, b in zip(NAMES, first, other, strict=True)]
    return ", ".join(gains)


NAMES = ("acc_b", "acc_c", "acc+")
"""The three percentages, as printed."""
SAID: Mapping[str, Callable[[], str]] = {
    "llava_count_c": lambda: _cell("LLaVA", "Count", 1),
    "llava_count_b": lambda: _cell("LLaVA", "Count", 0),
    "infmllm_color_b": lambda: _cell("InfMLLM", "Color", 0),
    "all_b": lambda: _mean_and_range(0, ()),
    "all_c": lambda: _mean_and_range(1, (ZERO_SHOT,)),
    "drop": _drops,
    "qwen_icl": lambda: _gains("Qwen-VL"),
}
