"""Models side by side on every labelling, and MaxSkew by K, which are not in the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cfaug.report.arm_results import Runs
from cfaug.report.document import Curve, Document, Part, rules_of
from cfaug.social.skew_items import RankingTask
from cfaug.social.tables.answers import ModelAnswers, SkewTable
from cfaug.social.tables.comparison import (
    COLUMNS,
    EXTREMES,
    GAP_COLUMNS,
    GAP_GROUPS,
    GAP_NOTE,
    GROUPS,
    NOTES,
    PAIRED_COLUMNS,
    PAIRED_GROUPS,
    RANK_GAP,
    Compared,
    compare_models,
    explain_comparison,
)

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
            UserError: if items cannot be read.
        """
        models = self.read(runs)
        asked = self._asked(models)
        self.require(asked, "answers of models to benchmark=skew")
        found = compare_models(models, [(one, self.subject_type) for one in asked])
        grids = dict.fromkeys(one.question.grid for one in found)
        parts = [self._part(grid, found, paired=len(models) > 1) for grid in grids]
        parts += self._gap_parts(models, asked)
        curves = [curve for grid in grids for curve in self._curves(grid, models)]
        notes = (*NOTES, *explain_comparison(models), GAP_NOTE)
        return self.document(*parts, curves=curves, notes=notes if parts else ())

    def _asked(self, models: Sequence[ModelAnswers]) -> list[RankingTask]:
        found: dict[RankingTask, None] = {}
        for model in models:
            for one in model.checkpoints[0].questions:
                wanted = self.conditional or one.condition is None
                if wanted and self.grid in (None, one.grid):
                    found[one] = None
        return list(found)

    def _part(self, grid: str, found: Sequence[Compared], paired: bool) -> Part:
        own = [one for one in found if one.question.grid == grid]
        labels = [(one.question.labelling, f"{one.question.k:,}", one.model.name) for one in own]
        rows = tuple(
            (label, one.cells(paired, extremes=False))
            for label, one in zip(labels, own, strict=True)
        )
        mean = (GROUPS[0], (GROUPS[1][0], 1), *GROUPS[2:])
        return Part(
            title=f"Ours: {grid}",
            labels=("Labels", "K", "Model"),
            groups=(*mean, *(PAIRED_GROUPS if paired else ())),
            columns=(
                *(name for name in COLUMNS if name not in EXTREMES),
                *(PAIRED_COLUMNS if paired else ()),
            ),
            rows=rows,
            rules=rules_of([f"{labelling} {k}" for labelling, k, _ in labels]),
        )

    def _gap_parts(
        self, models: Sequence[ModelAnswers], asked: Sequence[RankingTask]
    ) -> list[Part]:
        """Return a table for each grid of ranks within sets, which do not depend on K."""
        once = {(one.grid, one.labelling): one for one in reversed(asked)}
        questions = [(one, self.subject_type) for one in reversed(once.values())]
        found = compare_models(models, questions, RANK_GAP)
        paired = len(models) > 1
        parts = []
        for grid in dict.fromkeys(one.question.grid for one in found):
            own = [one for one in found if one.question.grid == grid]
            labels = [(one.question.labelling, one.model.name) for one in own]
            cells = [one.gap_cells(paired) for one in own]
            parts.append(
                Part(
                    title=f"Ours: {grid}, within matched sets",
                    labels=("Labels", "Model"),
                    groups=(*GAP_GROUPS, *(PAIRED_GROUPS if paired else ())),
                    columns=(*GAP_COLUMNS, *(PAIRED_COLUMNS if paired else ())),
                    rows=tuple(zip(labels, cells, strict=True)),
                    rules=rules_of([labelling for labelling, _ in labels]),
                )
            )
        return parts

    def _curves(self, grid: str, models: Sequence[ModelAnswers]) -> list[Curve]:
        """Return MaxSkew by K, beside chance, for each labelling with several K."""
        asked: dict[str, dict[RankingTask, None]] = {}
        for one in self._asked(models):
            if one.grid == grid:
                asked.setdefault(one.labelling, {})[one] = None
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
