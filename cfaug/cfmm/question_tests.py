"""Are counterfactual questions harder, and is one model better? Tests over questions and images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from cfaug.cfmm.question_checks import phi_interval
from cfaug.cfmm.question_items import ACCURACIES, QuestionItems
from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.core.types import ITEM
from cfaug.report.item_tests import ItemTest, compare_items
from cfaug.report.items import Items
from cfaug.stats.significance import SeedSummary, holm, summarise
from cfaug.stats.stress import DropTest, paired_drop

ALPHA = 0.05
"""Level of the tests."""

Checkpoints = Sequence[QuestionItems]
"""The answers of one model's checkpoints, asked in one way; at least one."""


@dataclass(frozen=True)
class CounterfactualDrop:
    """Answers to basic questions compared with those to counterfactual ones about the same image.

    Attributes:
        test: test over images of the basic answer minus the mean of the counterfactual ones,
            averaged over checkpoints; p by a permutation that exchanges the two for whole clusters
            of images.
        images: number of images with answers to both kinds of questions.
        phi: correlation of right answers over pairs, mean and spread over checkpoints; ``None`` if
            it is undefined for a checkpoint.
        phi_low: lower end of its 95 % bootstrap interval over images, averaged over checkpoints.
        phi_high: upper end of the interval.
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


def compare_kinds(asked: Sequence[Checkpoints]) -> list[CounterfactualDrop | None]:
    """Compare each model's counterfactual answers with its basic ones; Holm over all.

    Returns:
        One drop for each model; ``None`` if no image has answers to both kinds of questions, or
        checkpoints answered different images.
    """
    found = [_drop(checkpoints) for checkpoints in asked]
    known = [one for one in found if one is not None]
    corrected = iter(holm([one.p for one in known]).tolist() if known else [])
    return [None if one is None else replace(one, p_holm=next(corrected)) for one in found]


def _drop(checkpoints: Checkpoints) -> CounterfactualDrop | None:
    own = [checkpoint.images for checkpoint in checkpoints]
    first = own[0]
    same = all(np.array_equal(one.clusters, first.clusters) for one in own)
    if not (len(first) and same):
        return None
    before = np.mean([one.basic for one in own], axis=0)
    after = np.mean([[part.mean() for part in one.counterfactual] for one in own], axis=0)
    about = ("question_drops", checkpoints[0].items.benchmark)
    ends = np.array([
        phi_interval(one.basic, one.counterfactual, one.clusters,
                     generator(0, "phi", checkpoints[0].items.benchmark))
        for one in own
    ])  # fmt: skip
    phi = [one.measure().phi for one in own]
    return CounterfactualDrop(
        test=paired_drop(before, after, first.clusters, generator(0, *about)),
        images=len(first),
        phi=None if any(map(math.isnan, phi)) else summarise(phi),
        phi_low=float(ends[:, 0].mean()),
        phi_high=float(ends[:, 1].mean()),
    )


@dataclass(frozen=True)
class ModelComparison:
    """Two models, or two ways to ask one, on the questions that both answered.

    Attributes:
        first: printed name of the model that should be better.
        tests: test of each metric that both have, by its name.
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
    every = [(place, name) for place, one in enumerate(comparisons) for name in one.tests]
    p = [comparisons[place].tests[name].p_two_sided for place, name in every]
    corrected = dict(zip(every, holm(p).tolist() if p else [], strict=True))
    return [
        replace(one, p_holm={name: corrected[place, name] for name in one.tests})
        for place, one in enumerate(comparisons)
    ], refused


def _compare(ours: Checkpoints, theirs: Checkpoints) -> tuple[dict[str, ItemTest], int]:
    every = [*ours, *theirs]
    answered = [_answered(one) for one in every]
    common = reduce(set.intersection, map(set, answered))
    if not common:
        raise UserError("no question was answered by both")
    for name in common:
        if len({own[name] for own in answered}) > 1:
            raise UserError(f"the question {name} differs; evaluate both on the same data")
    tests = {}
    for metric in ACCURACIES:
        if all(one.has(metric) for one in every):
            first, other = ([_restrict(one, common) for one in side] for side in (ours, theirs))
            tests[metric] = compare_items(first, other, metric)
    return tests, len(reduce(set.union, map(set, answered))) - len(common)


def _answered(items: QuestionItems) -> dict[str, tuple[str, ...]]:
    """Return the questions of fully answered images, and their identifying columns."""
    said = [items.texts(name) for name in ("image", "question", "answer", "category", "kind")
            if name in items.items.columns]  # fmt: skip
    right = items.items.metric("right")
    whole: dict[str, bool] = {}
    for key, value in zip(items.keys, right, strict=True):
        whole[key] = whole.get(key, True) and not math.isnan(value)
    return {
        name: tuple(column[row] for column in said)
        for row, (name, key) in enumerate(zip(items.texts(ITEM), items.keys, strict=True))
        if whole[key]
    }


def _restrict(items: QuestionItems, names: set[str]) -> Items:
    """Return some of the items, labelled with the same data, as the questions were compared."""
    rows = np.flatnonzero([name in names for name in items.texts(ITEM)])
    return replace(items.take(rows).items, data="")
