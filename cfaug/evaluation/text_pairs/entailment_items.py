"""An entailer's answers before and after texts were changed: tables and tests of its items.

Accuracy is a mean over texts, tested by McNemar's exact test and a permutation of whole photos.
Macro scores are not means over texts: the confusion matrices of photos are resampled. Holm's
correction runs over the methods of a table. Texts whose right answer is known to be kept are also
tested separately: a drop on them is the model's fault and not the text's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn
from cfaug.core.outputs import write_output
from cfaug.core.rng import generator
from cfaug.core.types import CLUSTER, ENTAILMENT
from cfaug.evaluation.text_pairs.text_pair_items import (
    CHANGED,
    KEPT,
    PAIR_ITEMS,
    UNKNOWN,
    TextPairItems,
    compare_changes,
)
from cfaug.report.document import Column, Document, Part, make_part, text_column, to_markdown
from cfaug.report.page import p_text, percent, points
from cfaug.stats.classification import MacroScores, confusion_matrix, macro_scores
from cfaug.stats.significance import holm

BEFORE = "_original"
"""Suffix of the columns about the text before the change."""
ACCURACY = "accuracy (%)"
AXIOM = "axiom_violations"


ENTAILMENT_ITEMS = PAIR_ITEMS.extend(
    "a set of a method; without changed texts, a hypothesis",
    ItemColumn(
        "label",
        "the right answer to the original text, by which both are scored",
        "text",
        always=True,
    ),
    ItemColumn(
        "label_kept",
        "whether the right answer is ``kept``, ``changed`` or ``unknown``",
        "text",
        always=True,
    ),
    ItemColumn("image", "digest of the photo's bytes", "text"),
    ItemColumn("predicted_original", "the answer to the original text", "text", always=True),
    ItemColumn("predicted", "the answer to the changed text", "text"),
    ItemColumn("accuracy_original", "1 if the first is the label, else 0", always=True),
    ItemColumn("accuracy", "1 if the second is the label, else 0"),
    ItemColumn("accuracy_drop", "the first minus the second"),
    *(
        ItemColumn(f"p_{answer}{part}", f"probability of this answer to the {text} text")
        for part, text in ((BEFORE, "original"), ("", "changed"))
        for answer in ENTAILMENT
    ),
    ItemColumn(
        AXIOM,
        "for texts that follow, and for which the model says so: 1 if its answer to the changed "
        "text is contradiction, else 0 (section 4.2); null for others",
    ),
)
"""The items of ``benchmark=entailment``."""


class EntailmentItems(TextPairItems):
    """One model's answers to texts before and after methods changed them, and the right answers."""

    schema = ENTAILMENT_ITEMS
    BENCHMARK = "entailment"

    @property
    def has_after(self) -> bool:
        """Whether any text was changed, unlike in plain labelled hypotheses."""
        return "predicted" in self.items.columns

    @cached_property
    def _numbers(self) -> dict[str, np.ndarray]:
        names = ["label", f"predicted{BEFORE}", *(["predicted"] if self.has_after else [])]
        number = {label: at for at, label in enumerate(ENTAILMENT)}
        numbers = {}
        for name in names:
            texts = self.texts(name)
            odd = sorted(set(texts) - set(ENTAILMENT))
            if odd:
                raise UserError(
                    f"the items of {self.items.benchmark}: {name}={odd[0]!r} is invalid: choose "
                    f"from {', '.join(ENTAILMENT)}; {self.renew}"
                )
            numbers[name] = np.array([number[text] for text in texts])
        return numbers

    def answers(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Return rows of a column as numbers of ``ENTAILMENT``, int64.

        Args:
            name: name of the column: ``label``, ``predicted_original`` or ``predicted``.
        """
        return np.asarray(self._numbers[name][rows])

    def matrix(self, method: str, *, before: bool) -> np.ndarray:
        """Return the counts of answers to each label, int64 (3, 3), rows the labels.

        Args:
            before: whether the original texts are counted instead of the changed ones.
        """
        rows = self.rows(method)
        predicted = self.answers(f"predicted{BEFORE if before else ''}", rows)
        return confusion_matrix(self.answers("label", rows), predicted, len(ENTAILMENT))

    def drops(self, method: str, kept_only: bool = False) -> list[ScoreDrop]:
        """Return accuracy and macro scores before and after, each tested; empty without texts."""
        rows = self.rows(method, kept_only)
        if not len(rows):
            return []
        return score_drops(
            self.answers("label", rows),
            self.answers(f"predicted{BEFORE}", rows),
            self.answers("predicted", rows),
            [self.texts(CLUSTER)[row] for row in rows],
            generator(0, "entailment", self.items.benchmark, method, str(kept_only)),
            classes=len(ENTAILMENT),
        )

    def tells_kept(self, method: str) -> bool:
        """Return whether the right answer of any changed text is known to be kept or changed."""
        changed = self.items.metric("changed")
        return any(
            self.label_kept[row] != UNKNOWN and changed[row] for row in self.rows(method).tolist()
        )


def entailment_document(answers: EntailmentItems) -> Document:
    """Return the scores of every method, of every label, and the confusion matrices, as tables."""
    title = f"{answers.model}: {answers.items.benchmark}"
    if not answers.has_after:
        return Document("entailment", title, (_before_part(answers), *_confusions(answers)))
    parts = [_scores_part(answers, "All texts", answers.methods, False)]
    known = [method for method in answers.methods if answers.tells_kept(method)]
    if known:
        parts.append(_scores_part(answers, "Texts whose right answer was kept", known, True))
        parts.append(_checks_part(answers, known))
    notes = (
        "Each changed text is compared with its original; both are scored by the original label. "
        "Intervals: bootstrap over photos, too narrow for few photos. The permutation exchanges "
        "before and after for whole photos; McNemar's test treats texts of one photo as "
        "independent. Holm: corrected over a table's methods. Macro scores are means over the "
        "three labels. Axiom: texts that follow from their photo by their label and by the "
        "model's answer; violated if the model answers that the changed text contradicts it.",
    )
    return Document("entailment", title, (*parts, _labels_part(answers), *_confusions(answers)),
                    notes)  # fmt: skip


def _scores_part(
    answers: EntailmentItems, title: str, methods: Sequence[str], kept_only: bool
) -> Part:
    changes = compare_changes(
        [answers], f"accuracy{BEFORE}", "accuracy", methods, kept_only=kept_only
    )
    tests = {change.method: change for change in changes}
    drops = {
        method: {drop.name: drop for drop in every}
        for method in methods
        if (every := answers.drops(method, kept_only))
    }
    known = [method for method, by_score in drops.items() if not math.isnan(by_score["f1"].p)]
    f1_holm = holm([drops[method]["f1"].p for method in known]).tolist()
    corrected = dict(zip(known, f1_holm, strict=True))

    def side(name: str, when: str, method: str) -> str:
        return percent(getattr(drops[method][name], when))

    def accuracy_drop(method: str) -> str:
        mean = tests[method].test.mean
        return _interval(drops[method]["accuracy"].drop, mean.low, mean.high)

    def f1_drop(method: str) -> str:
        f1 = drops[method]["f1"]
        return _interval(f1.drop, f1.low, f1.high)

    def f1_p_holm(method: str) -> str:
        return p_text(corrected.get(method, math.nan))

    def axiom(method: str) -> str:
        return _axiom(answers, answers.rows(method, kept_only))

    more: dict[tuple[str, str], dict[str, Callable[[str], str]]] = {
        ("accuracy", ACCURACY): {
            "drop [95 %]": accuracy_drop,
            "McNemar": lambda method: p_text(tests[method].test.p_sign),
            "permutation": lambda method: p_text(tests[method].p),
            "Holm": lambda method: p_text(tests[method].p_holm),
        },
        ("f1", "macro F1 (%)"): {
            "drop [95 %]": f1_drop,
            "permutation": lambda method: p_text(drops[method]["f1"].p),
            "Holm": f1_p_holm,
        },
        ("precision", "macro precision (%)"): {},
        ("recall", "macro recall (%)"): {},
    }
    columns: list[Column[str]] = [
        text_column("texts", lambda method: str(tests[method].keys)),
        text_column("photos", lambda method: str(tests[method].test.mean.clusters)),
    ]
    for (name, group), cells in more.items():
        columns += [
            text_column(when, partial(side, name, when), group) for when in ("before", "after")
        ]
        columns += [text_column(header, cell, group) for header, cell in cells.items()]
    columns.append(text_column("violations", axiom, "axiom"))
    return make_part(title, ("method",), columns, [((method,), method) for method in drops])


def _interval(mean: float, low: float, high: float) -> str:
    return points(mean) + ("" if math.isnan(low) else f" [{points(low)}, {points(high)}]")


def _axiom(answers: EntailmentItems, rows: np.ndarray) -> str:
    values = answers.items.metric(AXIOM)[rows]
    values = values[~np.isnan(values)]
    return f"{int(values.sum())} of {len(values)}"


def _checks_part(answers: EntailmentItems, methods: Sequence[str]) -> Part:
    """Return how many right answers were kept, and the answers to texts that lost theirs."""
    accuracy = answers.items.metric("accuracy")

    def count(label: str, method: str) -> str:
        return f"{sum(answers.label_kept[row] == label for row in answers.rows(method).tolist())}"

    def still_original(method: str) -> str:
        lost = [row for row in answers.rows(method).tolist() if answers.label_kept[row] == CHANGED]
        return percent(float(accuracy[lost].mean()) if lost else math.nan)

    columns: list[Column[str]] = [
        *(
            text_column(label, partial(count, label), "right answer")
            for label in (KEPT, CHANGED, UNKNOWN)
        ),
        text_column("still answered with the original label (%)", still_original, "of the changed"),
    ]
    return make_part("Right answers", ("method",), columns, [((name,), name) for name in methods])


def _labels_part(answers: EntailmentItems) -> Part:
    before, after = (answers.items.metric(f"accuracy{part}") for part in (BEFORE, ""))
    rows = []
    for method in answers.methods:
        of_method = answers.rows(method)
        for number, label in enumerate(ENTAILMENT):
            some = of_method[answers.answers("label", of_method) == number]
            if len(some):
                means = float(before[some].mean()), float(after[some].mean())
                rows.append(((method, label), (len(some), *means)))
    columns: tuple[Column[tuple[int, float, float]], ...] = (
        text_column("texts", lambda row: str(row[0])),
        text_column("before", lambda row: percent(row[1]), ACCURACY),
        text_column("after", lambda row: percent(row[2]), ACCURACY),
        text_column("drop", lambda row: points(row[1] - row[2]), ACCURACY),
    )
    return make_part("Labels", ("method", "label"), columns, rows)


def _before_part(answers: EntailmentItems) -> Part:
    columns: tuple[Column[tuple[int, MacroScores]], ...] = (
        text_column("texts", lambda row: str(row[0])),
        text_column("accuracy (%)", lambda row: percent(row[1].accuracy)),
        text_column("precision", lambda row: percent(row[1].precision), "macro (%)"),
        text_column("recall", lambda row: percent(row[1].recall), "macro (%)"),
        text_column("F1", lambda row: percent(row[1].f1), "macro (%)"),
    )
    rows = [
        ((method,), (len(answers.rows(method)), macro_scores(answers.matrix(method, before=True))))
        for method in answers.methods
    ]
    return make_part("Scores", ("source",), columns, rows)


def _confusions(answers: EntailmentItems) -> list[Part]:
    """Return the answers to each label, before (the same for all methods) and after each method."""
    first = answers.methods[0]
    sides = [(f"{first}, before" if answers.has_after else first, first, True)]
    if answers.has_after:
        sides += [(f"{method}, after", method, False) for method in answers.methods]

    def count(at: int, row: Sequence[int]) -> str:
        return str(row[at])

    columns = [
        text_column(label, partial(count, at), "answered with")
        for at, label in enumerate(ENTAILMENT)
    ]
    parts = []
    for title, method, before in sides:
        counts = answers.matrix(method, before=before).tolist()
        rows = [((label,), row) for label, row in zip(ENTAILMENT, counts, strict=True)]
        parts.append(make_part(f"Answers: {title}", ("label",), columns, rows))
    return parts


def summarise_entailment(answers: EntailmentItems) -> list[str]:
    """Return a line per method for the terminal."""
    lines = []
    for method in answers.methods:
        rows = answers.rows(method)
        before = float(answers.items.metric(f"accuracy{BEFORE}")[rows].mean())
        line = f"{method}: {len(rows):,} texts, accuracy {percent(before)} %"
        if answers.has_after:
            after = float(answers.items.metric("accuracy")[rows].mean())
            line += f" before, {percent(after)} % after; axiom violated {_axiom(answers, rows)}"
            if answers.tells_kept(method):
                kept = answers.rows(method, kept_only=True)
                values = [answers.items.metric(f"accuracy{part}")[kept] for part in (BEFORE, "")]
                shares = " to ".join(f"{percent(float(value.mean()))} %" for value in values)
                line += f"; of {len(kept):,} texts whose right answer was kept {shares}"
        lines.append(line)
    return lines


def write_entailment(folder: Path, answers: EntailmentItems) -> Path:
    """Write the tables of a model as ``entailment.md`` beside its results, and return the file."""
    file = folder / "entailment.md"
    try:
        write_output(file, to_markdown(entailment_document(answers)).encode(), file.name)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
    return file


# Paired tests of the loss of accuracy and macro scores on the same items after a change.
#
# A macro score is not a mean over items. So clusters of items are resampled with their confusion
# matrices, and the scores of each resample are computed anew.
#
# ``scipy.stats.bootstrap`` would copy the matrices of every drawn cluster: with 100 clusters of 3
# classes it takes 1.5 times as long for the interval as this module for interval and permutation
# test together.

SCORES = ("accuracy", "precision", "recall", "f1")
RESAMPLES = 10_000
DRAWN_AT_ONCE = 2**22
"""Counts drawn at once: 32 MB."""
ROUNDING = 1e-12
"""Differences of scores below this are rounding error."""


@dataclass(frozen=True)
class ScoreDrop:
    """One score before and after a change.

    Attributes:
        name: name of the score, one of ``SCORES``; all but accuracy are macro means.
        low: lower end of the 95 % percentile interval of ``before - after``.
        p: two-sided p of a permutation test that exchanges before and after for whole clusters.
    """

    name: str
    before: float
    after: float
    low: float
    high: float
    p: float

    @property
    def drop(self) -> float:
        """The loss, ``before - after``."""
        return self.before - self.after


def score_drops(
    truth_N: np.ndarray,
    before_N: np.ndarray,
    after_N: np.ndarray,
    clusters: Sequence[Any] | np.ndarray,
    rng: np.random.Generator,
    *,
    classes: int,
    resamples: int = RESAMPLES,
) -> list[ScoreDrop]:
    """Return accuracy and macro precision, recall and F1 before and after, each tested.

    Intervals come from a bootstrap over whole clusters and are too narrow with few of them. p
    counts the observed data as one more permutation, so that it is never below 1 / (resamples + 1).
    Classes count as in :func:`cfaug.stats.classification.macro_scores`.

    Args:
        truth_N: index of each item's true class, integers (items,).
        before_N: index of the class predicted before the change, (items,).
        after_N: index of the class predicted after the change, (items,).
        clusters: the cluster each item was sampled in, any comparable values, (items,).

    Returns:
        The drop of each score, in the order of ``SCORES``; intervals and p are ``nan`` with a
        single cluster.

    Raises:
        ValueError: if there is no item, lengths differ or an index is not that of a class.

    >>> drops = score_drops(np.array([0, 1]), np.array([0, 1]), np.array([0, 0]), ["a", "b"],
    ...                     np.random.default_rng(0), classes=2)
    >>> [(drop.name, round(drop.drop, 3)) for drop in drops]
    [('accuracy', 0.5), ('precision', 0.75), ('recall', 0.5), ('f1', 0.667)]
    """
    sides = [np.asarray(side).astype(np.int64) for side in (truth_N, before_N, after_N)]
    if not len(sides[0]) or len({len(side) for side in (*sides, np.asarray(clusters))}) > 1:
        raise ValueError("truth, answers and clusters need one value per item, not 0 items")
    for side in sides:
        if not 0 <= side.min() <= side.max() < classes:
            raise ValueError(f"a class is outside 0 to {classes - 1}")
    names, inverse = np.unique(np.asarray(clusters), return_inverse=True)
    many, cells = len(names), classes * classes
    counts = np.empty((2, many, cells))  # the confusion matrices of every cluster
    for number, answered in enumerate(sides[1:]):
        codes = inverse.reshape(-1) * cells + sides[0] * classes + answered
        counts[number] = np.bincount(codes, minlength=many * cells).reshape(-1, cells)
    total = counts.sum(axis=1)
    before, after = _scores(total)
    low = high = p = np.full(len(SCORES), math.nan)
    if many > 1:
        size = max(1, DRAWN_AT_ONCE // many)
        chunks = [min(size, resamples - start) for start in range(0, resamples, size)]
        drops, turned = [], []
        for some in chunks:
            drawn = rng.multinomial(many, np.full(many, 1 / many), size=some)
            drops.append(_scores(drawn @ counts[0]) - _scores(drawn @ counts[1]))
        low, high = np.quantile(np.concatenate(drops), [0.025, 0.975], axis=0)
        for some in chunks:  # before and after exchanged in random clusters
            kept = total[0] + rng.integers(2, size=(some, many)) @ (counts[1] - counts[0])
            turned.append(_scores(kept) - _scores(total.sum(axis=0) - kept))
        extreme = np.abs(np.concatenate(turned)) >= np.abs(before - after) - ROUNDING
        p = (1 + extreme.sum(axis=0)) / (resamples + 1)
    numbers = zip(SCORES, before, after, low, high, p, strict=True)
    return [ScoreDrop(name, *map(float, values)) for name, *values in numbers]


def _scores(matrices: np.ndarray) -> np.ndarray:
    """Return the scores of confusion matrices (n, cells): float64 (n, 4)."""
    classes = math.isqrt(matrices.shape[1])
    square = matrices.reshape(-1, classes, classes)
    hits = np.diagonal(square, axis1=1, axis2=2)
    support, predicted = square.sum(axis=2), square.sum(axis=1)
    counted = (support + predicted > 0).sum(axis=1)

    def mean(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
        shares = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
        return np.asarray(shares.sum(axis=1) / counted)

    accuracy = hits.sum(axis=1) / support.sum(axis=1)
    return np.stack(
        [accuracy, mean(hits, predicted), mean(hits, support), mean(2 * hits, support + predicted)],
        axis=1,
    )
