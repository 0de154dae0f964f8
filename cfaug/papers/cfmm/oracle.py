"""CFMM on ShapeScapes, by an oracle: does a model that sees also reason about a condition?

For a question that people wrote, it is unknown whether a model was right by reasoning or because
the condition did not matter. Answers in ShapeScapes-VQA are exact with and without the condition,
so questions whose answer it changes are separated from those whose answer it keeps: a model that
sees everything but ignores the condition is right about all of the latter and none of the former.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.types import CLUSTER, ITEM
from cfaug.data.questions import BASIC, COUNTERFACTUAL, QuestionImage
from cfaug.data.sources.question_sets import read_questions
from cfaug.evaluation.questions.question_items import SEEN, QuestionItems
from cfaug.evaluation.questions.question_page import compare_kinds
from cfaug.papers.cfmm.tables import (
    PromptAnswers,
    QuestionTable,
    in_every_way,
    percent_entry,
    phi_entry,
)
from cfaug.report.arm_results import Runs
from cfaug.report.document import (
    BarPlot,
    Column,
    Document,
    DocumentImage,
    Entry,
    Part,
    make_part,
    rules_of,
)
from cfaug.report.page import DASH, percent
from cfaug.settings.read_if import GIVEN, ReadIf
from cfaug.stats.cluster_tests import MeanDifference, cluster_mean

BASICS, CHANGED, KEPT = "basic", "answer changes", "answer stays"
"""Questions by the effect of the condition."""

IGNORING = ("ignores the condition", "by rule")

NOTE = (
    "Per cent. Small: 95 % interval over pairs of pictures. ± is over checkpoints; "
    "values of several checkpoints are averaged by question first. acc_c is split "
    "by whether the condition changes the answer that the picture has without it. Chance: 50, for "
    "acc+ 25. phi: correlation of right basic and counterfactual answers over pairs of questions."
)
IGNORING_NOTE = (
    "A model that sees everything and ignores the condition gives the basic question's right "
    "answer. Where that is not an option, either option is equally likely."
)
BARS_NOTE = (
    "Lines: 95 % intervals over pairs of pictures. The two lower bars are "
    "counterfactual questions: a model that ignores conditions has 0 and 100 there."
)

CHOICES: Mapping[str, tuple[str, bool | None]] = {
    "acc_b": ("acc_b", None),
    "acc_c": ("acc_c", None),
    CHANGED: ("acc_c", True),
    KEPT: ("acc_c", False),
    "acc+": ("acc_plus", None),
}
"""By column: the metric, and whether only the items count whose answer the condition changes, or
only those whose answer it keeps; ``None`` for all items."""


@dataclass(frozen=True, kw_only=True)
class QuestionOracleTable(QuestionTable):
    """A row per model and way of asking, a plot per model; other arguments: ``QuestionTable``.

    Args:
        questions: file of the questions whose pictures are shown; ``None`` shows no pictures.
        image_roots: absolute folders whose images the file may name, besides its own.
    """

    questions: str | None = None
    image_roots: Annotated[Sequence[str], ReadIf({"questions": GIVEN})] = ()

    def build(self, runs: Runs) -> Document:
        """Return the part, a plot of each model by category, and pictures with answers.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
        """
        models = self.read(runs)
        self.require(models, f"answers to benchmark={', '.join(self.benchmarks.values())}")
        if not models:
            return self.document()
        categories = self.named_categories(models)
        summaries = []
        for answers in models:
            right, basic = (
                f"{100 * float(np.mean(_average(answers, name)[0])):.1f} %"
                for name in ("acc_c", "acc_b")
            )
            summaries.append(f"{answers.name}: {right} of counterfactual and {basic} of basic")
        part, bars = _part(models), [_bars(answers, categories) for answers in models]
        # The first picture of each category with answers.
        first: dict[str, QuestionImage] = {}
        if self.questions is not None:
            roots = [Path(root) for root in self.image_roots]
            for image in read_questions(self.questions, roots):
                if image.image is not None and image.key in models[0].checkpoints[0].keys:
                    first.setdefault(image.category, image)
        return self.document(
            part,
            bars=bars,
            pictures=[illustrate(image, models) for image in first.values()],
            answer=f"Right answers to questions (chance is 50 %): {'; '.join(summaries)}.",
        )


def _part(models: Sequence[PromptAnswers]) -> Part:
    ignoring = _ignoring(models[0].checkpoints[0])

    def cell(name: str, answers: PromptAnswers | None) -> Entry:
        if answers is None:
            return ignoring.get(name, Entry(DASH))
        values, interval = _average(answers, name)
        if interval is None:
            return Entry(DASH)
        entry = percent_entry(values, interval.items)
        ends = (percent(end, 1) for end in (interval.low, interval.high))
        small = "" if math.isnan(interval.low) else f"[{', '.join(ends)}]"
        return Entry(entry.text, entry.sub, small=small, numbers=entry.numbers)

    def phi(answers: PromptAnswers | None) -> Entry:
        drop = None
        if answers is not None and answers.way == SEEN:
            (drop,) = compare_kinds([answers.checkpoints])
        return Entry(DASH) if drop is None else phi_entry(drop)

    columns: list[Column[PromptAnswers | None]] = [
        *(Column(name, partial(cell, name)) for name in CHOICES),
        Column("phi", phi),
    ]
    rows: list[tuple[tuple[str, ...], PromptAnswers | None]] = [
        *((answers.labels, answers) for answers in in_every_way(models)),
        (IGNORING, None),
    ]
    return make_part(
        "Ours: with the image, without it, and the options alone",
        ("Model", "Prompt"),
        columns,
        rows,
        (NOTE, IGNORING_NOTE),
        rules=rules_of([labels[0] for labels, _ in rows]),
    )


def _average(
    answers: PromptAnswers, name: str, category: str | None = None
) -> tuple[list[float], MeanDifference | None]:
    """Return the mean of each checkpoint, and that of their average by item, with its interval.

    Args:
        name: a column of ``CHOICES``.
        category: the category of the items that count; ``None`` for all.
    """
    metric, changes = CHOICES[name]
    columns = []
    for checkpoint in answers.checkpoints:
        values = checkpoint.items.metric(f"{answers.way}{metric}")
        kept = ~np.isnan(values)
        if changes is not None:
            kept &= checkpoint.changed == float(changes)
        if category is not None:
            kept &= np.array(checkpoint.category_of) == category
        rows = np.flatnonzero(kept)
        names, clusters = checkpoint.texts(ITEM), checkpoint.texts(CLUSTER)
        columns.append(
            ([names[row] for row in rows], [clusters[row] for row in rows], values[rows])
        )
    names, clusters, _ = columns[0]
    if any(other[0] != names for other in columns):
        raise UserError(
            f"{answers.name}: its checkpoints answered other questions; evaluate all on the same "
            "data"
        )
    if not names:
        return [], None
    average = np.mean([values for *_, values in columns], axis=0)
    means = [float(values.mean()) for *_, values in columns]
    return means, cluster_mean(average, clusters, bounds=(0.0, 1.0))


def _ignoring(items: QuestionItems) -> dict[str, Entry]:
    """Return the accuracies of a model that knows every basic answer and ignores conditions."""
    kinds, keys, answers = items.texts("kind"), items.keys, items.texts("answer")
    rows = range(len(items))
    basic = {keys[row]: answers[row] for row in rows if kinds[row] == BASIC}
    options = [items.parse("options", row) for row in range(len(items))]
    right = np.full(len(items), np.nan)
    for row in rows:
        answer = basic.get(keys[row])
        if kinds[row] == COUNTERFACTUAL and answer:
            taken = [answer] if answer in options[row] else options[row]
            right[row] = taken.count(answers[row]) / len(taken)
    supposed = ~np.isnan(right)
    parts = {
        "acc_b": np.ones(len(basic)),
        "acc_c": right[supposed],
        CHANGED: right[supposed & (items.changed == 1)],
        KEPT: right[supposed & (items.changed == 0)],
        "acc+": right[supposed],
    }
    return {
        name: percent_entry([float(part.mean())], len(part))
        for name, part in parts.items()
        if len(part)
    }


def illustrate(image: QuestionImage, models: Sequence[PromptAnswers]) -> DocumentImage:
    """Return a picture with the answers of each model's first checkpoint.

    It shows the basic question, the first whose answer its condition changes, and the first whose
    answer its condition keeps.
    """
    assert image.image is not None
    basic, *supposed = (*image.of_kind(BASIC), *image.of_kind(COUNTERFACTUAL))
    shown = [basic]
    for changes in (True, False):
        fitting = (question for question in supposed if (question.right != basic.right) is changes)
        shown += islice(fitting, 1)
    lines = []
    for question in shown:
        item, replies = f"{image.key}/{question.id}", []
        for answers in models:
            checkpoint = answers.checkpoints[0]
            names = checkpoint.texts(ITEM)
            chosen = checkpoint.texts("chosen")[names.index(item)] if item in names else ""
            replies.append(f"{answers.model}: {chosen or DASH}")
        lines.append(f"{question.text} {question.right}. {'; '.join(replies)}.")
    buffer = io.BytesIO()
    decode_image(image.image.read(), image.key).save(buffer, "PNG")
    return DocumentImage(" ".join(lines), base64.b64encode(buffer.getvalue()).decode())


def _bars(answers: PromptAnswers, categories: Mapping[str, str]) -> BarPlot:
    """Return basic and counterfactual accuracies by category, the latter by the condition."""
    kinds = {BASICS: "acc_b", CHANGED: CHANGED, KEPT: KEPT}
    groups: dict[str, list[tuple[str, float | None, float | None, float | None]]] = {}
    for printed, category in categories.items():
        groups[printed] = []
        for name, choice in kinds.items():
            _, interval = _average(answers, choice, category)
            ends: tuple[float | None, float | None] = (None, None)
            if interval is not None and not math.isnan(interval.low):
                ends = (interval.low, interval.high)
            groups[printed].append((name, None if interval is None else interval.mean, *ends))
    return BarPlot(
        f"{answers.name}: right answers by category", "right answers (%)", groups, tuple(kinds),
        note=BARS_NOTE,
    )  # fmt: skip
