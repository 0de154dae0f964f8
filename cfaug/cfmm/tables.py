"""Tables 2 and 3 of CFMM: accuracies by category, and totals with their tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any, ClassVar

from cfaug.cfmm.composition import derived_part, text_part
from cfaug.cfmm.question_items import ACCURACIES, BLIND, PRIOR, SEEN, QuestionItems
from cfaug.cfmm.question_page import (
    ALPHA,
    Checkpoints,
    CounterfactualDrop,
    ModelComparison,
    compare_kinds,
    compare_models,
)
from cfaug.core.binding import ReadWith
from cfaug.report.arm_results import Runs
from cfaug.report.arm_table import mark_best_two
from cfaug.report.document import Column, Document, Entry, Part, make_part, rules_of, text_column
from cfaug.report.page import DASH, p_text, points
from cfaug.report.paper_tables import Models, PaperTable, published, read_answers
from cfaug.stats.significance import SeedSummary, summarise

# Models' answers to questions, prompt by prompt, for CFMM's tables.

# Table 3 of CFMM: totals over categories, with tests, phi, and answers without the image.

COMMANDS = (
    "python evaluate.py model=vlm model.name_or_path=MODEL benchmark=vqa "
    "benchmark.data=questions.jsonl",
)
PROMPTS = {"0-shot": "vqa", "1-shot ICL": "vqa_icl", "1-shot CoT": "vqa_cot"}
"""The paper's prompts, and the suffixes of their names in ``benchmark=vqa``."""
HEADERS = dict(zip(ACCURACIES, ("acc_b", "acc_c", "acc+"), strict=True))
"""{metric: the paper's header}."""
TOTAL = "Total score"
WAYS = {SEEN: "", BLIND: "without the image", PRIOR: "options alone"}
"""The ways in which questions were asked, and the words printed after the prompt."""
DIGITS = 2


@dataclass(frozen=True)
class PromptAnswers:
    """The answers of one model to questions asked with one prompt.

    Attributes:
        checkpoints: the answers of the model's checkpoints, at least one.
        way: the way in which questions were asked, a key of ``WAYS``.
    """

    model: str
    prompt: str
    checkpoints: Checkpoints
    way: str = SEEN

    @property
    def labels(self) -> tuple[str, str]:
        """The model and the prompt, as labels of a table's row."""
        said = WAYS[self.way]
        return self.model, f"{self.prompt}, {said}" if said else self.prompt

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
        there = {name for own in by_prompt.values() for name in own}
        order = [name for name in self.models if name in there] if self.models else sorted(there)
        return [
            PromptAnswers(model, prompt, [one for _, one in own[model]])
            for model in order
            for prompt, own in by_prompt.items()
            if model in own
        ]

    def named_categories(self, asked: Sequence[PromptAnswers]) -> dict[str, str]:
        """Return {printed name: category} of the questions with answers."""
        there = dict.fromkeys(
            name for answers in asked for own in answers.checkpoints for name in own.categories
        )
        known = {printed: name for printed, name in self.categories.items() if name in there}
        return known | {name: name for name in there if name not in known.values()}


def in_every_way(asked: Sequence[PromptAnswers]) -> list[PromptAnswers]:
    """Return the models and prompts, each followed by its answers without image or question."""
    return [
        PromptAnswers(answers.model, answers.prompt, answers.checkpoints, way)
        for answers in asked
        for way in WAYS
        if way == SEEN
        or all(own.has(f"{way}{name}") for own in answers.checkpoints for name in ACCURACIES)
    ]


def percent_entry(values: Sequence[float], n: int, factor: float = 100.0) -> Entry:
    """Return a mean over checkpoints in per cent, with its spread over several.

    Args:
        values: a value per checkpoint; a dash is printed without values or if one is NaN.
        factor: the factor of the printed value: 1 for totals, which are percentages already.
    """
    if not values or any(map(math.isnan, values)):
        return Entry(DASH)
    found = summarise(values)
    known = not math.isnan(found.sd)
    return Entry(
        f"{factor * found.mean:.{DIGITS}f}",
        f"{factor * found.sd:.{DIGITS}f}" if known else "",
        numbers={"value": found.mean, "n": float(n), **({"sd": found.sd} if known else {})},
    )


TOTALS_NOTE = (
    "Sums of the categories' percentages, up to 100 per category: a small category counts as much "
    "as a large one. Marks, rows without the image and ± are as in Table 2."
)
DROPS_NOTE = (
    "Over all images together (micro). Drop: acc_b minus the mean over images of the share of "
    "counterfactual questions that are right, in points. Interval: bootstrap over images. p: a "
    "permutation that exchanges basic and counterfactual answers of whole images (two-sided), Holm "
    "over the rows. phi: correlation of right answers over pairs; below 0, a right basic answer "
    "goes with a wrong counterfactual one. Strict: share of images with all questions right. "
    "Consistency: acc+ divided by acc_b."
)
PAIRS_NOTE = (
    "First minus other, in points of micro accuracy, on images about which both answered every "
    "question. Interval: bootstrap over images. p: McNemar's exact test if each question has an "
    "image of its own, otherwise the bootstrap's (two-sided); Holm over the whole table."
)


