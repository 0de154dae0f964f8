"""Table 4: how well prompts distinguish the labels of images, from items and from the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Entry, Part
from cfaug.report.items import Items
from cfaug.report.numbers import DASH
from cfaug.report.paper_tables import ModelsTable
from cfaug.stats.confusion import ClassScores, class_scores, confusion_matrix
from cfaug.stats.significance import summarise

SCORES = ("precision", "recall", "f1")


@dataclass(frozen=True, kw_only=True)
class DetectorTable(ModelsTable):
    """A row per value of the attribute: precision, recall, F1 and support, and the confusions.

    Args:
        attribute: the attribute, which is the header of its values.
    """

    attribute: str = "gender"
    benchmark: str = "attribute_detector"

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours in the paper's layout.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
            UserError: if items cannot be read.
        """
        found = self.answers(runs, lambda _, items: items)
        self.require(found, "answers of a model to prompts")
        ours = [
            part
            for model, own in found.items()
            for part in self._parts(model, [items for _, items in own])
        ]
        return self.document(self.printed("gender", "gender", _printed), *ours)

    def _parts(self, model: str, answers: Sequence[Items]) -> tuple[Part, Part]:
        """Return a model's scores, averaged over its checkpoints, and its confusion matrix."""
        matrices = [_confusion(one) for one in answers]
        values = list(dict.fromkeys(value for names, _ in matrices for value in names))
        scores = [dict(zip(names, class_scores(m), strict=True)) for names, m in matrices]
        rows = tuple(
            ((value,), _entries([one[value] for one in scores if value in one])) for value in values
        )
        left_out = sum(one is not None for one in np.asarray(answers[0].columns["left_out"]))
        total = len(answers[0])
        note = (
            f"{total - left_out:,} images"
            + (f"; {left_out:,} more are left out" if left_out else "")
            + (f"; ± over {len(answers)} checkpoints." if len(answers) > 1 else ".")
        )
        names, matrix = matrices[0]
        taken = Part(
            title=f"{model}: predicted labels of the images",
            labels=(f"{self.attribute}, the truth",),
            groups=(),
            columns=tuple(names),
            rows=tuple(
                ((name,), tuple(Entry(f"{n:,}", numbers={"value": n}) for n in row.tolist()))
                for name, row in zip(names, matrix, strict=True)
            ),
        )
        columns = ("precision", "recall", "f1-score", "support")
        return Part(model, (self.attribute,), (), columns, rows, notes=(note,)), taken


def _printed(row: Mapping[str, Any], value: float) -> Entry:
    count = isinstance(value, int)
    return Entry(f"{value:,}" if count else f"{value:.2f}", numbers={"value": value})


def _confusion(items: Items) -> tuple[list[str], np.ndarray]:
    """Return the values in order, and their confusion matrix."""
    truth, predicted = (np.asarray(items.columns[name]) for name in ("truth", "predicted"))
    kept = np.array([reason is None for reason in items.columns["left_out"]])
    values = list(dict.fromkeys([*items.columns["asked"], *truth[kept], *predicted[kept]]))
    number = {value: at for at, value in enumerate(values)}
    codes = [np.array([number[v] for v in own[kept]], np.int64) for own in (truth, predicted)]
    return values, confusion_matrix(codes[0], codes[1], len(values))


def _entries(scores: Sequence[ClassScores]) -> tuple[Entry, ...]:
    entries = [_score([getattr(one, name) for one in scores]) for name in SCORES]
    support = scores[0].support
    return (*entries, Entry(f"{support:,}", numbers={"value": support}))


def _score(values: Sequence[float]) -> Entry:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Entry(DASH)
    found = summarise(known)
    numbers: Mapping[str, float] = {"value": found.mean}
    if math.isnan(found.sd):
        return Entry(f"{found.mean:.2f}", numbers=numbers)
    return Entry(f"{found.mean:.2f}", f"{found.sd:.2f}", numbers={**numbers, "sd": found.sd})
