"""One model's answers to basic and counterfactual questions: the items of ``benchmark=vqa``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from cfaug.core.answers import Answered
from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema, to_json
from cfaug.core.types import CLUSTER, ITEM, Better, Outcome
from cfaug.data.questions import (
    BASIC,
    COUNTERFACTUAL,
    EXPECTED_BIAS,
    GROUPS,
    QuestionImage,
    SourceQuestion,
)
from cfaug.evaluation.questions.question_checks import group_accuracies, total, whole_groups
from cfaug.report.items import ModelItems
from cfaug.stats.choices import Accuracies, Reduction, accuracies, choose, reduce_scores

ACCURACIES = ("acc_b", "acc_c", "acc_plus")
"""Columns of the items: for basic questions, counterfactual ones, and pairs of both."""
SEEN, BLIND, PRIOR = "", "blind_", "prior_"
"""Prefixes of these columns: with the image, without it, with the options alone."""
BIAS = "bias_ratio"
"""The column, and the metric, of answers that are the memorised one of the question."""
ALL = "all questions"
"""The category of questions without one."""
ACCURACY_COLUMNS = (
    ItemColumn("acc_b", "1 if a basic question is answered right, else 0; null for others"),
    ItemColumn("acc_c", "the same for a counterfactual question"),
    ItemColumn("acc_plus", "1 if a counterfactual question and its image's basic one are right"),
)
BIAS_COLUMN = ItemColumn(
    BIAS,
    "1 if the answer is the one that is usually right, but not here, which the set names as "
    "``expected_bias``; null without one",
)
ANSWER_ITEMS = ItemSchema(
    "a question about an image",
    (
        ItemColumn("item", "``<image>/<question>``", "text", always=True),
        ItemColumn("cluster", "the image's group", "text", always=True),
        ItemColumn("image", "digest of its bytes", "text"),
        ItemColumn("category", "the category of the question", "text", always=True),
        ItemColumn("kind", "``basic``, ``counterfactual`` or another kind", "text", always=True),
        ItemColumn("question", "the question", "text"),
        ItemColumn("options", "the options", "JSON"),
        ItemColumn("answer", "the right option", "text"),
        ItemColumn(
            "chosen",
            "the model's option; null on a tie, or if its answer was not understood",
            "text",
        ),
        ItemColumn("right", "1 if that is the answer, else 0; null if left out", always=True),
        ItemColumn(
            "left_out",
            "why a question does not count: ``demonstration`` (its image is in a solved example), "
            "``no_answer``, ``one_option``, ``equal_options``, ``context`` (too long), "
            "``special_token`` (a text holds one), ``no_token`` (an option has none), "
            "``rationale`` (none was written), ``blind_left_out``; else empty",
            "text",
        ),
        ItemColumn("nll", "negative log-likelihood of each option", "JSON"),
        ItemColumn("tokens", "number of tokens of each option", "JSON"),
        ItemColumn(
            "chosen_<reduction>",
            "the option by another reduction: ``token_mean``, ``sum``, ``char_norm``, ``pmi``",
            "text",
        ),
        ItemColumn("flips", "1 if these differ"),
        ItemColumn("ties", "1 if several options are the most likely, which counts as wrong"),
        BIAS_COLUMN,
        *ACCURACY_COLUMNS,
        ItemColumn("strict", "1 if all questions about the image are right"),
        ItemColumn("q_acc", "for groups of questions: all about several images are right"),
        ItemColumn("f_acc", "for groups of questions: all about a figure are right"),
        ItemColumn("written", "the answer, if it was written", "text"),
        ItemColumn("unparsed", "1 if no option was understood in it, which counts as wrong"),
        ItemColumn("rationale", "the model's chain of thought", "text"),
        *(
            replace(column, name=f"{way}{column.name}", meaning=f"{column.meaning}; {how}")
            for way, how in ((BLIND, "asked without the image"), (PRIOR, "the options alone"))
            for column in (
                ItemColumn("chosen", "the model's option", "text"),
                ItemColumn("right", "1 if that is the answer, else 0"),
                ItemColumn("nll", "negative log-likelihood of each option", "JSON"),
                ItemColumn("q_acc", "``q_acc``"),
                ItemColumn("f_acc", "``f_acc``"),
                ItemColumn("written", "the answer, if it was written", "text"),
                BIAS_COLUMN,
                *ACCURACY_COLUMNS,
            )
        ),
    ),
)
"""The items of ``benchmark=vqa``."""


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

    schema: ClassVar[ItemSchema] = ANSWER_ITEMS
    BENCHMARK = "vqa"

    @cached_property
    def category_of(self) -> list[str]:
        """The category of each item."""
        return [text or ALL for text in self.texts("category")]

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """The categories, in the order of the items."""
        return tuple(dict.fromkeys(self.category_of))

    @cached_property
    def keys(self) -> list[str]:
        """The image of each item: the part of its name before the slash."""
        return [name.rpartition("/")[0] for name in self.texts(ITEM)]

    def by_category(self, metric: str) -> dict[str, np.ndarray]:
        """Return the existing values of a metric in each category that has any."""
        values, names = self.items.metric(metric), np.array(self.category_of)
        by_name = {name: values[names == name] for name in self.categories}
        known = {name: scores[~np.isnan(scores)] for name, scores in by_name.items()}
        return {name: scores for name, scores in known.items() if len(scores)}

    def means(self, metric: str) -> dict[str, float]:
        """Return the mean of a metric in each category that has values."""
        return {name: float(scores.mean()) for name, scores in self.by_category(metric).items()}

    def total(self, metric: str) -> float:
        """Return the sum over categories of the metric's percentages."""
        return total(self.means(metric))

    def take(self, rows: np.ndarray) -> Self:
        """Return the answers to some of the questions."""
        columns = {name: np.asarray(values)[rows] for name, values in self.items.columns.items()}
        return replace(self, items=replace(self.items, columns=columns))

    def count_left_out(self) -> Mapping[str, int]:
        """Return how many questions were left out, by reason."""
        reasons = self.texts("left_out") if "left_out" in self.items.columns else []
        return Counter(reason for reason in reasons if reason)


