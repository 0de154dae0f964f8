"""The paper's Figures 2, 3 and 5, and models side by side on every labelling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import chain, islice
from typing import Annotated

from cfaug.core.errors import UserError
from cfaug.papers.social.comparison_tables import (
    GAP_NOTE,
    NOTES,
    RANK_GAP,
    ModelAnswers,
    SkewTable,
    compare_models,
    explain_comparison,
    gap_columns,
    mean_over_subjects,
    signed,
    skew_columns,
)
from cfaug.papers.social.skew_items import (
    RankingTask,
    Retrieved,
    SkewItems,
    chance_band,
    chance_of_mean,
)
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
from cfaug.settings.read_if import GIVEN, ReadIf

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
    conditional_k: Annotated[int | None, ReadIf({"conditional": GIVEN})] = None

    def build(self, runs: Runs) -> Document:
        """Return a table and box plots for each panel, then the bars."""
        models = self.read(runs)
        # Each intersectional question and type of subjects with answers of any model.
        panels: dict[tuple[RankingTask, str | None], None] = {}
        for model in models:
            first = model.checkpoints[0]
            for grid in dict.fromkeys(question.grid for question in first.questions):
                question = first.choose(grid, first.intersectional(grid), self.k)
                if question is not None and self.grid in (None, grid):
                    for row in first.rows(question):
                        kind = first.texts("subject_type")[row]
                        if self.subject_type in (None, kind):
                            panels[question, kind] = None
        scope = "models" if self.grid is None else f"models about the grid {self.grid}"
        self.require(panels, f"answers of {scope} to benchmark=skew")
        if not panels:
            return self.document()
        compared = compare_models(models, list(panels))
        parts, boxes, bars = [], [], []
        for panel in panels:
            rows = [row for row in compared if (row.question, row.subject_type) == panel]
            subjects, kind = len(rows[0].values("max_skew")), rows[0].subject_type or "subject"
            title = f"MaxSkew@{panel[0].k} over {subjects:,} {kind}s, {panel[0].labelling}"
            parts.append(
                make_part(
                    f"Ours: {title}",
                    ("Model",),
                    skew_columns(paired=len(models) > 1),
                    [((row.model.name,), row) for row in rows],
                    [row.describe() for row in rows],
                )
            )
            boxes.append(
                BoxPlot(
                    title,
                    f"MaxSkew@{panel[0].k}, nats",
                    {row.model.name: row.values("max_skew") for row in rows},
                    f"Box: quartiles over subjects; red: the largest; green: the smallest. {BAND}",
                    "nats",
                    {row.model.name: chance_band(row.model.chance(*panel)) for row in rows},
                )
            )
        # The questions about the values of a second attribute that have answers.
        chosen: dict[RankingTask | None, None] = {}
        for model in models if self.conditional is not None else ():
            for question in model.checkpoints[0].questions:
                if self.grid in (None, question.grid) and question.labelling.startswith(
                    f"{self.conditional}="
                ):
                    task = model.choose(question.grid, question.labelling, self.conditional_k)
                    chosen[task] = None
        conditional = [task for task in chosen if task is not None]
        if conditional:
            part, plot = _lay_out_conditions(models, conditional, self.subject_type)
            parts.append(part)
            bars.append(plot)
        notes = (*NOTES, *explain_comparison(models))
        return self.document(*parts, boxes=boxes, bars=bars, notes=notes)


def _lay_out_conditions(
    models: Sequence[ModelAnswers], questions: Sequence[RankingTask], subject_type: str | None
) -> tuple[Part, BarPlot]:
    """Return the table and the bars by values of a second attribute."""
    groups: dict[str, list[tuple[str, float | None, float | None, float | None]]] = {}
    chance: dict[str, Band] = {}
    means: dict[str, list[float]] = {model.name: [] for model in models}
    cells: dict[tuple[str, str, str], Entry] = {}
    attribute = questions[0].attributes
    within, _ = questions[0].condition or ("", "")
    for question in questions:
        _, value = question.condition or ("", "")
        groups[value] = []
        for model in models:
            skews = model.values(question, "max_skew", subject_type)
            if not skews:
                groups[value].append((model.name, None, None, None))
                continue
            excess = model.values(question, "max_skew_excess", subject_type)
            average = mean_over_subjects(skews)
            means[model.name].append(average.mean)
            ends = (None, None) if average.clusters < 2 else (average.low, average.high)
            groups[value].append((model.name, average.mean, *ends))
            numbers = {"value": average.mean, "n": float(len(skews))}
            cells[model.name, "mean", value] = Entry(f"{average.mean:.2f}", numbers=numbers)
            beyond = Entry(signed(sum(excess.values()) / len(excess)))
            cells[model.name, "beyond chance", value] = beyond
            chance[value] = chance_of_mean(model.chance(question, subject_type))

    def cell(name: str, column: str, value: str) -> Entry:
        return cells.get((name, column, value), Entry(DASH))

    note = f"Among the images of one {within} at a time, the mean over subjects. "
    ranges = [
        f"{name} {100 * (max(values) / min(values) - 1):.0f} %"
        for name, values in means.items()
        if len(values) > 1 and min(values) > 0
    ]
    if ranges:
        note += f"The largest exceeds the smallest by: {', '.join(ranges)}."
    title = f"Mean {attribute} MaxSkew@{questions[0].k} by {within}"
    part = make_part(
        f"Ours: {title}",
        (within.capitalize(),),
        [
            Column(column, partial(cell, model.name, column), model.name)
            for model in models
            for column in ("mean", "beyond chance")
        ],
        [((value,), value) for value in groups],
        (note,),
    )
    legend = tuple(model.name for model in models)
    lines = f"Lines: 95 % intervals over subjects. {BAND}"
    return part, BarPlot(title, "mean MaxSkew, nats", groups, legend, lines, "nats", chance)


# Models side by side on every labelling, and MaxSkew by K, which are not in the paper.


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
        """Return a table for each grid, with the curves."""
        models = self.read(runs)
        tasks = list(
            dict.fromkeys(
                question
                for model in models
                for question in model.checkpoints[0].questions
                if (self.conditional or question.condition is None)
                and self.grid in (None, question.grid)
            )
        )
        self.require(tasks, "answers of models to benchmark=skew")
        paired = len(models) > 1
        skews = compare_models(models, [(task, self.subject_type) for task in tasks])
        grids = dict.fromkeys(row.question.grid for row in skews)
        parts = []
        for grid in grids:
            rows = [row for row in skews if row.question.grid == grid]
            labels = [(row.question.labelling, f"{row.question.k:,}", row.model.name)
                      for row in rows]  # fmt: skip
            parts.append(
                make_part(
                    f"Ours: {grid}",
                    ("Labels", "K", "Model"),
                    skew_columns(paired, extremes=False),
                    zip(labels, rows, strict=True),
                    rules=rules_of([f"{labelling} {k}" for labelling, k, _ in labels]),
                )
            )
        # Ranks within sets do not depend on K: the first question of each labelling will do.
        once = {(task.grid, task.labelling): task for task in reversed(tasks)}
        questions = [(task, self.subject_type) for task in reversed(once.values())]
        gaps = compare_models(models, questions, RANK_GAP)
        for grid in dict.fromkeys(row.question.grid for row in gaps):
            rows = [row for row in gaps if row.question.grid == grid]
            parts.append(
                make_part(
                    f"Ours: {grid}, within matched sets",
                    ("Labels", "Model"),
                    gap_columns(paired),
                    [((row.question.labelling, row.model.name), row) for row in rows],
                    rules=rules_of([row.question.labelling for row in rows]),
                )
            )
        curves = [curve for grid in grids for curve in self._curves(grid, tasks, models)]
        notes = (*NOTES, *explain_comparison(models), GAP_NOTE)
        return self.document(*parts, curves=curves, notes=notes if parts else ())

    def _curves(
        self, grid: str, tasks: Sequence[RankingTask], models: Sequence[ModelAnswers]
    ) -> list[Curve]:
        """Return MaxSkew by K, beside chance, for each labelling with several K."""
        by_labelling: dict[str, list[RankingTask]] = {}
        for task in tasks:
            if task.grid == grid:
                by_labelling.setdefault(task.labelling, []).append(task)
        curves = []
        for labelling, questions in by_labelling.items():
            if len(questions) < 2:
                continue
            lines = [(model.name, model, "max_skew") for model in models]
            lines.append(("by chance", models[0], "max_skew_chance"))
            series: dict[str, dict[float, dict[int, float]]] = {}
            for name, model, metric in lines:
                for question in questions:
                    for number, checkpoint in enumerate(model.checkpoints):
                        values = checkpoint.values(question, metric, self.subject_type)
                        if values:
                            line = series.setdefault(name, {}).setdefault(float(question.k), {})
                            line[number] = sum(values.values()) / len(values)
            curves.append(
                Curve(
                    title=f"MaxSkew@K by K: {grid}, {labelling}",
                    x_title="K",
                    y_title="mean MaxSkew@K, nats",
                    series=series,
                    unit="nats",
                    note="Means over subjects; a dot is a checkpoint.",
                )
            )
        return curves


# Figure 3 of the paper: the labels of the images retrieved for one subject.

PROPORTION_BAND = (
    "Grey: the middle 90 % of the label's shares in random rankings of the same images; dashed: "
    "its share of the images. With many labels, some lie outside by chance."
)


@dataclass(frozen=True, kw_only=True)
class ProportionsFigure(SkewTable):
    """Shares of labels among the K images retrieved for a subject, a panel per labelling.

    Args:
        subject: the subject, such as ``doctor``; case is ignored.
        k: number of retrieved images; the number of labels if ``None`` or without answers.
        labellings: the labellings to show; ``None`` for each attribute of the grid, then all
            together.
    """

    subject: str
    grid: str
    """the grid of attributes"""
    k: int | None = None
    labellings: Sequence[str] | None = None

    def build(self, runs: Runs) -> Document:
        """Return a table and bars for each labelling."""
        models = self.read(runs)
        every = (
            question.labelling
            for model in models
            for question in model.checkpoints[0].questions
            if question.grid == self.grid and question.condition is None
        )
        questions: list[RankingTask] = []
        for labelling in dict.fromkeys(every) if self.labellings is None else self.labellings:
            chosen = (model.choose(self.grid, labelling, self.k) for model in models)
            questions += islice(filter(None, chosen), 1)
        self.require(questions, f"answers of models about the grid {self.grid} to benchmark=skew")
        parts, bars = [], []
        for question in questions:
            part, plot = self._lay_out(question, models)
            parts.append(part)
            bars.append(plot)
        return self.document(*parts, bars=bars)

    def _row(self, answers: SkewItems, question: RankingTask) -> int | None:
        """Return the row of the subject; ``None`` if the question has no answers."""
        rows = answers.rows(question)
        subjects = {answers.texts("subject")[row].lower(): row for row in rows}
        if not rows or self.subject.lower() in subjects:
            return subjects.get(self.subject.lower())
        near = get_close_matches(self.subject.lower(), subjects, 8) or list(subjects)[:8]
        raise UserError(
            f"table.subject={self.subject} is not one of the {len(subjects):,} subjects of "
            f"{question.grid}: choose one such as {', '.join(near)}"
        )

    def _lay_out(
        self, question: RankingTask, models: Sequence[ModelAnswers]
    ) -> tuple[Part, BarPlot]:
        retrieved: dict[str, list[Retrieved]] = {}
        for model in models:
            for checkpoint in model.checkpoints:
                row = self._row(checkpoint, question)
                if row is not None:
                    retrieved.setdefault(model.name, []).append(checkpoint.retrieved(row))
        # Labels of models may differ if their sets do; chance is that of the first with the label.
        chance: dict[str, Band] = {}
        for shown in chain(*retrieved.values()):
            chance |= {label: shown.band(label) for label in shown.labels if label not in chance}

        def mean(name: str, label: str) -> float:
            return sum(retrieval.share(label) for retrieval in retrieved[name]) / len(
                retrieved[name]
            )

        def share(name: str, label: str) -> Entry:
            value, n = mean(name, label), float(len(retrieved[name]))
            if math.isnan(value):
                return Entry(DASH)
            return Entry(percent(value, 1), numbers={"value": value, "n": n})

        def by_chance(label: str) -> Entry:
            low, expected, high = chance[label]
            return Entry(percent(expected, 1), small=f"[{percent(low, 0)}, {percent(high, 0)}]")

        part = make_part(
            f"Ours: {self.subject}, {question.labelling}: share of {question.k} retrieved, %",
            (question.labelling,),
            [
                *(Column(name, partial(share, name)) for name in retrieved),
                Column("by chance", by_chance),
            ],
            [((label,), label) for label in chance],
            (
                "By chance: the label's share of the images, and the middle 90 % of what a random "
                "ranking retrieves.",
            ),
        )
        groups: dict[str, list[tuple[str, float | None, float | None, float | None]]] = {}
        for label in chance:
            means = {name: mean(name, label) for name in retrieved}
            groups[label] = [
                (name, None if math.isnan(value) else value, None, None)
                for name, value in means.items()
            ]
        title = f"{self.subject}, {question.labelling}"
        axis = f"share of the {question.k} images retrieved, %"
        return part, BarPlot(title, axis, groups, tuple(retrieved), PROPORTION_BAND, chance=chance)
