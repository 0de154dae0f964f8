"""Tests of the answers to basic and counterfactual questions, and their page.

Accuracies by category, with intervals, with and without the image; then images with their
questions: the options, the marked condition, each model's answer beside that of the same model
without the image. Nothing in a question is ever read as markup: the script sets text. One file that
opens offline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemSchema
from cfaug.core.rng import derive, generator
from cfaug.core.types import CLUSTER, ITEM
from cfaug.data.questions import COUNTERFACTUAL
from cfaug.evaluation.questions.question_checks import find_condition, phi_interval
from cfaug.evaluation.questions.question_items import (
    ACCURACIES,
    ANSWER_ITEMS,
    BLIND,
    PRIOR,
    SEEN,
    ImageAnswers,
    QuestionAnswers,
    QuestionItems,
)
from cfaug.report.gallery import ModelPage
from cfaug.report.item_tests import ItemTest, compare_items
from cfaug.report.items import Items
from cfaug.report.page import DASH, p_text, percent, points
from cfaug.stats.cluster_tests import cluster_mean
from cfaug.stats.effects import DropTest, paired_drop
from cfaug.stats.significance import SeedSummary, holm, summarise

WAY_TITLES = {SEEN: "With the image", BLIND: "Without the image", PRIOR: "Options alone"}
"""Names of the ways of asking, in this order."""
HEADS = {"right": "right", "acc_b": "basic (acc_b)", "acc_c": "counterfactual (acc_c)",
         "acc_plus": "both (acc+)", "strict": "all about an image (strict)",
         "q_acc": "whole questions (q_acc)", "f_acc": "whole figures (f_acc)"}  # fmt: skip


class ShownAnswers(QuestionAnswers):
    """Answers with their questions, which are shown."""

    schema: ClassVar[ItemSchema] = replace(
        ANSWER_ITEMS,
        columns=tuple(
            replace(
                column,
                always=column.always
                or column.name in ("image", "question", "options", "answer", "chosen", "left_out"),
            )
            for column in ANSWER_ITEMS.columns
        ),
    )

    @cached_property
    def pairs(self) -> QuestionItems | None:
        """Answers to basic and counterfactual questions, where there are both."""
        if not set(ACCURACIES) <= set(self.items.columns):
            return None
        return QuestionItems(self.model, self.items)

    @cached_property
    def options(self) -> list[list[str]]:
        """The options of each question."""
        parsed = []
        for row, name in enumerate(self.texts(ITEM)):
            listed = self.parse("options", row)
            if not isinstance(listed, list) or not all(
                isinstance(option, str) for option in listed
            ):
                raise UserError(
                    f"the items of {self.items.benchmark}: the options of {name} should be a list "
                    f"of texts; {self.renew}"
                )
            parsed.append(listed)
        return parsed

    def number(self, row: int, column: str) -> int | None:
        """Return the index of the option that a column names; ``None`` without one."""
        if column not in self.items.columns:
            return None
        text, options = self.texts(column)[row], self.options[row]
        return options.index(text) if text in options else None


def question_page(limit: int | None = 200) -> ModelPage[ShownAnswers]:
    """Return the definition of the page; 200 pictures of 160 pixels make a page of about 2 MB."""
    return ModelPage(
        "questions.html",
        ShownAnswers,
        "questions",
        lambda answers: _QuestionPageData(answers, limit),
        160,
    )


def verdict(answers: ShownAnswers) -> str:
    """Say in a sentence what share a model answers right, and the fall with a condition."""
    blind = ""
    if answers.has(f"{BLIND}right"):
        blind_mean = float(np.nanmean(answers.items.metric(f"{BLIND}right")))
        blind = f"; {percent(blind_mean, 1)} % of all without the image"
    right = answers.items.metric("right")
    pairs = answers.pairs
    (drop,) = compare_kinds([[pairs]]) if pairs is not None else (None,)
    if pairs is None or drop is None:
        mean = float(np.nanmean(right))
        return (
            f"{answers.model} answers {percent(mean, 1)} % of {np.isfinite(right).sum():,} "
            f"questions right{blind}."
        )
    test = drop.test
    measured = pairs.images.measure()
    sentence = (
        f"{answers.model} answers {percent(measured.acc_b, 1)} % of {drop.images:,} basic and "
        f"{percent(measured.acc_c, 1)} % of their counterfactual questions right: "
        f"{points(-test.mean.mean)} points (p = {p_text(drop.p)}, whole images exchanged)"
    )
    if drop.phi is not None:
        sentence += f"; phi {_signed(drop.phi.mean)}"
        if not math.isnan(drop.phi_low):
            sentence += f" [{_signed(drop.phi_low)}, {_signed(drop.phi_high)}]"
    return f"{sentence}{blind}."


class _QuestionPageData:
    def __init__(self, answers: Sequence[ShownAnswers], limit: int | None) -> None:
        self.answers = answers
        self.first = answers[0]
        self.images: dict[str, str] = {}
        self._places: dict[str, int] = {}
        self._ways = [
            way for way in WAY_TITLES if any(answer.has(f"{way}right") for answer in answers)
        ]
        self._rows_of: dict[str, list[int]] = {}
        for row, key in enumerate(self.first.keys):
            self._rows_of.setdefault(key, []).append(row)
        # The images with the smallest hashes, in the order of the items.
        order = sorted(self._rows_of, key=lambda key: derive(0, "question_page", key))
        drawn = set(order[:limit])
        self._shown = [key for key in self._rows_of if key in drawn]

    @property
    def verdicts(self) -> list[str]:
        return [verdict(answer) for answer in self.answers]

    @property
    def subtitle(self) -> str:
        every, shown = len(self._rows_of), len(self._shown)
        some = "" if shown == every else f"; {shown:,} images shown, drawn at random"
        left_out = sum(bool(text) for text in self.first.texts("left_out"))
        without = f"; {left_out:,} left out" if left_out else ""
        return f"{len(self.first):,} questions about {every:,} images{without}{some}"

    def content(self) -> dict[str, Any]:
        """Return everything but the pictures: the script explains its letters.

        An image: k key, c category, p number of its picture (equal images share one), q questions.
        """
        images = []
        for key in self._shown:
            rows = self._rows_of[key]
            digest = self.first.texts("image")[rows[0]]
            if digest:
                self.images.setdefault(digest, digest)
            images.append({
                "k": key,
                "c": self.first.category_of[rows[0]],
                "p": self._places.setdefault(digest, len(self._places)) if digest else None,
                "q": [self._question(row) for row in rows],
            })  # fmt: skip
        return {
            "models": [answer.model for answer in self.answers],
            "categories": list(self.first.categories),
            "kinds": list(dict.fromkeys(self.first.texts("kind"))),
            "asked": [WAY_TITLES[way] for way in self._ways],
            "tables": [list(self._tables(answer)) for answer in self.answers],
            "images": images,
        }

    def _tables(self, answers: ShownAnswers) -> Iterator[dict[str, Any]]:
        """Yield tables: t title, h headers, r rows of texts, by category and of all questions."""
        categories = np.array(self.first.category_of, object)
        parts = [(name, np.flatnonzero(categories == name)) for name in self.first.categories]
        parts = [*(parts if len(parts) > 1 else []), ("all", np.arange(len(categories)))]
        for way, title in WAY_TITLES.items():
            metrics = [name for name in HEADS if answers.has(f"{way}{name}")]
            if not metrics:
                continue
            heads = ["category", "questions", *(HEADS[name] for name in metrics)]
            pairs = answers.pairs if way == SEEN else None
            rows = []
            for name, chosen in parts:
                counted = np.isfinite(answers.items.metric(f"{way}right")[chosen]).sum()
                cells = [_cell(answers, f"{way}{metric}", chosen) for metric in metrics]
                phi = [] if pairs is None else [_phi(pairs.take(chosen).images, name)]
                rows.append([name, f"{counted:,}", *cells, *phi])
            yield {"t": title, "h": [*heads, *([] if pairs is None else ["phi"])], "r": rows}

    def _question(self, row: int) -> dict[str, Any]:
        """Return a question: i item, k kind, t text in pieces, o options, a right one, m models.

        The condition is the piece at the odd place. An answer has c chosen and r right (1, 0, null)
        for each way of asking; l is the reason if it was left out, w the model's text, f whether
        the reduction decides.
        """
        first = self.first
        kind, text = first.texts("kind")[row], first.texts("question")[row]
        condition = find_condition(text) if kind == COUNTERFACTUAL else ""
        pieces = [text]
        if condition:
            before, _, after = text.partition(condition)
            pieces = [before, condition, after]
        models = []
        for answers in self.answers:
            columns = answers.items.columns
            right = [
                answers.items.metric(f"{way}right")[row] if f"{way}right" in columns else math.nan
                for way in self._ways
            ]
            entry: dict[str, Any] = {
                "c": [answers.number(row, f"{way}chosen") for way in self._ways],
                "r": [None if math.isnan(value) else int(value) for value in right],
            }
            if reason := answers.texts("left_out")[row]:
                entry["l"] = reason
            for name in ("written", "rationale"):
                if name in columns and (written := answers.texts(name)[row]):
                    entry["w"] = written if len(written) <= 600 else f"{written[:600]} …"
            if "flips" in columns and answers.items.metric("flips")[row] > 0:
                entry["f"] = 1
            models.append(entry)
        return {
            "i": first.texts(ITEM)[row],
            "k": kind,
            "t": pieces,
            "o": first.options[row],
            "a": first.number(row, "answer"),
            "m": models,
        }


def _cell(answers: ShownAnswers, metric: str, rows: np.ndarray) -> str:
    """Return a mean in percent, with its interval over whole clusters of images."""
    values = answers.items.metric(metric)[rows]
    known = np.isfinite(values)
    if not known.any():
        return DASH
    clusters = np.array(answers.texts(CLUSTER), object)[rows][known]
    estimate = cluster_mean(values[known], clusters.astype(str), bounds=(0.0, 1.0))
    mean, low, high = (percent(value, 1) for value in (estimate.mean, estimate.low, estimate.high))
    return mean if math.isnan(estimate.low) else f"{mean} [{low}, {high}]"


def _phi(images: ImageAnswers, part: str) -> str:
    phi = images.measure().phi
    if math.isnan(phi):
        return DASH
    rng = generator(0, "question_page", "phi", part)
    low, high = phi_interval(images.basic, images.counterfactual, images.clusters, rng)
    return _signed(phi) if math.isnan(low) else f"{_signed(phi)} [{_signed(low)}, {_signed(high)}]"


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # never -0.00


# Are counterfactual questions harder, and is one model better? Tests over questions and images.

ALPHA = 0.05
Checkpoints = Sequence[QuestionItems]
"""The answers of one model's checkpoints, asked in one way; at least one."""


