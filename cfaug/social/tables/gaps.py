"""Which labels are ranked higher than the rest of their set? Comparisons within matched sets.

Images of a set share everything but the label, so a label's rank among them, set by set, is a
paired comparison, which counts of the first K images discard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cfaug.report.arm_results import Runs
from cfaug.report.document import BarPlot, Document, Entry, Part
from cfaug.report.numbers import DASH
from cfaug.social.skew_items import ALPHA, RankingTask
from cfaug.social.tables.answers import ModelAnswers, SkewTable, mean_over_subjects
from cfaug.stats.item_tests import MeanDifference
from cfaug.stats.significance import holm

NOTE = (
    "Place: a label's place among the images of its own set, from 1 (best) to 0 (last), minus 1/2. "
    "Values are means over sets, then over subjects, with the 95 % interval of a bootstrap over "
    "subjects. Above 0, the label is ranked higher than the same image with other labels. Bold: "
    "different from 0 (two-sided p, Holm over all labels and models of this document, p <= 0.05)."
)


@dataclass(frozen=True, kw_only=True)
class GapsFigure(SkewTable):
    """A row per label, a column per model, for each labelling of all images.

    Args:
        grid: the grid of the images; ``None`` for every grid with answers.
        subject_type: the type of the subjects; ``None`` for all together.
        labellings: the labellings to show; ``None`` for all without a condition.
    """

    grid: str | None = None
    subject_type: str | None = None
    labellings: Sequence[str] | None = None

    def build(self, runs: Runs) -> Document:
        """Return a table and bars for each labelling.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
            UserError: if items cannot be read.
        """
        models = self.read(runs)
        found = {
            question: {
                (model.name, label): mean_over_subjects(own, "gaps", model.name, label)
                for model in models
                for label, own in model.gaps(question, self.subject_type).items()
                if own
            }
            for question in self._asked(models)
        }
        found = {question: own for question, own in found.items() if own}
        self.require(found, "places of labels within sets")
        p = {(asked, *key): one.p for asked, own in found.items() for key, one in own.items()}
        corrected = dict(zip(p, holm(list(p.values())).tolist(), strict=True)) if p else {}
        names = [model.name for model in models]
        parts = [self._part(question, own, names, corrected) for question, own in found.items()]
        bars = [self._bars(question, own, names) for question, own in found.items()]
        return self.document(*parts, bars=bars, notes=[NOTE] if parts else [])

    def _asked(self, models: Sequence[ModelAnswers]) -> list[RankingTask]:
        """Return one question per labelling, as ranks within sets do not depend on K."""
        found: dict[tuple[str, str], RankingTask] = {}
        for model in models:
            for one in model.checkpoints[0].questions:
                wanted = (
                    one.condition is None
                    if self.labellings is None
                    else one.labelling in self.labellings
                )
                if wanted and self.grid in (None, one.grid):
                    found.setdefault((one.grid, one.labelling), one)
        return list(found.values())

    def _part(
        self,
        question: RankingTask,
        own: Mapping[tuple[str, str], MeanDifference],
        names: Sequence[str],
        corrected: Mapping[tuple[RankingTask, str, str], float],
    ) -> Part:
        rows = []
        for label in dict.fromkeys(label for _, label in own):
            cells = []
            for name in names:
                one = own.get((name, label))
                p = corrected.get((question, name, label), float("nan"))
                cells.append(Entry(DASH) if one is None else _cell(one, p))
            rows.append(((label,), tuple(cells)))
        title = f"Ours: {question.grid}, {question.labelling}: place within the set"
        return Part(title, (question.labelling,), (), tuple(names), tuple(rows))

    def _bars(
        self,
        question: RankingTask,
        own: Mapping[tuple[str, str], MeanDifference],
        names: Sequence[str],
    ) -> BarPlot:
        groups: dict[str, list[tuple[str, float | None, float | None, float | None]]] = {}
        for label in dict.fromkeys(label for _, label in own):
            groups[label] = []
            for name in names:
                one = own.get((name, label))
                ends = (None, None, None) if one is None else _ends(one)
                groups[label].append((name, *ends))
        title = f"{question.grid}, {question.labelling}"
        return BarPlot(title, "place within the set, above the middle", groups, tuple(names),
                       unit="places")  # fmt: skip


def _ends(one: MeanDifference) -> tuple[float, float | None, float | None]:
    return (one.mean, None, None) if np.isnan(one.low) else (one.mean, one.low, one.high)


def _cell(one: MeanDifference, p: float) -> Entry:
    between = "" if np.isnan(one.low) else f"[{_signed(one.low)}, {_signed(one.high)}]"
    return Entry(_signed(one.mean), bold=p <= ALPHA, small=between,
                 numbers={"value": one.mean, "n": float(one.clusters)})  # fmt: skip


def _signed(value: float) -> str:
    return f"{round(value, 3) + 0.0:+.3f}"
