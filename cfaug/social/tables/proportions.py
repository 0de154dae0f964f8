"""Figure 3 of the paper: the labels of the images retrieved for one subject."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from cfaug.core.errors import UserError
from cfaug.report.arm_results import Runs
from cfaug.report.document import BarPlot, Document, Entry, Part
from cfaug.report.numbers import DASH, percent
from cfaug.report.plots import Band
from cfaug.social.skew_items import RankingTask, Retrieved, SkewItems
from cfaug.social.tables.answers import ModelAnswers, SkewTable

PROPORTION_BAND = (
    "Grey: the middle 90 % of the label's shares in random rankings of the same images; dashed: "
    "its share of the images. With many labels, some lie outside by chance."
)
NAMED = 8


@dataclass(frozen=True, kw_only=True)
class ProportionsFigure(SkewTable):
    """Shares of labels among the K images retrieved for a subject, a panel per labelling.

    Args:
        subject: the subject, such as ``doctor``; case is ignored.
        grid: the grid of the images.
        k: number of retrieved images; the number of labels if ``None`` or without answers.
        labellings: the labellings to show; ``None`` for each attribute of the grid, then all
            together.
    """

    subject: str
    grid: str
    k: int | None = None
    labellings: Sequence[str] | None = None

    def build(self, runs: Runs) -> Document:
        """Return a table and bars for each labelling.

        Raises:
            MissingError: if no model has answers about the grid, unless ``partial``.
            UserError: if items cannot be read, or the grid has no such subject.
        """
        models = self.read(runs)
        asked = [
            question for labelling in self._labellings(models)
            for question in [_first(models, self.grid, labelling, self.k)] if question is not None
        ]  # fmt: skip
        self.require(asked, f"answers of models about the grid {self.grid} to benchmark=skew")
        found = [(question, self._retrieved(models, question)) for question in asked]
        parts = [self._part(*one) for one in found]
        return self.document(*parts, bars=[self._plot(*one) for one in found])

    def _labellings(self, models: Sequence[ModelAnswers]) -> list[str]:
        if self.labellings is not None:
            return list(self.labellings)
        every = [
            one.labelling
            for model in models
            for one in model.checkpoints[0].questions
            if one.grid == self.grid and one.condition is None
        ]
        return list(dict.fromkeys(every))

    def _retrieved(
        self, models: Sequence[ModelAnswers], question: RankingTask
    ) -> dict[str, list[Retrieved]]:
        found = {}
        for model in models:
            own = [
                one.retrieved(row)
                for one in model.checkpoints
                for row in [self._row(one, question)]
                if row is not None
            ]
            if own:
                found[model.name] = own
        return found

    def _row(self, answers: SkewItems, question: RankingTask) -> int | None:
        """Return the row of the subject; ``None`` if the question has no answers.

        Raises:
            UserError: if the question has answers only about other subjects.
        """
        rows = answers.rows(question)
        subjects = {answers.texts("subject")[row].lower(): row for row in rows}
        if not rows or self.subject.lower() in subjects:
            return subjects.get(self.subject.lower())
        near = get_close_matches(self.subject.lower(), subjects, NAMED) or list(subjects)[:NAMED]
        raise UserError(
            f"table.subject={self.subject} is not one of the {len(subjects):,} subjects of "
            f"{question.grid}: choose one such as {', '.join(near)}"
        )

    def _part(self, question: RankingTask, found: dict[str, list[Retrieved]]) -> Part:
        labels = _labels(found)
        rows = []
        for label in labels:
            cells = [_mean_entry([one.share(label) for one in own]) for own in found.values()]
            low, share, high = _band(found, label)
            small = f"[{percent(low, 0)}, {percent(high, 0)}]"
            rows.append(((label,), (*cells, Entry(percent(share, 1), small=small))))
        return Part(
            title=f"Ours: {self.subject}, {question.labelling}: share of {question.k} retrieved, %",
            labels=(question.labelling,),
            groups=(),
            columns=(*found, "by chance"),
            rows=tuple(rows),
            notes=("By chance: the label's share of the images, and the middle 90 % of what a "
                   "random ranking retrieves.",),
        )  # fmt: skip

    def _plot(self, question: RankingTask, found: dict[str, list[Retrieved]]) -> BarPlot:
        chance = {label: _band(found, label) for label in _labels(found)}
        groups: dict[str, list[tuple[str, float | None, float | None, float | None]]] = {
            label: [
                (name, None if math.isnan(mean) else mean, None, None)
                for name, own in found.items()
                for mean in [_mean([one.share(label) for one in own])]
            ]
            for label in _labels(found)
        }
        title = f"{self.subject}, {question.labelling}"
        axis = f"share of the {question.k} images retrieved, %"
        return BarPlot(title, axis, groups, tuple(found), PROPORTION_BAND, chance=chance)


def _first(
    models: Sequence[ModelAnswers], grid: str, labelling: str, k: int | None
) -> RankingTask | None:
    chosen = (model.choose(grid, labelling, k) for model in models)
    return next((one for one in chosen if one is not None), None)


def _labels(found: dict[str, list[Retrieved]]) -> list[str]:
    """Return the labels of all models, which may differ if their sets do."""
    every = (label for own in found.values() for one in own for label in one.labels)
    return list(dict.fromkeys(every))


def _band(found: dict[str, list[Retrieved]], label: str) -> Band:
    """Return a label's share by chance among the images of the first model that has it."""
    return next(one for own in found.values() for one in own if label in one.labels).band(label)


def _mean(shares: Sequence[float]) -> float:
    return sum(shares) / len(shares)


def _mean_entry(shares: Sequence[float]) -> Entry:
    mean = _mean(shares)
    if math.isnan(mean):
        return Entry(DASH)
    return Entry(percent(mean, 1), numbers={"value": mean, "n": float(len(shares))})
