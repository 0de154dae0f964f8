"""Models' answers to questions, prompt by prompt, for CFMM's tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cfaug.cfmm.question_items import ACCURACIES, BLIND, PRIOR, SEEN, QuestionItems
from cfaug.cfmm.question_tests import Checkpoints
from cfaug.report.arm_results import Runs
from cfaug.report.document import Entry
from cfaug.report.numbers import DASH
from cfaug.report.paper_answers import Models, read_answers
from cfaug.report.paper_tables import PaperTable
from cfaug.stats.significance import summarise

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
        """Return every model with each of its prompts, models in order.

        Raises:
            UserError: if items cannot be read.
        """
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
        n: number of questions.
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