class QuestionItems(QuestionAnswers):
    """Answers to basic and counterfactual questions about each image."""

    schema: ClassVar[ItemSchema] = ANSWER_ITEMS.extend(
        ANSWER_ITEMS.row, *(replace(column, always=True) for column in ACCURACY_COLUMNS)
    )

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
        changed = np.full(len(self), np.nan)
        for row, (key, kind, answer) in enumerate(rows):
            if kind == COUNTERFACTUAL and answer and basic.get(key):
                changed[row] = float(answer != basic[key])
        return changed

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


# Answers of a model checked against the right ones: columns of items, and outcomes.

UNDEFINED = {"consistency": 0.0, "phi": 0.0}
"""Values of metrics if all basic answers are wrong, or all answers of a kind are equal, so that the
numbers of all models can be compared; as in scikit-learn's ``matthews_corrcoef``, which is phi."""


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


def rank_reply(
    answered: Answered,
    options: Sequence[str],
    reduction: Reduction,
    blind: Answered | None = None,
) -> Reply:
    """Return the option chosen by scores, for every possible reduction.

    Args:
        blind: scores of the options without the image, for ``pmi``; ``None`` if there are none.
    """
    if answered.left_out:
        return Reply(None, answered.left_out)
    nll, tokens = _scores(answered)
    names: list[Reduction] = ["token_mean", "sum", "char_norm"]
    baseline = None
    if blind is not None and not blind.left_out:
        names, baseline = [*names, "pmi"], _scores(blind)[0]
    choices = {name: choose(reduce_scores(nll, tokens, options, name, baseline)) for name in names}
    if reduction not in choices:
        return Reply(None, "blind_left_out")
    return Reply(choices[reduction], "", answered, choices=choices)


def _scores(answered: Answered) -> tuple[list[float], list[int]]:
    return [score.nll for score in answered.scores], [score.tokens for score in answered.scores]


