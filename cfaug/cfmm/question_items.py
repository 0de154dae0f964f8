"""One model's answers to basic and counterfactual questions: the items of ``benchmark=vqa``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from cfaug.cfmm.answering import Accuracies, accuracies, total
from cfaug.core.errors import UserError
from cfaug.core.question_sets import BASIC, COUNTERFACTUAL
from cfaug.core.types import CLUSTER, ITEM
from cfaug.report.model_items import ModelItems

ACCURACIES = ("acc_b", "acc_c", "acc_plus")
"""Columns of the items: for basic questions, counterfactual ones, and pairs of both."""

SEEN = ""
"""Prefixes of these columns: with the image, without it, with the options alone."""

ALL = "all questions"
"""The category of questions without one."""


@dataclass(frozen=True)
class ImageAnswers:
    """Right and wrong answers, image by image.

    Attributes:
        basic: whether the basic question was answered right, (images,).
        counterfactual: whether each counterfactual question was answered right, one array
            (questions,) per image.
        clusters: the cluster each image was sampled in, (images,).
    """

    basic: np.ndarray
    counterfactual: tuple[np.ndarray, ...]
    clusters: np.ndarray

    def __len__(self) -> int:
        return len(self.basic)

    def measure(self) -> Accuracies:
        """Return the accuracies over all images together (micro)."""
        return accuracies(self.basic, self.counterfactual)


class QuestionAnswers(ModelItems):
    """The answers of one model to one question set of any kind, asked in one way."""

    NEEDED: ClassVar[tuple[str, ...]] = (ITEM, CLUSTER, "category", "kind", "right")
    ASKED_BY = "vqa"

    @cached_property
    def category_of(self) -> list[str]:
        """The category of each item."""
        return [one or ALL for one in self.texts("category")]

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """The categories, in the order of the items."""
        return tuple(dict.fromkeys(self.category_of))

    @cached_property
    def keys(self) -> list[str]:
        """The image of each item: the part of its name before the slash."""
        return [name.rpartition("/")[0] for name in self.texts(ITEM)]

    def has(self, metric: str) -> bool:
        """Return whether any item has a value of a metric."""
        return metric in self.items.columns and bool((~np.isnan(self.items.metric(metric))).any())

    def by_category(self, metric: str) -> dict[str, np.ndarray]:
        """Return the existing values of a metric in each category that has any.

        Args:
            metric: name of a column of numbers.
        """
        values, names = self.items.metric(metric), np.array(self.category_of)
        found = {name: values[names == name] for name in self.categories}
        known = {name: own[~np.isnan(own)] for name, own in found.items()}
        return {name: own for name, own in known.items() if len(own)}

    def means(self, metric: str) -> dict[str, float]:
        """Return the mean of a metric in each category that has values."""
        return {name: float(own.mean()) for name, own in self.by_category(metric).items()}

    def total(self, metric: str) -> float:
        """Return the sum over categories of the metric's percentages."""
        return total(self.means(metric))

    def take(self, rows: np.ndarray) -> Self:
        """Return the answers to some of the questions.

        Args:
            rows: rows of the questions, integers (rows,).
        """
        columns = {name: np.asarray(own)[rows] for name, own in self.items.columns.items()}
        return replace(self, items=replace(self.items, columns=columns))

    def count_left_out(self) -> Mapping[str, int]:
        """Return how many questions were left out, by reason."""
        if "left_out" not in self.items.columns:
            return {}
        found: dict[str, int] = {}
        for reason in self.texts("left_out"):
            if reason:
                found[reason] = found.get(reason, 0) + 1
        return found


class QuestionItems(QuestionAnswers):
    """Answers to basic and counterfactual questions about each image."""

    NEEDED: ClassVar[tuple[str, ...]] = (*QuestionAnswers.NEEDED, *ACCURACIES)

    def __post_init__(self) -> None:
        columns = self.items.columns
        if "kind" in columns and not set(ACCURACIES) & set(columns):
            raise UserError(
                f"{self.items.benchmark} ({self.model}) asks no basic and counterfactual questions "
                "about an image, which acc_b, acc_c and acc_plus need: choose another question "
                "set, or other models"
            )
        super().__post_init__()

    @cached_property
    def changed(self) -> np.ndarray:
        """Whether a condition changes the answer, by item, float64.

        1 for a counterfactual question whose right answer differs from that of the image's basic
        question, 0 if it is the same; NaN for other questions, and if either is unknown.
        """
        kinds, answers = self.texts("kind"), self.texts("answer")
        rows = list(zip(self.keys, kinds, answers, strict=True))
        basic = {key: answer for key, kind, answer in rows if kind == BASIC}
        found = np.full(len(self), np.nan)
        for row, (key, kind, answer) in enumerate(rows):
            if kind == COUNTERFACTUAL and answer and basic.get(key):
                found[row] = float(answer != basic[key])
        return found

    @cached_property
    def images(self) -> ImageAnswers:
        """Images whose basic question and at least one counterfactual question were answered."""
        acc_b, acc_c = (self.items.metric(name) for name in ACCURACIES[:2])
        basic: dict[str, int] = {}
        others: dict[str, list[bool]] = {}
        for row, key in enumerate(self.keys):
            if not np.isnan(acc_b[row]):
                basic[key] = row
            elif not np.isnan(acc_c[row]):
                others.setdefault(key, []).append(acc_c[row] > 0)
        rows = {key: row for key, row in basic.items() if key in others}
        places = list(rows.values())
        clusters = np.array(self.texts(CLUSTER))
        return ImageAnswers(
            acc_b[places] > 0,
            tuple(np.array(others[key]) for key in rows),
            clusters[places],
        )
