"""Answers of a model checked against the right ones: columns of items, and outcomes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cfaug.cfmm.answering import accuracies, total
from cfaug.cfmm.question_groups import QuestionRow, group_columns, group_outcomes
from cfaug.core.question_sets import BASIC, COUNTERFACTUAL
from cfaug.core.questions import Answered
from cfaug.core.types import CLUSTER, ITEM, Better, Outcome
from cfaug.stats.option_choice import Reduction, choose, reduce_scores

BLIND, PRIOR = "blind_", "prior_"
"""Prefixes of columns and metrics about answers without the image, and without the question."""

UNDEFINED = {"consistency": 0.0, "phi": 0.0}
"""Values of metrics if all basic answers are wrong, or all answers of a kind are equal, so that the
numbers of all models can be compared; as in scikit-learn's ``matthews_corrcoef``, which is phi."""

PAIRED = ("acc_b", "acc_c", "acc_plus")


@dataclass(frozen=True)
class Reply:
    """An answer of a model.

    Attributes:
        chosen: number of the chosen option; ``None`` if options tie, a written answer names no
            option, or the question was left out.
        left_out: the reason if the question was left out, else empty.
        answered: the options' scores; ``None`` for a written answer.
        text: the answer or rationale that the model wrote; ``None`` if it wrote nothing.
        choices: {reduction of scores: number of the option that it chooses, ``None`` for a tie}.
    """

    chosen: int | None
    left_out: str = ""
    answered: Answered | None = None
    text: str | None = None
    choices: Mapping[Reduction, int | None] | None = None

    @property
    def flips(self) -> float:
        """1 if the reductions choose different options, else 0; NaN without scores."""
        return float("nan") if not self.choices else float(len({*self.choices.values()}) > 1)


def rank_reply(
    answered: Answered,
    options: Sequence[str],
    reduction: Reduction,
    blind: Answered | None = None,
) -> Reply:
    """Return the option chosen by scores, for every possible reduction.

    Args:
        answered: scores of the options.
        options: texts of the options.
        reduction: the reduction of likelihoods that decides.
        blind: scores of the options without the image, for ``pmi``; ``None`` if there are none.
    """
    if answered.left_out:
        return Reply(None, answered.left_out)
    nll, tokens = _scores(answered)
    names: list[Reduction] = ["token_mean", "sum", "char_norm"]
    baseline = None
    if blind is not None and not blind.left_out:
        names, baseline = [*names, "pmi"], _scores(blind)[0]
    choices = {one: choose(reduce_scores(nll, tokens, options, one, baseline)) for one in names}
    if reduction not in choices:
        return Reply(None, "blind_left_out")
    return Reply(choices[reduction], "", answered, choices=choices)


def _scores(answered: Answered) -> tuple[list[float], list[int]]:
    return [one.nll for one in answered.scores], [one.tokens for one in answered.scores]


def question_columns(rows: Sequence[QuestionRow]) -> dict[str, Any]:
    """Return the columns that do not depend on a model."""
    return {
        ITEM: [row.name for row in rows],
        CLUSTER: [row.image.group for row in rows],
        "image": [None if one.image.image is None else one.image.image.digest for one in rows],
        "category": [row.image.category for row in rows],
        "kind": [row.question.kind for row in rows],
        "question": [row.question.text for row in rows],
        "options": [_json(row.question.options) for row in rows],
        "answer": [row.question.right for row in rows],
    }


def reply_columns(
    rows: Sequence[QuestionRow], replies: Sequence[Reply], prefix: str = ""
) -> dict[str, Any]:
    """Return the columns of one way of asking: the option chosen, whether it is right, accuracies.

    Args:
        rows: the questions.
        replies: the replies, one per question.
        prefix: a prefix of the columns' names, such as ``blind_``.
    """
    right = np.array([
        float("nan") if one.left_out else float(one.chosen == row.question.answer)
        for row, one in zip(rows, replies, strict=True)
    ])  # fmt: skip
    chosen = [
        None if one.chosen is None else row.question.options[one.chosen]
        for row, one in zip(rows, replies, strict=True)
    ]
    found = {f"{prefix}chosen": chosen, f"{prefix}right": right}
    if any(one.answered is not None for one in replies):
        scores = [None if one.answered is None else _scores(one.answered) for one in replies]
        found[f"{prefix}nll"] = [None if one is None else _json(one[0]) for one in scores]
        if not prefix:
            found["tokens"] = [None if one is None else _json(one[1]) for one in scores]
    if holds_pairs(rows):
        paired = _paired_columns(rows, right)
        names = paired if not prefix else PAIRED
        found |= {f"{prefix}{name}": paired[name] for name in names}
    return found | group_columns(rows, right, prefix)


def choice_columns(rows: Sequence[QuestionRow], replies: Sequence[Reply]) -> dict[str, Any]:
    """Return the columns of the option that every reduction chooses, of flips and of ties."""
    kinds = dict.fromkeys(name for one in replies for name in one.choices or {})

    def text(row: QuestionRow, reply: Reply, kind: Reduction) -> str | None:
        place = (reply.choices or {}).get(kind)
        return None if place is None else row.question.options[place]

    return {
        **{
            f"chosen_{kind}": [text(row, one, kind) for row, one in zip(rows, replies, strict=True)]
            for kind in kinds
        },
        "flips": np.array([one.flips for one in replies]),
        "ties": np.array([
            float("nan") if one.answered is None else float(one.chosen is None) for one in replies
        ]),
    }  # fmt: skip


