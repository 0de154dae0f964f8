"""Tables 2 and 3 of CFMM: accuracies by category, and totals with their tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar

from cfaug.cfmm.composition import derived_part, text_part
from cfaug.cfmm.question_items import ACCURACIES, BLIND, PRIOR, SEEN, QuestionItems
from cfaug.cfmm.question_tests import (
    ALPHA,
    Checkpoints,
    CounterfactualDrop,
    ModelComparison,
    compare_kinds,
    compare_models,
)
from cfaug.core.read_with import ReadWith
from cfaug.report.arm_results import Runs
from cfaug.report.arm_table import Row, mark_best_two
from cfaug.report.document import Document, Entry, Part, rules_of
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
HEADERS = ("acc_b", "acc_c", "acc+")
"""Headers of ``ACCURACIES``, as in the paper."""
WAYS = {SEEN: "", BLIND: "without the image", PRIOR: "options alone"}
"""The ways in which questions were asked, and the words printed after the prompt."""
DIGITS = 2


@dataclass(frozen=True)
class PromptAnswers:
    """The answers of one model to questions asked with one prompt.

    Attributes:
        model: the printed name of the model.
        prompt: the printed name of the prompt.
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
            name for one in asked for own in one.checkpoints for name in own.categories
        )
        known = {printed: name for printed, name in self.categories.items() if name in there}
        return known | {name: name for name in there if name not in known.values()}


