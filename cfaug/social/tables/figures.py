"""The paper's Figures 2, 3 and 5, and models side by side on every labelling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import ClassVar

from cfaug.core.binding import GIVEN, ReadWith
from cfaug.core.errors import UserError
from cfaug.report.arm_results import Runs
from cfaug.report.document import (
    BarPlot,
    BoxPlot,
    Column,
    Curve,
    Document,
    Entry,
    Part,
    make_part,
    rules_of,
)
from cfaug.report.page import DASH, percent
from cfaug.report.plots import Band
from cfaug.social.skew_items import RankingTask, Retrieved, SkewItems, chance_band, chance_of_mean
from cfaug.social.tables.comparison import (
    GAP_NOTE,
    NOTES,
    RANK_GAP,
    Compared,
    ModelAnswers,
    SkewTable,
    compare_models,
    explain_comparison,
    gap_columns,
    mean_over_subjects,
    signed,
    skew_columns,
)

# Figures 2 and 5 of the paper: the distribution of MaxSkew over subjects, model by model.

BAND = "Grey: the middle 90 % of random rankings of the same images; dashed: their mean."


@dataclass(frozen=True, kw_only=True)
class DistributionFigure(SkewTable):
    """Box plots over subjects, and the bars by a second attribute of Figure 2 (right).

    Args:
        grid: the grid of the images; ``None`` for every grid with answers, a panel each.
        subject_type: the type of the subjects; ``None`` for every type, a panel each.
        k: number of retrieved images; the number of labels if ``None`` or without answers.
        conditional: two attributes such as ``gender|race``, for the mean skew of the first by
            values of the second; ``None`` for no bars.
        conditional_k: number of retrieved images for the bars; see ``k``.
    """

    grid: str | None = None
    subject_type: str | None = None
    k: int | None = None
    conditional: str | None = None
    conditional_k: int | None = None

    read_with: ClassVar[ReadWith] = {"conditional_k": {"conditional": GIVEN}}

    def build(self, runs: Runs) -> Document:
        """Return a table and box plots for each panel, then the bars.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
        """
        models = self.read(runs)
        panels = self._panels(models)
        what = "models" if self.grid is None else f"models about the grid {self.grid}"
        self.require(panels, f"answers of {what} to benchmark=skew")
        if not panels:
            return self.document()
        found = compare_models(models, panels)
        parts, boxes = [], []
        for panel in panels:
            own = [one for one in found if (one.question, one.subject_type) == panel]
            parts.append(self._part(own, paired=len(models) > 1))
            boxes.append(self._boxes(own))
        bars = self._conditional(models)
        if bars is not None:
            parts.append(bars[0])
        notes = (*NOTES, *explain_comparison(models))
        return self.document(
            *parts, boxes=boxes, bars=[] if bars is None else [bars[1]], notes=notes
        )

    def _panels(self, models: Sequence[ModelAnswers]) -> list[tuple[RankingTask, str | None]]:
        """Return each intersectional question and type of subjects with answers of any model."""
        found: dict[tuple[RankingTask, str | None], None] = {}
        for model in models:
            first = model.checkpoints[0]
            for grid in dict.fromkeys(one.grid for one in first.questions):
                question = first.choose(grid, first.intersectional(grid), self.k)
                if question is None or self.grid not in (None, grid):
                    continue
                types = first.texts("subject_type")
                there = dict.fromkeys(types[row] for row in first.rows(question))
                for one in there:
                    if self.subject_type in (None, one):
                        found[question, one] = None
        return list(found)

    def _part(self, own: Sequence[Compared], paired: bool) -> Part:
        return make_part(
            f"Ours: {_title(own[0])}",
            ("Model",),
            skew_columns(paired),
            [((comparison.model.name,), comparison) for comparison in own],
            [comparison.says() for comparison in own],
        )

    def _boxes(self, own: Sequence[Compared]) -> BoxPlot:
        rows, chance = {}, {}
        for comparison in own:
            name = comparison.model.name
            rows[name] = comparison.model.values(
                comparison.question, "max_skew", comparison.subject_type
            )
            chance[name] = chance_band(
                comparison.model.chance(comparison.question, comparison.subject_type)
            )
        title = _title(own[0])
        axis = f"MaxSkew@{own[0].question.k}, nats"
        note = f"Box: quartiles over subjects; red: the largest; green: the smallest. {BAND}"
        return BoxPlot(title[:1].upper() + title[1:], axis, rows, note, "nats", chance)

    def _conditional(self, models: Sequence[ModelAnswers]) -> tuple[Part, BarPlot] | None:
        """Return the table and the bars by values of a second attribute, if there are answers."""
        if self.conditional is None:
            return None
        asked: dict[RankingTask, None] = {}
        for model in models:
            for question in model.checkpoints[0].questions:
                if self.grid in (None, question.grid) and question.labelling.startswith(
                    f"{self.conditional}="
                ):
                    chosen = model.choose(question.grid, question.labelling, self.conditional_k)
                    asked |= {} if chosen is None else {chosen: None}
        return _bars(models, list(asked), self.subject_type) if asked else None


def _title(comparison: Compared) -> str:
    subjects = len(
        comparison.model.values(comparison.question, "max_skew", comparison.subject_type)
    )
    kind = comparison.subject_type or "subject"
    task = comparison.question
    return f"MaxSkew@{task.k} over {subjects:,} {kind}s, {task.labelling}"


def _bars(
    models: Sequence[ModelAnswers], questions: Sequence[RankingTask], subject_type: str | None
) -> tuple[Part, BarPlot]:
    groups: dict[str, list[tuple[str, float | None, float | None, float | None]]] = {}
    chance = {}
    means: dict[str, list[float]] = {model.name: [] for model in models}
    measured: dict[tuple[str, RankingTask], tuple[Entry, Entry]] = {}
    for question in questions:
        assert question.condition is not None
        value = question.condition[1]
        groups[value] = []
        for model in models:
            own = model.values(question, "max_skew", subject_type)
            excess = model.values(question, "max_skew_excess", subject_type)
            if not own:
                measured[model.name, question] = Entry(DASH), Entry(DASH)
                groups[value].append((model.name, None, None, None))
                continue
            found = mean_over_subjects(own, model.name, question.labelling)
            means[model.name].append(found.mean)
            ends = (None, None) if found.clusters < 2 else (found.low, found.high)
            groups[value].append((model.name, found.mean, *ends))
            numbers = {"value": found.mean, "n": float(len(own))}
            beyond = signed(sum(excess.values()) / len(excess))
            measured[model.name, question] = (
                Entry(f"{found.mean:.2f}", numbers=numbers),
                Entry(beyond),
            )
            chance[value] = chance_of_mean(model.chance(question, subject_type))
    first = questions[0]
    attribute, (within, _) = first.attributes, first.condition or ("", "")
    title = f"Mean {attribute} MaxSkew@{first.k} by {within}"

    def cell(name: str, which: int, question: RankingTask) -> Entry:
        return measured[name, question][which]

    part = make_part(
        f"Ours: {title}",
        (within.capitalize(),),
        [
            Column(column, partial(cell, model.name, which), model.name)
            for model in models
            for which, column in enumerate(("mean", "beyond chance"))
        ],
        [((question.condition[1],), question) for question in questions if question.condition],
        (f"Among the images of one {within} at a time, the mean over subjects. " + _ranges(means),),
    )
    legend = tuple(model.name for model in models)
    note = f"Lines: 95 % intervals of a bootstrap over subjects. {BAND}"
    return part, BarPlot(title, "mean MaxSkew, nats", groups, legend, note, "nats", chance)


def _ranges(means: Mapping[str, Sequence[float]]) -> str:
    """Return a sentence on how much the largest mean exceeds the smallest, model by model."""
    told = [
        f"{name} {100 * (max(own) / min(own) - 1):.0f} %"
        for name, own in means.items()
        if len(own) > 1 and min(own) > 0
    ]
    return f"The largest exceeds the smallest by: {', '.join(told)}." if told else ""


# Models side by side on every labelling, and MaxSkew by K, which are not in the paper.

CHANCE = "by chance"


@dataclass(frozen=True, kw_only=True)
class SkewModelsTable(SkewTable):
    """A row per labelling and model, and a curve if there are several K.

    Args:
        grid: the grid of the images; ``None`` for every grid with answers.
        subject_type: the type of the subjects; ``None`` for all together.
        conditional: whether conditional labellings have rows as well.
    """

    grid: str | None = None
    subject_type: str | None = None
    conditional: bool = False

    def build(self, runs: Runs) -> Document:
        """Return a table for each grid, with the curves.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
        """
        models = self.read(runs)
        asked = self._asked(models)
        self.require(asked, "answers of models to benchmark=skew")
        found = compare_models(models, [(task, self.subject_type) for task in asked])
        grids = dict.fromkeys(one.question.grid for one in found)
        parts = [self._part(grid, found, paired=len(models) > 1) for grid in grids]
        parts += self._gap_parts(models, asked)
        curves = [curve for grid in grids for curve in self._curves(grid, models)]
        notes = (*NOTES, *explain_comparison(models), GAP_NOTE)
        return self.document(*parts, curves=curves, notes=notes if parts else ())

    def _asked(self, models: Sequence[ModelAnswers]) -> list[RankingTask]:
        found: dict[RankingTask, None] = {}
        for model in models:
            for question in model.checkpoints[0].questions:
                wanted = self.conditional or question.condition is None
                if wanted and self.grid in (None, question.grid):
                    found[question] = None
        return list(found)

    def _part(self, grid: str, comparisons: Sequence[Compared], paired: bool) -> Part:
        own = [comparison for comparison in comparisons if comparison.question.grid == grid]
        return make_part(
            f"Ours: {grid}",
            ("Labels", "K", "Model"),
            skew_columns(paired, extremes=False),
            [((one.question.labelling, f"{one.question.k:,}", one.model.name), one) for one in own],
            rules=rules_of([f"{one.question.labelling} {one.question.k:,}" for one in own]),
        )

    def _gap_parts(
        self, models: Sequence[ModelAnswers], asked: Sequence[RankingTask]
    ) -> list[Part]:
        """Return a table for each grid of ranks within sets, which do not depend on K."""
        once = {(task.grid, task.labelling): task for task in reversed(asked)}
        questions = [(one, self.subject_type) for one in reversed(once.values())]
        found = compare_models(models, questions, RANK_GAP)
        paired = len(models) > 1
        parts = []
        for grid in dict.fromkeys(one.question.grid for one in found):
            own = [one for one in found if one.question.grid == grid]
            parts.append(
                make_part(
                    f"Ours: {grid}, within matched sets",
                    ("Labels", "Model"),
                    gap_columns(paired),
                    [((one.question.labelling, one.model.name), one) for one in own],
                    rules=rules_of([one.question.labelling for one in own]),
                )
            )
        return parts

    def _curves(self, grid: str, models: Sequence[ModelAnswers]) -> list[Curve]:
        """Return MaxSkew by K, beside chance, for each labelling with several K."""
        asked: dict[str, dict[RankingTask, None]] = {}
        for task in self._asked(models):
            if task.grid == grid:
                asked.setdefault(task.labelling, {})[task] = None
        curves = []
        for labelling, questions in asked.items():
            if len(questions) < 2:
                continue
            series = {
                model.name: self._series(model, list(questions), "max_skew") for model in models
            }
            series[CHANCE] = self._series(models[0], list(questions), "max_skew_chance")
            curves.append(
                Curve(
                    title=f"MaxSkew@K by K: {grid}, {labelling}",
                    x_title="K",
                    y_title="mean MaxSkew@K, nats",
                    series={name: own for name, own in series.items() if own},
                    unit="nats",
                    note="Means over subjects; a dot is a checkpoint.",
                )
            )
        return curves

    def _series(
        self, model: ModelAnswers, questions: Sequence[RankingTask], metric: str
    ) -> dict[float, dict[int, float]]:
        found: dict[float, dict[int, float]] = {}
        for question in questions:
            for number, one in enumerate(model.checkpoints):
                values = one.values(question, metric, self.subject_type)
                if values:
                    mean = sum(values.values()) / len(values)
                    found.setdefault(float(question.k), {})[number] = mean
        return found


# Figure 3 of the paper: the labels of the images retrieved for one subject.

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
            question.labelling
            for model in models
            for question in model.checkpoints[0].questions
            if question.grid == self.grid and question.condition is None
        ]
        return list(dict.fromkeys(every))

    def _retrieved(
        self, models: Sequence[ModelAnswers], question: RankingTask
    ) -> dict[str, list[Retrieved]]:
        found = {}
        for model in models:
            own = [
                checkpoint.retrieved(row)
                for checkpoint in model.checkpoints
                for row in [self._row(checkpoint, question)]
                if row is not None
            ]
            if own:
                found[model.name] = own
        return found

    def _row(self, answers: SkewItems, question: RankingTask) -> int | None:
        """Return the row of the subject; ``None`` if the question has no answers."""
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
        def share(own: Sequence[Retrieved], label: str) -> Entry:
            return _mean_entry([retrieved.share(label) for retrieved in own])

        def by_chance(label: str) -> Entry:
            low, share, high = _band(found, label)
            return Entry(percent(share, 1), small=f"[{percent(low, 0)}, {percent(high, 0)}]")

        return make_part(
            f"Ours: {self.subject}, {question.labelling}: share of {question.k} retrieved, %",
            (question.labelling,),
            [
                *(Column(name, partial(share, own)) for name, own in found.items()),
                Column("by chance", by_chance),
            ],
            [((label,), label) for label in _labels(found)],
            (
                "By chance: the label's share of the images, and the middle 90 % of what a random "
                "ranking retrieves.",
            ),
        )

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
