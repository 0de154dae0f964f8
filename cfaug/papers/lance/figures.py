"""Figures 3, 4 and 6 of LANCE: sensitivity to edits, realism of images, insights by class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cfaug.evaluation.stress.edit_clusters import ShownInsight, read_insights
from cfaug.evaluation.stress.stress_items import EDITED, EDITED_PHOTOS
from cfaug.papers.lance.tables import StressTable
from cfaug.report.arm_results import Runs
from cfaug.report.document import (
    BarPlot,
    Column,
    Document,
    DocumentImage,
    Entry,
    make_part,
    text_column,
)
from cfaug.report.page import DASH, p_text
from cfaug.report.paper_tables import EVERYTHING, PaperTable
from cfaug.report.results import RESULTS, Result, read_results
from cfaug.stats.edit_effects import GroupEffect
from cfaug.stats.significance import summarise

SENSITIVE = 0.05
"""Largest corrected p at which a kind moves a model more than a reconstruction does."""


@dataclass(frozen=True, kw_only=True)
class SensitivityFigure(StressTable):
    """The change of the true class's probability by kind of edit (Figure 3)."""

    part: str = EDITED
    """the part of the items"""

    def build(self, runs: Runs) -> Document:
        """Return a table and bars: a row per kind, a column per model."""
        by_model: dict[str, dict[str, list[GroupEffect]]] = {}
        means: dict[str, list[float]] = {}
        for name, checkpoints in self.read(runs).items():
            for _, answers in checkpoints:
                if self.part in answers.sets:
                    by_kind = by_model.setdefault(name, {})
                    for effect in answers.effects_by("kind", self.part):
                        by_kind.setdefault(str(effect.group), []).append(effect)
                        means.setdefault(str(effect.group), []).append(effect.mean)
        self.require(by_model, f"answers to the edits of {self.part}")
        if not by_model:
            return self.document()

        def cell(name: str, kind: str) -> Entry:
            effects = by_model[name].get(kind, ())
            if not effects:
                return Entry(DASH)
            summary = summarise([effect.mean for effect in effects])
            mean, (_, low, high) = summary.mean, _bar(effects)
            single = len(effects) == 1
            numbers = {"value": mean, "n": float(sum(map(len, effects)))}
            sensitive = sum(effect.p_holm <= SENSITIVE and effect.excess > 0 for effect in effects)
            return Entry(
                f"{mean:.3f}",
                sub="" if single else f"{summary.sd:.3f}",
                bold=2 * sensitive > len(effects),
                small=f"[{low:.3f}, {high:.3f}]" if single and low is not None else "",
                numbers=numbers if single else {**numbers, "sd": summary.sd},
            )

        # The kind that moves the models farthest comes first.
        kinds = sorted(means, key=lambda kind: -sum(means[kind]) / len(means[kind]))
        part = make_part(
            "Ours: mean Δp of the true class, by kind of edit",
            ("Kind",),
            [Column(name, partial(cell, name)) for name in by_model],
            [((kind,), kind) for kind in kinds],
            (
                "Absolute change, from the full softmax. Brackets: 95 % interval "
                "over photos; with several checkpoints, ± over them. Bold: more than the change "
                "of the same photos' reconstructions, in most checkpoints (sign-flip permutation "
                "over photos, Holm over kinds).",
            ),
        )
        bars = {
            kind: [(name, *_bar(effects.get(kind, ()))) for name, effects in by_model.items()]
            for kind in kinds
        }
        plot = BarPlot("", "mean Δp of the true class", bars, tuple(by_model), unit="probability")
        return self.document(part, bars=[plot])


def _bar(effects: Sequence[GroupEffect]) -> tuple[float | None, float | None, float | None]:
    """Return the mean and its interval, or for several checkpoints mean and spread."""
    if not effects:
        return None, None, None
    mean = sum(effect.mean for effect in effects) / len(effects)
    if len(effects) == 1:
        low, high = (None if math.isnan(end) else end for end in (effects[0].low, effects[0].high))
        return mean, low, high
    sd = summarise([effect.mean for effect in effects]).sd
    return mean, mean - sd, mean + sd


