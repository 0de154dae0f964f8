"""Tables 2 and 3 of CFMM: accuracies by category, and totals with their tests."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any

from cfaug.evaluation.questions.question_items import ACCURACIES, BLIND, PRIOR, SEEN, QuestionItems
from cfaug.evaluation.questions.question_page import (
    ALPHA,
    Checkpoints,
    CounterfactualDrop,
    ModelComparison,
    compare_kinds,
    compare_models,
)
from cfaug.papers.cfmm.composition import derived_part, text_part
from cfaug.report.arm_results import Runs
from cfaug.report.arm_table import mark_best_two
from cfaug.report.document import Column, Document, Entry, Part, make_part, rules_of, text_column
from cfaug.report.page import DASH, p_text, points
from cfaug.report.paper_tables import Models, PaperTable, published, read_answers
from cfaug.stats.significance import summarise

# Table 3 of CFMM: totals over categories, with tests, phi, and answers without the image.

COMMANDS = (
    "python evaluate.py model=vlm weights=MODEL benchmark=vqa benchmark.data=questions.jsonl",
)
PROMPTS = {"0-shot": "vqa", "1-shot ICL": "vqa_icl", "1-shot CoT": "vqa_cot"}
"""The paper's prompts, and the suffixes of their names in ``benchmark=vqa``."""
HEADERS = dict(zip(ACCURACIES, ("acc_b", "acc_c", "acc+"), strict=True))
"""{metric: the paper's header}."""
TOTAL = "Total score"
WAYS = {SEEN: "", BLIND: "without the image", PRIOR: "options alone"}
"""The ways of asking questions, and the words printed after the prompt."""
DIGITS = 2


@dataclass(frozen=True)
class PromptAnswers:
    """The answers of one model to questions with one prompt.

    Attributes:
        way: the way of asking questions, a key of ``WAYS``.
    """

    model: str
    prompt: str
    checkpoints: Checkpoints
    way: str = SEEN

    @property
    def labels(self) -> tuple[str, str]:
        """The model and the prompt, as labels of a table's row."""
        way = WAYS[self.way]
        return self.model, f"{self.prompt}, {way}" if way else self.prompt

    @property
    def name(self) -> str:
        """The model and the prompt, for a sentence."""
        return ", ".join(self.labels)

    def metric(self, name: str) -> str:
        """Return the items' column of a metric for this way of asking."""
        return f"{self.way}{name}"


@dataclass(frozen=True, kw_only=True)
class QuestionTable(PaperTable):
    """A table of answers to questions; other arguments as for ``PaperTable``.

    Args:
        prompts: {printed name: benchmark of the items, or the end of its name}, in order; ``None``
            uses the paper's three.
        categories: {printed name: category of the questions}, in order; others follow under their
            own names.
        models: {printed name: checkpoints}; ``None`` uses all models with answers.
    """

    prompts: Mapping[str, str] | None = None
    categories: Mapping[str, str] = field(default_factory=dict)
    models: Models | None = None
    commands: Sequence[str] = COMMANDS
    """the commands that make what it needs"""

    @property
    def benchmarks(self) -> Mapping[str, str]:
        """{printed name of the prompt: benchmark, or the end of its name}."""
        return PROMPTS if self.prompts is None else self.prompts

    def read(self, runs: Runs) -> list[PromptAnswers]:
        """Return every model with each of its prompts, models in order."""
        by_prompt = {
            prompt: read_answers(
                runs.root, ending, self.models, QuestionItems, setting=f"table.prompts.'{prompt}'"
            )
            for prompt, ending in self.benchmarks.items()
        }
        there = {name for by_model in by_prompt.values() for name in by_model}
        order = [name for name in self.models if name in there] if self.models else sorted(there)
        return [
            PromptAnswers(model, prompt, [checkpoint for _, checkpoint in by_model[model]])
            for model in order
            for prompt, by_model in by_prompt.items()
            if model in by_model
        ]

    def named_categories(self, models: Sequence[PromptAnswers]) -> dict[str, str]:
        """Return {printed name: category} of the questions with answers."""
        there = dict.fromkeys(
            name
            for answers in models
            for checkpoint in answers.checkpoints
            for name in checkpoint.categories
        )
        known = {printed: name for printed, name in self.categories.items() if name in there}
        return known | {name: name for name in there if name not in known.values()}