@dataclass(frozen=True, kw_only=True)
class TotalTable(QuestionTable):
    """A row per model and prompt; then tests.

    Args:
        zero_shot: printed name of the prompt with which each model's other prompts are compared.
    """

    zero_shot: str = "0-shot"

    read_with: ClassVar[ReadWith] = {"categories": ()}  # totals are over all of them

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, quantities derived from them, and ours with tests."""
        asked = self.read(runs)
        self.require(asked, f"answers to benchmark={', '.join(self.benchmarks.values())}")
        theirs = (self._theirs(), derived_part(), text_part())
        if not asked:
            return self.document(*theirs)
        compared, refused = compare_models(
            [((one.name, one.checkpoints), (other.name, other.checkpoints))
             for one, other in self._pairs(asked)]
        )  # fmt: skip
        parts = [self._ours(asked), _drops_part(asked), _pairs_part(compared)]
        ours = (part for part in parts if part is not None)
        return self.document(*theirs, *ours, notes=(*refused, *_left_out(asked)))

    def _pairs(self, asked: Sequence[PromptAnswers]) -> list[tuple[PromptAnswers, PromptAnswers]]:
        """Return pairs of models with the same prompt, and of a model's prompts with 0-shot."""
        return [
            (two, one) if one.model == two.model else (one, two)
            for one, two in combinations(asked, 2)
            if one.prompt == two.prompt or (one.model == two.model and one.prompt == self.zero_shot)
        ]

    def _theirs(self) -> Part:
        found = published(self.name)
        columns = [
            Column(name, partial(_printed, 1, at), TOTAL)
            for at, name in enumerate(HEADERS.values())
        ]
        rows = [((row["model"], row["prompt"]), row) for row in found["rows"]]
        return _lay_out(self.paper, columns, rows, (), (found["note"],), ours=False)

    def _ours(self, asked: Sequence[PromptAnswers]) -> Part:
        columns = [Column(name, partial(_total, metric), TOTAL) for metric, name in HEADERS.items()]
        return _lay_out_ours(columns, asked, TOTALS_NOTE)


def _printed(percentages: float, at: int, row: Mapping[str, Any]) -> Entry:
    value = row["values"][at]
    return Entry(f"{value:.{DIGITS}f}", numbers={"value": value / percentages})


def _lay_out_ours(
    columns: Sequence[Column[PromptAnswers]], asked: Sequence[PromptAnswers], note: str
) -> Part:
    """Return our part of a table; answers without the image are not ranked."""
    every = in_every_way(asked)
    beside = [place for place, one in enumerate(every) if one.way != SEEN]
    rows = [(answers.labels, answers) for answers in every]
    return _lay_out("Ours", columns, rows, beside, (note,), ours=True)


def _lay_out(
    title: str,
    columns: Sequence[Column[Any]],
    rows: Sequence[tuple[tuple[str, ...], Any]],
    beside: Sequence[int],
    notes: Sequence[str],
    *,
    ours: bool,
) -> Part:
    rules = rules_of([labels[0] for labels, _ in rows])
    labels = ("Model", "Prompt")
    part = make_part(title, labels, columns, rows, notes, rules=rules, ours=ours)
    return mark_best_two(part, ["higher"] * len(columns), beside)


def _total(name: str, answers: PromptAnswers) -> Entry:
    metric = answers.metric(name)
    n = sum(map(len, answers.checkpoints[0].by_category(metric).values()))
    return percent_entry([own.total(metric) for own in answers.checkpoints], n, factor=1.0)


def _drops_part(asked: Sequence[PromptAnswers]) -> Part | None:
    found = compare_kinds([answers.checkpoints for answers in asked])
    rows = [
        (one.labels, (one, drop))
        for one, drop in zip(asked, found, strict=True)
        if drop is not None
    ]
    if not rows:
        return None
    return make_part(
        "Ours: basic against counterfactual questions",
        ("Model", "Prompt"),
        DROP_COLUMNS,
        rows,
        [DROPS_NOTE],
        rules=rules_of([labels[0] for labels, _ in rows]),
    )


AnsweredDrop = tuple[PromptAnswers, CounterfactualDrop]


def _measured(name: str, row: AnsweredDrop) -> Entry:
    measured = [own.images.measure() for own in row[0].checkpoints]
    return percent_entry([getattr(own, name) for own in measured], row[1].images)