def in_every_way(asked: Sequence[PromptAnswers]) -> list[PromptAnswers]:
    """Return the models and prompts, each followed by its answers without image or question."""
    return [
        PromptAnswers(one.model, one.prompt, one.checkpoints, way)
        for one in asked
        for way in WAYS
        if way == SEEN
        or all(own.has(f"{way}{name}") for own in one.checkpoints for name in ACCURACIES)
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
DROP_COLUMNS = ("images", "acc_b", "acc_c", "drop", "p", "Holm", "phi", "strict", "consistency")


@dataclass(frozen=True, kw_only=True)
class TotalTable(QuestionTable):
    """A row per model and prompt; then tests.

    Args:
        zero_shot: printed name of the prompt with which each model's other prompts are compared.
    """

    zero_shot: str = "0-shot"

    read_with: ClassVar[ReadWith] = {"categories": ()}  # totals are over all of them

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, quantities derived from them, and ours with tests.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
        """
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
        ours = (one for one in parts if one is not None)
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
        rows: list[Row] = [
            ((row["model"], row["prompt"]),
             tuple(Entry(f"{v:.{DIGITS}f}", numbers={"value": v}) for v in row["values"]))
            for row in found["rows"]
        ]  # fmt: skip
        return _totals_part(self.paper, rows, (), found["note"], ours=False)

    def _ours(self, asked: Sequence[PromptAnswers]) -> Part:
        every = in_every_way(asked)
        rows: list[Row] = [(one.labels, tuple(_total(one, name) for name in ACCURACIES))
                           for one in every]  # fmt: skip
        beside = [place for place, one in enumerate(every) if one.way != SEEN]
        return _totals_part("Ours", rows, beside, TOTALS_NOTE, ours=True)


def _totals_part(
    title: str, rows: Sequence[Row], beside: Sequence[int], note: str, *, ours: bool
) -> Part:
    return Part(
        title, ("Model", "Prompt"), (("Total score", len(HEADERS)),), HEADERS,
        mark_best_two(rows, ["higher"] * len(HEADERS), beside),
        rules_of([labels[0] for labels, _ in rows]), (note,), ours=ours, ranked=True,
    )  # fmt: skip


def _total(one: PromptAnswers, name: str) -> Entry:
    metric = one.metric(name)
    n = sum(map(len, one.checkpoints[0].by_category(metric).values()))
    return percent_entry([own.total(metric) for own in one.checkpoints], n, factor=1.0)


def _drops_part(asked: Sequence[PromptAnswers]) -> Part | None:
    found = compare_kinds([one.checkpoints for one in asked])
    rows = tuple(
        (one.labels, _drop_cells(one, drop))
        for one, drop in zip(asked, found, strict=True)
        if drop is not None
    )
    if not rows:
        return None
    return Part(
        "Ours: basic against counterfactual questions", ("Model", "Prompt"), (), DROP_COLUMNS, rows,
        rules_of([labels[0] for labels, _ in rows]), (DROPS_NOTE,),
    )  # fmt: skip


def _drop_cells(one: PromptAnswers, drop: CounterfactualDrop) -> tuple[Entry, ...]:
    measured = [own.images.measure() for own in one.checkpoints]
    mean, n = drop.test.mean, drop.images
    return (
        Entry(f"{n:,}"),
        *(percent_entry([getattr(own, name) for own in measured], n) for name in ACCURACIES[:2]),
        Entry(points(mean.mean), small=_interval(mean.low, mean.high),
              numbers={"value": mean.mean, "n": float(n)}),
        Entry(p_text(drop.p)),
        Entry(p_text(drop.p_holm), bold=drop.p_holm <= ALPHA),
        _phi(drop.phi, drop.phi_low, drop.phi_high),
        *(percent_entry([getattr(own, name) for own in measured], n)
          for name in ("strict", "consistency")),
    )  # fmt: skip


def _interval(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"[{points(low)}, {points(high)}]"


def _phi(found: SeedSummary | None, low: float, high: float) -> Entry:
    if found is None:
        return Entry(DASH)
    return Entry(
        f"{found.mean:+.3f}",
        "" if math.isnan(found.sd) else f"{found.sd:.3f}",
        small="" if math.isnan(low) else f"[{low:+.3f}, {high:+.3f}]",
        numbers={"value": found.mean, "n": float(found.n)},
    )


def _pairs_part(found: Sequence[ModelComparison]) -> Part | None:
    if not found:
        return None
    rows = tuple(((one.first, one.other), tuple(_pair_cells(one))) for one in found)
    return Part(
        "Ours: models and prompts, question by question", ("First", "Other"),
        (("", 1), *((name, 2) for name in HEADERS)),
        ("left out", *("difference", "Holm") * len(HEADERS)), rows, notes=(PAIRS_NOTE,),
    )  # fmt: skip


def _pair_cells(one: ModelComparison) -> list[Entry]:
    cells = [Entry(f"{one.left_out:,}")]
    for name in ACCURACIES:
        test = one.tests.get(name)
        if test is None:
            cells += [Entry(DASH), Entry(DASH)]
            continue
        p = one.p_holm[name]
        cells.append(Entry(points(test.gain), small=_interval(test.low, test.high),
                           numbers={"value": test.gain, "n": float(test.items)}))  # fmt: skip
        cells.append(Entry(p_text(p), bold=p <= ALPHA))
    return cells


def _left_out(asked: Sequence[PromptAnswers]) -> list[str]:
    """Return a sentence for each model with questions that were left out."""
    found = []
    for one in asked:
        reasons: dict[str, int] = {}
        for own in one.checkpoints:
            for reason, count in own.count_left_out().items():
                reasons[reason] = reasons.get(reason, 0) + count
        said = ", ".join(f"{count:,} ({reason})" for reason, count in reasons.items())
        found += [f"{one.name}: questions left out: {said}."] if said else []
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
        """Return the paper's numbers and ours.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
        """
        asked = self.read(runs)
        self.require(asked, f"answers to benchmark={', '.join(self.benchmarks.values())}")
        ours = (self._ours(asked),) if asked else ()
        return self.document(self._theirs(), *ours)

    def _theirs(self) -> Part:
        found = published(self.name)
        odd = {(one["model"], one["prompt"], one["column"]) for one in found["off_grid"]}
        rows: list[Row] = []
        for row in found["rows"]:
            about = row["model"], row["prompt"]
            cells = tuple(
                Entry(f"{value:.{DIGITS}f}", signs=OFF_GRID * ((*about, column) in odd),
                      numbers={"value": value / 100})
                for column, value in zip(found["columns"], row["values"], strict=True)
            )  # fmt: skip
            rows.append((about, cells))
        return _part(self.paper, found["categories"], rows, (), (found["note"],), ours=False)

    def _ours(self, asked: Sequence[PromptAnswers]) -> Part:
        categories, every = self.named_categories(asked), in_every_way(asked)
        rows: list[Row] = [(one.labels, _cells(one, categories)) for one in every]
        beside = [place for place, one in enumerate(every) if one.way != SEEN]
        return _part("Ours", [*categories], rows, beside, (OURS_NOTE,), ours=True)


def _part(
    title: str,
    categories: Sequence[str],
    rows: Sequence[Row],
    beside: Sequence[int],
    notes: tuple[str, ...],
    *,
    ours: bool,
) -> Part:
    columns = HEADERS * len(categories)
    return Part(
        title, ("Model", "Prompt"), tuple((name, len(HEADERS)) for name in categories), columns,
        mark_best_two(rows, ["higher"] * len(columns), beside),
        rules_of([labels[0] for labels, _ in rows]), notes, ours=ours, ranked=True,
    )  # fmt: skip


def _cells(one: PromptAnswers, categories: Mapping[str, str]) -> tuple[Entry, ...]:
    found = {
        name: [own.by_category(one.metric(name)) for own in one.checkpoints] for name in ACCURACIES
    }
    return tuple(
        percent_entry(
            [float(own[category].mean()) for own in found[name] if category in own],
            len(found[name][0].get(category, ())),
        )
        for category in categories.values()
        for name in ACCURACIES
    )