@dataclass(frozen=True)
class CounterfactualDrop:
    """Answers to basic questions compared with those to counterfactual ones about the same image.

    Attributes:
        test: test over images of the basic answer minus the mean of the counterfactual ones,
            averaged over checkpoints; p by a permutation that exchanges the two for whole clusters
            of images.
        phi: correlation of right answers over pairs, mean and spread over checkpoints; ``None`` if
            it is undefined for a checkpoint.
        phi_low: lower end of its 95 % bootstrap interval over images, averaged over checkpoints.
        p_holm: p, corrected over all drops tested together.
    """

    test: DropTest
    images: int
    phi: SeedSummary | None
    phi_low: float
    phi_high: float
    p_holm: float = math.nan

    @property
    def p(self) -> float:
        """The two-sided p of the permutation."""
        return self.test.p_photos


def compare_kinds(models: Sequence[Checkpoints]) -> list[CounterfactualDrop | None]:
    """Compare each model's counterfactual answers with its basic ones; Holm over all.

    Returns:
        One drop for each model; ``None`` if no image has answers to both kinds of questions, or
        checkpoints answered different images.
    """
    drops: list[CounterfactualDrop | None] = []
    for checkpoints in models:
        every = [checkpoint.images for checkpoint in checkpoints]
        first, benchmark = every[0], checkpoints[0].items.benchmark
        same = all(np.array_equal(images.clusters, first.clusters) for images in every)
        if not (len(first) and same):
            drops.append(None)
            continue
        before = np.mean([images.basic for images in every], axis=0)
        after = np.mean(
            [[part.mean() for part in images.counterfactual] for images in every], axis=0
        )
        rng = generator(0, "question_drops", benchmark)
        ends = np.array([
            phi_interval(images.basic, images.counterfactual, images.clusters,
                         generator(0, "phi", benchmark))
            for images in every
        ])  # fmt: skip
        phi = [images.measure().phi for images in every]
        drops.append(
            CounterfactualDrop(
                test=paired_drop(before, after, first.clusters, rng),
                images=len(first),
                phi=None if any(map(math.isnan, phi)) else summarise(phi),
                phi_low=float(ends[:, 0].mean()),
                phi_high=float(ends[:, 1].mean()),
            )
        )
    known = [drop for drop in drops if drop is not None]
    corrected = iter(holm([drop.p for drop in known]).tolist() if known else [])
    return [None if drop is None else replace(drop, p_holm=next(corrected)) for drop in drops]