def in_every_way(models: Sequence[PromptAnswers]) -> list[PromptAnswers]:
    """Return the models and prompts, each followed by its answers without image or question."""
    return [
        PromptAnswers(answers.model, answers.prompt, answers.checkpoints, way)
        for answers in models
        for way in WAYS
        if way == SEEN
        or all(
            checkpoint.has(f"{way}{name}")
            for checkpoint in answers.checkpoints
            for name in ACCURACIES
        )
    ]


def percent_entry(values: Sequence[float], n: int, factor: float = 100.0) -> Entry:
    """Return a mean over checkpoints in per cent, with its spread over several.

    Args:
        values: a value per checkpoint; a dash is printed without values or if one is NaN.
        factor: the factor of the printed value: 1 for totals, which are percentages already.
    """
    if not values or any(map(math.isnan, values)):
        return Entry(DASH)
    summary = summarise(values)
    known = not math.isnan(summary.sd)
    return Entry(
        f"{factor * summary.mean:.{DIGITS}f}",
        f"{factor * summary.sd:.{DIGITS}f}" if known else "",
        numbers={"value": summary.mean, "n": float(n), **({"sd": summary.sd} if known else {})},
    )


TOTALS_NOTE = (
    "Sums of the categories' percentages, up to 100 per category: a small category counts as much "
    "as a large one. Marks, rows without the image and ± are as in Table 2."
)
DROPS_NOTE = (
    "Over all images together (micro). Drop: acc_b minus the mean over images of the share of "
    "counterfactual questions that are right, in points. Interval: 95 %, over images. p: a "
    "permutation that exchanges basic and counterfactual answers of whole images (two-sided), Holm "
    "over the rows. phi: correlation of right answers over pairs; below 0, a right basic answer "
    "goes with a wrong counterfactual one. Strict: share of images with all questions right. "
    "Consistency: acc+ divided by acc_b."
)
PAIRS_NOTE = (
    "First minus other, in points of micro accuracy, on images about which both answered every "
    "question. Interval: 95 %, over images. p: McNemar's exact test if each question has an "
    "image of its own, otherwise flipped signs of images (two-sided); Holm over the whole table."
)