def question_columns(rows: Sequence[QuestionRow]) -> dict[str, Any]:
    """Return the columns that do not depend on a model."""
    return {
        ITEM: [row.name for row in rows],
        CLUSTER: [row.image.group for row in rows],
        "image": [None if row.image.image is None else row.image.image.digest for row in rows],
        "category": [row.image.category for row in rows],
        "kind": [row.question.kind for row in rows],
        "question": [row.question.text for row in rows],
        "options": [to_json(row.question.options) for row in rows],
        "answer": [row.question.right for row in rows],
    }


def reply_columns(
    rows: Sequence[QuestionRow], replies: Sequence[Reply], prefix: str = ""
) -> dict[str, Any]:
    """Return the columns of one way of asking, such as ``blind_`` answers and accuracies."""
    every = list(zip(rows, replies, strict=True))
    right = np.array([
        float("nan") if reply.left_out else float(reply.chosen == row.question.answer)
        for row, reply in every
    ])  # fmt: skip
    chosen = [None if r.chosen is None else row.question.options[r.chosen] for row, r in every]
    columns: dict[str, Any] = {f"{prefix}chosen": chosen, f"{prefix}right": right}
    if any(reply.answered is not None for reply in replies):
        scores = [None if reply.answered is None else _scores(reply.answered) for reply in replies]
        columns[f"{prefix}nll"] = [None if score is None else to_json(score[0]) for score in scores]
        if not prefix:
            columns["tokens"] = [None if score is None else to_json(score[1]) for score in scores]
    if holds_pairs(rows):
        names = ACCURACIES if prefix else (*ACCURACIES, "strict")
        paired = {name: np.full(len(rows), np.nan) for name in (*ACCURACIES, "strict")}
        for basic, others in _by_image(rows, right):
            paired["acc_b"][basic] = right[basic]
            paired["acc_c"][others] = right[others]
            paired["acc_plus"][others] = right[basic] * right[others]
            paired["strict"][basic] = float(right[[basic, *others]].all())
        columns |= {f"{prefix}{name}": paired[name] for name in names}
    if any(EXPECTED_BIAS in row.question.extra for row in rows):
        columns[f"{prefix}{BIAS}"] = memorised_answers(rows, replies)
    return columns | group_columns(rows, right, prefix)


def memorised_answers(rows: Sequence[QuestionRow], replies: Sequence[Reply]) -> np.ndarray:
    """Return whether each answer is the memorised one of its question, float64 (questions,).

    Their mean is the bias ratio (Vo et al., 2025): of all answers, right ones included. An answer
    that ties or is not understood is not the memorised one.

    Returns:
        1 or 0; NaN for a question without a memorised answer, or one that was left out.
    """
    values = []
    for row, reply in zip(rows, replies, strict=True):
        memorised = row.question.extra.get(EXPECTED_BIAS)
        chosen = None if reply.chosen is None else row.question.options[reply.chosen]
        counts = memorised is not None and not reply.left_out
        values.append(float(chosen == memorised) if counts else np.nan)
    return np.array(values)


