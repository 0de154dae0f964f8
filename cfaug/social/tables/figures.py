"""Figures 2 and 5 of the paper: the distribution of MaxSkew over subjects, model by model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from cfaug.core.read_with import GIVEN, ReadWith
from cfaug.report.arm_results import Runs
from cfaug.report.document import BarPlot, BoxPlot, Document, Entry, Part
from cfaug.report.numbers import DASH
from cfaug.social.skew_items import RankingTask, chance_band, chance_of_mean
from cfaug.social.tables.answers import ModelAnswers, SkewTable, mean_over_subjects
from cfaug.social.tables.comparison import (
    COLUMNS,
    GROUPS,
    NOTES,
    PAIRED_COLUMNS,
    PAIRED_GROUPS,
    Compared,
    compare_models,
    explain_comparison,
    signed,
)

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
            UserError: if items cannot be read.
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
        first = own[0]
        return Part(
            title=f"Ours: {_title(first)}",
            labels=("Model",),
            groups=(*GROUPS, *(PAIRED_GROUPS if paired else ())),
            columns=(*COLUMNS, *(PAIRED_COLUMNS if paired else ())),
            rows=tuple(((one.model.name,), one.cells(paired)) for one in own),
            notes=tuple(one.says() for one in own),
        )

    def _boxes(self, own: Sequence[Compared]) -> BoxPlot:
        rows, chance = {}, {}
        for one in own:
            name = one.model.name
            rows[name] = one.model.values(one.question, "max_skew", one.subject_type)
            chance[name] = chance_band(one.model.chance(one.question, one.subject_type))
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
            for one in model.checkpoints[0].questions:
                if self.grid in (None, one.grid) and one.labelling.startswith(
                    f"{self.conditional}="
                ):
                    chosen = model.choose(one.grid, one.labelling, self.conditional_k)
                    asked |= {} if chosen is None else {chosen: None}
        return _bars(models, list(asked), self.subject_type) if asked else None


def _title(one: Compared) -> str:
    subjects = len(one.model.values(one.question, "max_skew", one.subject_type))
    kind = one.subject_type or "subject"
    return f"MaxSkew@{one.question.k} over {subjects:,} {kind}s, {one.question.labelling}"


def _bars(
    models: Sequence[ModelAnswers], questions: Sequence[RankingTask], subject_type: str | None
) -> tuple[Part, BarPlot]:
    rows: list[tuple[tuple[str, ...], tuple[Entry, ...]]] = []
    groups: dict[str, list[tuple[str, float | None, float | None, float | None]]] = {}
    chance = {}
    means: dict[str, list[float]] = {model.name: [] for model in models}
    for question in questions:
        assert question.condition is not None
        value = question.condition[1]
        groups[value] = []
        cells = []
        for model in models:
            own = model.values(question, "max_skew", subject_type)
            excess = model.values(question, "max_skew_excess", subject_type)
            if not own:
                cells += [Entry(DASH), Entry(DASH)]
                groups[value].append((model.name, None, None, None))
                continue
            found = mean_over_subjects(own, model.name, question.labelling)
            means[model.name].append(found.mean)
            ends = (None, None) if found.clusters < 2 else (found.low, found.high)
            groups[value].append((model.name, found.mean, *ends))
            numbers = {"value": found.mean, "n": float(len(own))}
            beyond = signed(sum(excess.values()) / len(excess))
            cells += [Entry(f"{found.mean:.2f}", numbers=numbers), Entry(beyond)]
            chance[value] = chance_of_mean(model.chance(question, subject_type))
        rows.append(((value,), tuple(cells)))
    first = questions[0]
    attribute, (within, _) = first.attributes, first.condition or ("", "")
    title = f"Mean {attribute} MaxSkew@{first.k} by {within}"
    part = Part(
        title=f"Ours: {title}",
        labels=(within.capitalize(),),
        groups=tuple((model.name, 2) for model in models),
        columns=("mean", "beyond chance") * len(models),
        rows=tuple(rows),
        notes=(
            f"Among the images of one {within} at a time, the mean over subjects. "
            + _ranges(means),
        ),
    )  # fmt: skip
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