@dataclass(frozen=True, kw_only=True)
class TotalTable(QuestionTable):
    """A row per model and prompt; then tests.

    Args:
        zero_shot: printed name of the prompt with which each model's other prompts are compared.
    """

    zero_shot: str = "0-shot"

    categories: Mapping[str, str] = field(default_factory=dict, init=False)  # all, in totals

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, quantities derived from them, and ours with tests."""
        models = self.read(runs)
        self.require(models, f"answers to benchmark={', '.join(self.benchmarks.values())}")
        printed = published(self.name)
        theirs = _lay_out(
            self.paper,
            [
                Column(name, partial(_printed, 1, at), TOTAL)
                for at, name in enumerate(HEADERS.values())
            ],
            [((row["model"], row["prompt"]), row) for row in printed["rows"]],
            notes=(printed["note"],),
            ours=False,
        )
        if not models:
            return self.document(theirs, derived_part(), text_part())

        def total(metric: str, answers: PromptAnswers) -> Entry:
            column = answers.metric(metric)
            n = sum(map(len, answers.checkpoints[0].by_category(column).values()))
            return percent_entry(
                [checkpoint.total(column) for checkpoint in answers.checkpoints], n, factor=1.0
            )

        columns = [Column(name, partial(total, metric), TOTAL) for metric, name in HEADERS.items()]
        # Models with the same prompt, and a model's prompts with 0-shot.
        pairs = [
            (second, first) if first.model == second.model else (first, second)
            for first, second in combinations(models, 2)
            if first.prompt == second.prompt
            or (first.model == second.model and first.prompt == self.zero_shot)
        ]
        compared, refused = compare_models(
            [
                ((first.name, first.checkpoints), (second.name, second.checkpoints))
                for first, second in pairs
            ]
        )
        parts = [
            theirs,
            derived_part(),
            text_part(),
            _lay_out_ours(columns, models, TOTALS_NOTE),
        ]
        drops = [
            (answers.labels, (answers, drop))
            for answers, drop in zip(
                models, compare_kinds([answers.checkpoints for answers in models]), strict=True
            )
            if drop is not None
        ]
        if drops:
            title, labels = "Ours: basic against counterfactual questions", ("Model", "Prompt")
            rules = rules_of([model for (model, _), _ in drops])
            parts.append(make_part(title, labels, DROP_COLUMNS, drops, [DROPS_NOTE], rules=rules))
        parts += _pair_parts(compared)
        left_out = []
        for answers in models:
            reasons = Counter[str]()
            for checkpoint in answers.checkpoints:
                reasons.update(checkpoint.count_left_out())
            if reasons:
                listed = ", ".join(f"{count:,} ({reason})" for reason, count in reasons.items())
                left_out.append(f"{answers.name}: questions left out: {listed}.")
        return self.document(*parts, notes=(*refused, *left_out))


def _printed(percentages: float, at: int, row: Mapping[str, Any]) -> Entry:
    value = row["values"][at]
    return Entry(f"{value:.{DIGITS}f}", numbers={"value": value / percentages})


def _lay_out_ours(
    columns: Sequence[Column[PromptAnswers]], models: Sequence[PromptAnswers], note: str
) -> Part:
    """Return our part of a table; answers without the image are not ranked."""
    every = in_every_way(models)
    beside = [position for position, answers in enumerate(every) if answers.way != SEEN]
    rows = [(answers.labels, answers) for answers in every]
    return _lay_out("Ours", columns, rows, beside, (note,))


def _lay_out(
    title: str,
    columns: Sequence[Column[Any]],
    rows: Sequence[tuple[tuple[str, ...], Any]],
    beside: Sequence[int] = (),
    notes: Sequence[str] = (),
    ours: bool = True,
) -> Part:
    rules = rules_of([labels[0] for labels, _ in rows])
    labels = ("Model", "Prompt")
    part = make_part(title, labels, columns, rows, notes, rules=rules, ours=ours)
    return mark_best_two(part, ["higher"] * len(columns), beside)


AnsweredDrop = tuple[PromptAnswers, CounterfactualDrop]


def _measured(name: str, row: AnsweredDrop) -> Entry:
    measured = [checkpoint.images.measure() for checkpoint in row[0].checkpoints]
    return percent_entry([getattr(values, name) for values in measured], row[1].images)


def _difference(mean: float, low: float, high: float, n: int) -> Entry:
    small = "" if math.isnan(low) else f"[{points(low)}, {points(high)}]"
    return Entry(points(mean), small=small, numbers={"value": mean, "n": float(n)})


def _drop(row: AnsweredDrop) -> Entry:
    mean = row[1].test.mean
    return _difference(mean.mean, mean.low, mean.high, row[1].images)


def _holm(p: float) -> Entry:
    return Entry(p_text(p), bold=p <= ALPHA)


def phi_entry(drop: CounterfactualDrop) -> Entry:
    """Return the correlation of right answers with its interval; a dash if it is unknown."""
    phi, low, high = drop.phi, drop.phi_low, drop.phi_high
    if phi is None:
        return Entry(DASH)
    return Entry(
        f"{phi.mean:+.3f}",
        "" if math.isnan(phi.sd) else f"{phi.sd:.3f}",
        small="" if math.isnan(low) else f"[{low:+.3f}, {high:+.3f}]",
        numbers={"value": phi.mean, "n": float(phi.n)},
    )


DROP_COLUMNS: tuple[Column[AnsweredDrop], ...] = (
    text_column("images", lambda row: f"{row[1].images:,}"),
    Column("acc_b", partial(_measured, "acc_b")),
    Column("acc_c", partial(_measured, "acc_c")),
    Column("drop", _drop),
    text_column("p", lambda row: p_text(row[1].p)),
    Column("Holm", lambda row: _holm(row[1].p_holm)),
    Column("phi", lambda row: phi_entry(row[1])),
    Column("strict", partial(_measured, "strict")),
    Column("consistency", partial(_measured, "consistency")),
)


def _pair_parts(comparisons: Sequence[ModelComparison]) -> list[Part]:
    def difference(metric: str, comparison: ModelComparison) -> Entry:
        test = comparison.tests.get(metric)
        if test is None:
            return Entry(DASH)
        return _difference(test.gain, test.low, test.high, test.items)

    columns: list[Column[ModelComparison]] = [
        text_column("left out", lambda row: f"{row.left_out:,}")
    ]
    for metric, name in HEADERS.items():
        columns.append(Column("difference", partial(difference, metric), name))
        p = partial(lambda metric, row: _holm(row.p_holm.get(metric, math.nan)), metric)
        columns.append(Column("Holm", p, name))
    title = "Ours: models and prompts, question by question"
    rows = [((comparison.first, comparison.other), comparison) for comparison in comparisons]
    return [make_part(title, ("First", "Other"), columns, rows, [PAIRS_NOTE])] if rows else []


# Table 2 of CFMM: accuracies by category, a row per model and prompt.

OURS_NOTE = (
    "Per cent: acc_b over images, acc_c over counterfactual questions, acc+ over pairs of the "
    "basic and one counterfactual question. Chance, with two options: 50, 50 and 25. Bold: best; "
    "underlined: second best, whatever the tests say. Answers without the image, or with neither "
    "image nor question, are not ranked. ± is over checkpoints."
)


@dataclass(frozen=True, kw_only=True)
class CategoryTable(QuestionTable):
    """A row per model and prompt, three columns per category."""

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers and ours."""
        models = self.read(runs)
        self.require(models, f"answers to benchmark={', '.join(self.benchmarks.values())}")
        printed = published(self.name)
        off_grid = {(cell["model"], cell["prompt"], cell["column"]) for cell in printed["off_grid"]}

        def theirs(at: int, row: Mapping[str, Any]) -> Entry:
            marked = (row["model"], row["prompt"], printed["columns"][at]) in off_grid
            return replace(_printed(100, at, row), signs="‡" * marked)

        headers = [(group, name) for group in printed["categories"] for name in HEADERS.values()]
        columns = [Column(n, partial(theirs, at), group) for at, (group, n) in enumerate(headers)]
        rows = [((row["model"], row["prompt"]), row) for row in printed["rows"]]
        parts = [_lay_out(self.paper, columns, rows, notes=(printed["note"],), ours=False)]

        def ours(category: str, metric: str, answers: PromptAnswers) -> Entry:
            by_checkpoint = [
                checkpoint.by_category(answers.metric(metric)) for checkpoint in answers.checkpoints
            ]
            shares = [
                float(scores[category].mean()) for scores in by_checkpoint if category in scores
            ]
            return percent_entry(shares, len(by_checkpoint[0].get(category, ())))

        if models:
            measured = [
                Column(name, partial(ours, category, metric), group)
                for group, category in self.named_categories(models).items()
                for metric, name in HEADERS.items()
            ]
            parts.append(_lay_out_ours(measured, models, OURS_NOTE))
        return self.document(*parts)