def holds_pairs(rows: Sequence[QuestionRow]) -> bool:
    """Return whether there are basic and counterfactual questions."""
    return {BASIC, COUNTERFACTUAL} <= {row.question.kind for row in rows}


def _by_image(rows: Sequence[QuestionRow], right: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """Yield the places of the basic and the counterfactual questions of each image that counts.

    An image whose basic question was left out does not count.
    """
    basic: dict[str, int] = {}
    others: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        if np.isnan(right[place]):
            continue
        if row.question.kind == BASIC:
            basic[row.image.key] = place
        elif row.question.kind == COUNTERFACTUAL:
            others.setdefault(row.image.key, []).append(place)
    for key, place in basic.items():
        yield place, others.get(key, [])


def _paired_columns(rows: Sequence[QuestionRow], right: np.ndarray) -> dict[str, np.ndarray]:
    found = {name: np.full(len(rows), np.nan) for name in (*PAIRED, "strict")}
    for place, others in _by_image(rows, right):
        found["acc_b"][place] = right[place]
        found["acc_c"][others] = right[others]
        found["acc_plus"][others] = right[place] * right[others]
        found["strict"][place] = float(right[[place, *others]].all())
    return found


def question_outcomes(
    name: str, rows: Sequence[QuestionRow], items: Mapping[str, Any]
) -> list[Outcome]:
    """Return accuracies overall, by category and by kind, totals, groups, and questions left out.

    Accuracies over all categories are micro averages; ``total_*`` is the plain sum of the
    categories' percentages (CFMM, section 4.1). Without counterfactual questions they are
    ``right``, by category and kind, and the accuracies of groups of two questions about two images.

    Args:
        name: the benchmark's name.
        rows: the questions.
        items: the columns of the items, one row per question.
    """
    found: list[Outcome] = []
    for prefix in ("", BLIND, PRIOR):
        if f"{prefix}right" in items:
            found += _accuracies(name, rows, np.asarray(items[f"{prefix}right"]), prefix)
    for metric in ("flips", "ties", "unparsed"):
        if metric in items and (counted := _counted(items[metric])).size:
            found.append(Outcome(name, metric, float(counted.mean()), counted.size, "lower"))
    left_out = sum(bool(one) for one in items["left_out"])
    return [
        *found,
        Outcome(name, "questions_left_out", left_out, len(rows), "lower", "questions"),
    ]


def _accuracies(
    name: str, rows: Sequence[QuestionRow], right: np.ndarray, prefix: str
) -> list[Outcome]:
    categories = sorted({row.image.category for row in rows} - {""})
    parts: list[tuple[dict[str, str], np.ndarray]] = [({}, np.ones(len(rows), bool))]
    own = np.array([row.image.category for row in rows], object)
    parts += [({"category": one}, own == one) for one in categories]
    if holds_pairs(rows):
        return _pair_accuracies(name, rows, right, prefix, parts)
    kinds = np.array([row.question.kind for row in rows], object)
    if len(every := sorted(set(kinds.tolist()))) > 1:
        parts += [({"kind": one}, kinds == one) for one in every]
    found = []
    for by, chosen in parts:
        if (counted := _counted(right[chosen])).size:
            mean = float(counted.mean())
            found.append(Outcome(name, f"{prefix}right", mean, counted.size, by=by))
    return [*found, *group_outcomes(name, rows, right, prefix)]


def _pair_accuracies(
    name: str, rows: Sequence[QuestionRow], right: np.ndarray, prefix: str,
    parts: Sequence[tuple[dict[str, str], np.ndarray]],
) -> list[Outcome]:  # fmt: skip
    found: list[Outcome] = []
    cells: dict[str, dict[str, float]] = {metric: {} for metric in PAIRED}
    images = list(_by_image(rows, right))
    if (counted := _counted(right)).size:
        found.append(Outcome(name, f"{prefix}right", float(counted.mean()), counted.size))
    for by, chosen in parts:
        own = [(place, others) for place, others in images if chosen[place]]
        if not own:
            continue
        basic = np.array([right[place] for place, _ in own])
        counterfactual = [right[others] for _, others in own]
        values = asdict(accuracies(basic, counterfactual))
        pairs = sum(map(len, counterfactual))
        n = {"acc_b": len(own), "strict": len(own)}
        named = PAIRED if prefix else (*PAIRED, "strict", "consistency", "drop", "phi")
        for metric in named:
            if metric in UNDEFINED and np.isnan(values[metric]) and pairs:
                values[metric] = UNDEFINED[metric]
            if np.isnan(values[metric]):
                continue
            unit = "correlation" if metric == "phi" else "fraction"
            better: Better = "lower" if metric == "drop" else "higher"
            found.append(
                Outcome(name, f"{prefix}{metric}", values[metric], n.get(metric, pairs), better,
                        unit, by)
            )  # fmt: skip
            if metric in cells and by:
                cells[metric][by["category"]] = values[metric]
    return found + [
        Outcome(name, f"{prefix}total_{metric}", total(own), len(own), unit="points")
        for metric, own in cells.items()
        if own
    ]


def _counted(values: Any) -> np.ndarray:
    numbers = np.asarray(values, np.float64)
    return np.asarray(numbers[~np.isnan(numbers)])


def _json(values: Sequence[Any]) -> str:
    return json.dumps(list(values), ensure_ascii=False)