@dataclass(frozen=True, kw_only=True)
class QualityFigure(PaperTable):
    """The realism of the images and the likelihood of the captions (Figure 4).

    Args:
        sets: {printed name: set of the results}, in order.
        metrics: {printed name: metric of the results}.
        benchmarks: the benchmarks of the results, or the ends of their names.
    """

    sets: Mapping[str, str]
    metrics: Mapping[str, str]
    benchmarks: Sequence[str]

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours for every model that measured them."""
        results: dict[str, list[Result]] = {}
        for folder in sorted(runs.root.glob(EVERYTHING)):
            file = folder / RESULTS
            for row in read_results(file) if file.is_file() else []:
                if row.benchmark.endswith(tuple(self.benchmarks)):
                    results.setdefault(f"{folder.parent.name}, {row.benchmark}", []).append(row)
        self.require(results, *(f"results of {name}" for name in self.benchmarks))
        theirs = self.printed(
            "Method", "method", lambda _, v: Entry(f"{v:g}", numbers={"value": v}),
            column=lambda name: f"{name} (lower is better)",
        )  # fmt: skip

        def cell(known: Mapping[tuple[str, str], Result], metric: str, part: str) -> Entry:
            row = known.get((part, metric))
            if row is None:
                return Entry(DASH)
            return Entry(f"{row.value:.4g}", numbers={"value": row.value, "n": float(row.n)})

        ours = []
        for name, rows in results.items():
            known = {(row.by["set"], row.metric): row for row in rows if [*row.by] == ["set"]}
            # As for images, use only the captions of photos that have an edit.
            known |= {
                (row.by["set"], row.metric): row
                for row in rows
                if row.by.get("photos") == EDITED_PHOTOS
            }
            measured = {metric for _, metric in known}
            columns = [
                Column(printed, partial(cell, known, metric))
                for printed, metric in self.metrics.items()
                if metric in measured
            ]
            sets = [((printed,), part) for printed, part in self.sets.items()]
            ours.append(make_part(f"Ours: {name}", ("Method",), columns, sets))
        return self.document(theirs, *ours)


@dataclass(frozen=True, kw_only=True)
class InsightsFigure(StressTable):
    """The interventions on a class that move a model most (Figure 6)."""

    shown: int = 3
    """the number of clusters to show"""

    def build(self, runs: Runs) -> Document:
        """Return a table of the insights and their pictures."""
        rows = []
        for name, checkpoints in self.read(runs).items():
            for folder, answers in checkpoints:
                printed = name if len(checkpoints) == 1 else f"{name}, {folder.parent.name}"
                rows += [
                    ((printed, insight.label, insight.kind, insight.words), insight)
                    for insight in read_insights(folder, answers)[: self.shown]
                ]
        self.require(rows, "insights into classes")
        pictures = [
            DocumentImage(
                f"{labels[0]}, {insight.label}: {insight.words} "
                f"(Δp {insight.mean:.2f}, {insight.photos:,} photos)",
                insight.png,
            )
            for labels, insight in rows
        ]
        part = make_part(
            "Ours: interventions on a class, those that move the model farthest first",
            ("Model", "Class", "Kind", "Intervention"),
            INSIGHT_COLUMNS,
            rows,
            (
                "Interval: 95 %, over photos. p: the change is larger than that of the same "
                "photos' reconstructions (sign-flip permutation over photos), corrected over all "
                "interventions of a model.",
            ),
        )
        return self.document(*((part,) if rows else ()), pictures=pictures)


def _mean_change(insight: ShownInsight) -> Entry:
    between = "" if insight.low is None else f"[{insight.low:.2f}, {insight.high:.2f}]"
    numbers = {"value": insight.mean, "n": float(insight.edits)}
    return Entry(f"{insight.mean:.2f}", small=between, numbers=numbers)


def _holm(insight: ShownInsight) -> Entry:
    p = math.nan if insight.p_holm is None else insight.p_holm
    return Entry(p_text(p), bold=p <= SENSITIVE)


INSIGHT_COLUMNS: tuple[Column[ShownInsight], ...] = (
    text_column("Edits", lambda insight: f"{insight.edits:,}"),
    text_column("Photos", lambda insight: f"{insight.photos:,}"),
    Column("Mean Δp", _mean_change),
    Column("p (Holm)", _holm),
)