@dataclass(frozen=True)
class ModelComparison:
    """Two models, or two ways to ask one, on the questions that both answered.

    Attributes:
        first: printed name of the model that should be better.
        p_holm: two-sided p of each metric, corrected over all comparisons and metrics.
        left_out: number of questions that only one of them answered.
    """

    first: str
    other: str
    tests: Mapping[str, ItemTest]
    p_holm: Mapping[str, float]
    left_out: int


def compare_models(
    pairs: Sequence[tuple[tuple[str, Checkpoints], tuple[str, Checkpoints]]],
) -> tuple[list[ModelComparison], list[str]]:
    """Compare pairs of models question by question; Holm over all pairs and metrics.

    Returns:
        The comparisons, and a sentence for each pair without a question in common.
    """
    comparisons: list[ModelComparison] = []
    refused: list[str] = []
    for (first, ours), (other, theirs) in pairs:
        try:
            tests, left_out = _compare(ours, theirs)
        except UserError as error:
            refused.append(f"{first} against {other}: {error}.")
        else:
            comparisons.append(ModelComparison(first, other, tests, {}, left_out))
    every = [
        (index, name) for index, comparison in enumerate(comparisons) for name in comparison.tests
    ]
    p = [comparisons[index].tests[name].p_two_sided for index, name in every]
    corrected = dict(zip(every, holm(p).tolist() if p else [], strict=True))
    return [
        replace(comparison, p_holm={name: corrected[index, name] for name in comparison.tests})
        for index, comparison in enumerate(comparisons)
    ], refused