def _mean_drop(row: AnsweredDrop) -> Entry:
    mean, n = row[1].test.mean, row[1].images
    numbers = {"value": mean.mean, "n": float(n)}
    return Entry(points(mean.mean), small=_interval(mean.low, mean.high), numbers=numbers)


def _drop_holm(row: AnsweredDrop) -> Entry:
    return Entry(p_text(row[1].p_holm), bold=row[1].p_holm <= ALPHA)


def _interval(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"[{points(low)}, {points(high)}]"


def _phi(summary: SeedSummary | None, low: float, high: float) -> Entry:
    if summary is None:
        return Entry(DASH)
    return Entry(
        f"{summary.mean:+.3f}",
        "" if math.isnan(summary.sd) else f"{summary.sd:.3f}",
        small="" if math.isnan(low) else f"[{low:+.3f}, {high:+.3f}]",
        numbers={"value": summary.mean, "n": float(summary.n)},
    )


DROP_COLUMNS: tuple[Column[AnsweredDrop], ...] = (
    text_column("images", lambda row: f"{row[1].images:,}"),
    Column("acc_b", partial(_measured, "acc_b")),
    Column("acc_c", partial(_measured, "acc_c")),
    Column("drop", _mean_drop),
    text_column("p", lambda row: p_text(row[1].p)),
    Column("Holm", _drop_holm),
    Column("phi", lambda row: _phi(row[1].phi, row[1].phi_low, row[1].phi_high)),
    Column("strict", partial(_measured, "strict")),
    Column("consistency", partial(_measured, "consistency")),
)


def _pairs_part(comparisons: Sequence[ModelComparison]) -> Part | None:
    if not comparisons:
        return None
    columns: list[Column[ModelComparison]] = [
        text_column("left out", lambda comparison: f"{comparison.left_out:,}")
    ]
    for metric, name in HEADERS.items():
        columns.append(Column("difference", partial(_pair_difference, metric), name))
        columns.append(Column("Holm", partial(_pair_holm, metric), name))
    return make_part(
        "Ours: models and prompts, question by question",
        ("First", "Other"),
        columns,
        [((comparison.first, comparison.other), comparison) for comparison in comparisons],
        [PAIRS_NOTE],
    )


def _pair_difference(metric: str, comparison: ModelComparison) -> Entry:
    test = comparison.tests.get(metric)
    if test is None:
        return Entry(DASH)
    numbers = {"value": test.gain, "n": float(test.items)}
    return Entry(points(test.gain), small=_interval(test.low, test.high), numbers=numbers)


def _pair_holm(metric: str, comparison: ModelComparison) -> Entry:
    if metric not in comparison.tests:
        return Entry(DASH)
    return Entry(p_text(comparison.p_holm[metric]), bold=comparison.p_holm[metric] <= ALPHA)


def _left_out(asked: Sequence[PromptAnswers]) -> list[str]:
    """Return a sentence for each model with questions that were left out."""
    found = []
    for answers in asked:
        reasons: dict[str, int] = {}
        for own in answers.checkpoints:
            for reason, count in own.count_left_out().items():
                reasons[reason] = reasons.get(reason, 0) + count
        said = ", ".join(f"{count:,} ({reason})" for reason, count in reasons.items())
        found += [f"{answers.name}: questions left out: {said}."] if said else []
    return found


# Table 2 of CFMM: accuracies by category, a row per model and prompt.

OFF_GRID = "‡"
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
        asked = self.read(runs)
        self.require(asked, f"answers to benchmark={', '.join(self.benchmarks.values())}")
        ours = (self._ours(asked),) if asked else ()
        return self.document(self._theirs(), *ours)

    def _theirs(self) -> Part:
        found = published(self.name)
        odd = {(one["model"], one["prompt"], one["column"]) for one in found["off_grid"]}

        def cell(at: int, row: Mapping[str, Any]) -> Entry:
            marked = (row["model"], row["prompt"], found["columns"][at]) in odd
            return replace(_printed(100, at, row), signs=OFF_GRID * marked)

        headers = [(group, name) for group in found["categories"] for name in HEADERS.values()]
        columns = [Column(name, partial(cell, at), g) for at, (g, name) in enumerate(headers)]
        rows = [((row["model"], row["prompt"]), row) for row in found["rows"]]
        return _lay_out(self.paper, columns, rows, (), (found["note"],), ours=False)

    def _ours(self, asked: Sequence[PromptAnswers]) -> Part:
        columns = [
            Column(name, partial(_in_category, category, metric), printed)
            for printed, category in self.named_categories(asked).items()
            for metric, name in HEADERS.items()
        ]
        return _lay_out_ours(columns, asked, OURS_NOTE)


def _in_category(category: str, metric: str, answers: PromptAnswers) -> Entry:
    found = [own.by_category(answers.metric(metric)) for own in answers.checkpoints]
    return percent_entry(
        [float(own[category].mean()) for own in found if category in own],
        len(found[0].get(category, ())),
    )