def choice_columns(rows: Sequence[QuestionRow], replies: Sequence[Reply]) -> dict[str, Any]:
    """Return the columns of the option that every reduction chooses, of flips and of ties.

    A flip is 1 if the reductions choose different options, else 0; NaN without scores.
    """
    columns: dict[str, Any] = {}
    for reduction in dict.fromkeys(name for reply in replies for name in reply.choices or {}):
        places = [(reply.choices or {}).get(reduction) for reply in replies]
        columns[f"chosen_{reduction}"] = [
            None if index is None else row.question.options[index]
            for row, index in zip(rows, places, strict=True)
        ]
    every = [reply.choices for reply in replies]
    nan = float("nan")
    return columns | {
        "flips": np.array([
            float(len({*choices.values()}) > 1) if choices else nan for choices in every
        ]),
        "ties": np.array([
            nan if reply.answered is None else float(reply.chosen is None) for reply in replies
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
    for position, row in enumerate(rows):
        if np.isnan(right[position]):
            continue
        if row.question.kind == BASIC:
            basic[row.image.key] = position
        elif row.question.kind == COUNTERFACTUAL:
            others.setdefault(row.image.key, []).append(position)
    for key, position in basic.items():
        yield position, others.get(key, [])


def question_outcomes(
    name: str, rows: Sequence[QuestionRow], items: Mapping[str, Any]
) -> list[Outcome]:
    """Return accuracies overall, by category and by kind, totals, groups, and questions left out.

    Accuracies over all categories are micro averages; ``total_*`` is the plain sum of the
    categories' percentages (CFMM, section 4.1). Without counterfactual questions they are
    ``right``, by category and kind, and the accuracies of groups of two questions about two images.
    Where questions have a memorised answer, ``bias_ratio`` is the share of answers that repeat it.
    """
    categories = np.array([row.image.category for row in rows], object)
    kinds = np.array([row.question.kind for row in rows], object)
    parts: list[tuple[dict[str, str], np.ndarray]] = [({}, np.ones(len(rows), bool))]
    parts += [
        ({"category": category}, categories == category)
        for category in sorted(set(categories.tolist()) - {""})
    ]
    several = sorted(set(kinds.tolist()))
    by_kind = [({"kind": kind}, kinds == kind) for kind in several] if len(several) > 1 else []
    outcomes: list[Outcome] = []
    for prefix in (SEEN, BLIND, PRIOR):
        if f"{prefix}right" not in items:
            continue
        right = np.asarray(items[f"{prefix}right"])
        outcomes += _bias_outcomes(name, prefix, items, [*parts, *by_kind])
        if holds_pairs(rows):
            outcomes += _pair_accuracies(name, rows, right, prefix, parts)
            continue
        for by, chosen in [*parts, *by_kind]:
            if (counted := _counted(right[chosen])).size:
                mean = float(counted.mean())
                outcomes.append(Outcome(name, f"{prefix}right", mean, counted.size, by=by))
        outcomes += group_outcomes(name, rows, right, prefix)
    for metric in ("flips", "ties", "unparsed"):
        if metric in items and (counted := _counted(items[metric])).size:
            outcomes.append(Outcome(name, metric, float(counted.mean()), counted.size, "lower"))
    left_out = sum(bool(reason) for reason in items["left_out"])
    outcomes.append(Outcome(name, "questions_left_out", left_out, len(rows), "lower", "questions"))
    return outcomes


def _bias_outcomes(
    name: str,
    prefix: str,
    items: Mapping[str, Any],
    parts: Sequence[tuple[dict[str, str], np.ndarray]],
) -> list[Outcome]:
    """Return the bias ratio, whole and by part, and means over the categories: the paper's numbers.

    A set without memorised answers has none of these.
    """
    if f"{prefix}{BIAS}" not in items:
        return []
    values = np.asarray(items[f"{prefix}{BIAS}"])
    outcomes = [
        Outcome(name, f"{prefix}{BIAS}", float(counted.mean()), counted.size, "lower", by=by)
        for by, chosen in parts
        if (counted := _counted(values[chosen])).size
    ]
    betters: dict[str, Better] = {"right": "higher", BIAS: "lower"}
    for metric, better in betters.items():
        of_category = [
            counted
            for by, chosen in parts
            if "category" in by
            and (counted := _counted(np.asarray(items[f"{prefix}{metric}"])[chosen])).size
        ]
        if of_category:
            mean = float(np.mean([counted.mean() for counted in of_category]))
            n = sum(counted.size for counted in of_category)
            outcomes.append(Outcome(name, f"{prefix}{metric}_macro", mean, n, better))
    return outcomes


def _pair_accuracies(
    name: str, rows: Sequence[QuestionRow], right: np.ndarray, prefix: str,
    parts: Sequence[tuple[dict[str, str], np.ndarray]],
) -> list[Outcome]:  # fmt: skip
    outcomes: list[Outcome] = []
    cells: dict[str, dict[str, float]] = {metric: {} for metric in ACCURACIES}
    images = list(_by_image(rows, right))
    if (counted := _counted(right)).size:
        outcomes.append(Outcome(name, f"{prefix}right", float(counted.mean()), counted.size))
    for by, chosen in parts:
        selected = [(position, others) for position, others in images if chosen[position]]
        if not selected:
            continue
        basic = np.array([right[position] for position, _ in selected])
        counterfactual = [right[others] for _, others in selected]
        values = asdict(accuracies(basic, counterfactual))
        pairs = sum(map(len, counterfactual))
        n = {"acc_b": len(selected), "strict": len(selected)}
        named = ACCURACIES if prefix else (*ACCURACIES, "strict", "consistency", "drop", "phi")
        for metric in named:
            if metric in UNDEFINED and np.isnan(values[metric]) and pairs:
                values[metric] = UNDEFINED[metric]
            if np.isnan(values[metric]):
                continue
            unit = "correlation" if metric == "phi" else "fraction"
            better: Better = "lower" if metric == "drop" else "higher"
            outcomes.append(
                Outcome(name, f"{prefix}{metric}", values[metric], n.get(metric, pairs), better,
                        unit, by)
            )  # fmt: skip
            if metric in cells and by:
                cells[metric][by["category"]] = values[metric]
    return outcomes + [
        Outcome(
            name, f"{prefix}total_{metric}", total(by_category), len(by_category), unit="points"
        )
        for metric, by_category in cells.items()
        if by_category
    ]


def _counted(values: Any) -> np.ndarray:
    numbers = np.asarray(values, np.float64)
    return np.asarray(numbers[~np.isnan(numbers)])


# Groups of questions: the share of groups that are answered without a mistake.

GROUP, GROUP_PLACES = "group", ("question", "image")
"""Keys in a question's ``extra``: its group, and its place among two questions and two images."""
SQUARE = Counter({(0, 0): 1, (0, 1): 1, (1, 0): 1, (1, 1): 1})
"""The places of a whole group, question by question."""


@dataclass(frozen=True)
class QuestionRow:
    """A question of a set, with its image.

    Attributes:
        left_out: the reason if the question is left out, else empty.
    """

    image: QuestionImage
    question: SourceQuestion
    left_out: str = ""

    @property
    def name(self) -> str:
        """The question's name in the items."""
        return f"{self.image.key}/{self.question.id}"


def group_columns(
    rows: Sequence[QuestionRow], right: np.ndarray, prefix: str = ""
) -> dict[str, np.ndarray]:
    """Return the columns of groups, 1 or 0 at the first question of each: see ``whole_groups``.

    Args:
        right: 1 if a question is answered correctly, else 0; NaN if it was left out, (questions,).
    """
    columns = {}
    for metric in ("q_acc", "f_acc"):  # the names that ``extra[GROUPS]`` may have
        names: list[str | None] = []
        for row in rows:
            groups = row.question.extra.get(GROUPS)
            group = groups.get(metric) if isinstance(groups, Mapping) else None
            names.append(None if group is None else str(group))
        if any(name is not None for name in names):
            columns[f"{prefix}{metric}"] = whole_groups(right, names)
    return columns


def group_outcomes(
    name: str, rows: Sequence[QuestionRow], right: np.ndarray, prefix: str
) -> list[Outcome]:
    """Return the share of groups without a mistake, and NaturalBench's accuracies where they apply.

    Groups with a question that was left out do not count.

    Args:
        right: 1 if a question is answered correctly, else 0; NaN if it was left out, (questions,).
    """
    groups: dict[str, list[tuple[tuple[object, ...], float]]] = {}
    for row, value in zip(rows, right.tolist(), strict=True):
        if (group := row.question.extra.get(GROUP)) is not None:
            places = tuple(row.question.extra.get(key) for key in GROUP_PLACES)
            groups.setdefault(str(group), []).append((places, value))
    whole = [
        members
        for members in groups.values()
        if len(members) > 1 and not np.isnan([value for _, value in members]).any()
    ]
    named = [
        Outcome(name, column, float(counted.mean()), counted.size)
        for column, values in group_columns(rows, right, prefix).items()
        if (counted := values[~np.isnan(values)]).size
    ]
    if not whole:
        return named
    if all(Counter(places for places, _ in members) == SQUARE for members in whole):
        cells = [[dict(members)[position] for position in SQUARE] for members in whole]
        scores = group_accuracies(np.array(cells).reshape(-1, 2, 2).astype(bool))
        del scores["acc"]
    else:
        scores = {
            "g_acc": float(np.mean([all(value for _, value in members) for members in whole]))
        }
    return named + [
        Outcome(name, f"{prefix}{metric}", value, len(whole)) for metric, value in scores.items()
    ]