def _compare(ours: Checkpoints, theirs: Checkpoints) -> tuple[dict[str, ItemTest], int]:
    every = [*ours, *theirs]
    # The questions of fully answered images, and their identifying columns.
    answered: list[dict[str, tuple[str, ...]]] = []
    for checkpoint in every:
        columns = [checkpoint.texts(name)
                   for name in ("image", "question", "answer", "category", "kind")
                   if name in checkpoint.items.columns]  # fmt: skip
        whole: dict[str, bool] = {}
        for key, value in zip(checkpoint.keys, checkpoint.items.metric("right"), strict=True):
            whole[key] = whole.get(key, True) and not math.isnan(value)
        named = zip(checkpoint.texts(ITEM), checkpoint.keys, strict=True)
        answered.append({
            name: tuple(column[row] for column in columns)
            for row, (name, key) in enumerate(named)
            if whole[key]
        })  # fmt: skip
    common = reduce(set.intersection, map(set, answered))
    if not common:
        raise UserError("no question was answered by both")
    for name in common:
        if len({questions[name] for questions in answered}) > 1:
            raise UserError(f"the question {name} differs; evaluate both on the same data")

    def restrict(checkpoint: QuestionItems) -> Items:
        """Return the common items, labelled with the same data, as the questions were compared."""
        rows = np.flatnonzero([name in common for name in checkpoint.texts(ITEM)])
        return replace(checkpoint.take(rows).items, data="")

    tests = {}
    for metric in ACCURACIES:
        if all(checkpoint.has(metric) for checkpoint in every):
            tests[metric] = compare_items([*map(restrict, ours)], [*map(restrict, theirs)], metric)
    return tests, len(reduce(set.union, map(set, answered))) - len(common)
