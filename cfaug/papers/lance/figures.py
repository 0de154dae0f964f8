"""Figures 3, 4 and 6 of LANCE: what edits move a model, how real they look, insights by class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cfaug.metrics.edit_effects import GroupEffect
from cfaug.metrics.significance import summarise
from cfaug.papers.lance.answers import COMMANDS, EVERYTHING, Models, read_answers
from cfaug.papers.published import published
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import BarPlot, Document, Entry, Part, Picture
from cfaug.report.insights import read_insights
from cfaug.report.numbers import DASH, p_text
from cfaug.report.results import RESULTS, Result, read_results
from cfaug.report.stress import EDITED, StressItems
from cfaug.report.stress_drops import EDITED_PHOTOS

SENSITIVE = 0.05
"""Corrected p up to which a kind moves a model more than a reconstruction does."""


@dataclass(frozen=True)
class SensitivityFigure:
    """How far each kind of edit moves the probability of the true class (Figure 3).

    Args:
        name: of the files written.
        title: above the figure.
        paper: whose figure it is.
        says: what the paper says of its figure, which has no numbers.
        part: the set of edits.
        benchmark: of the items, or the end of its name.
        models: {as printed: checkpoints}; ``None`` is every one that was asked.
        commands: what makes the items.
        notes: printed below everything.
        partial: print the paper's words alone where there are no items.
    """

    name: str
    title: str
    paper: str
    says: str
    part: str = EDITED
    benchmark: str = "stress"
    models: Models | None = None
    commands: Sequence[str] = COMMANDS
    notes: Sequence[str] = ()
    partial: bool = False

    def build(self, runs: Runs) -> Document:
        """Return a table and bars: a row a kind, a column a model.

        Raises:
            MissingError: if no model was asked, unless ``partial``.
            UserError: if items cannot be read.
        """
        found = read_answers(runs.root, self.benchmark, self.models)
        effects = {
            name: [one.effects_by("kind", self.part) for _, one in own if self.part in one.sets]
            for name, own in found.items()
        }
        effects = {name: own for name, own in effects.items() if own}
        if not effects and not self.partial:
            raise MissingError(self.name, [f"answers to the edits of {self.part}"], self.commands)
        notes = (f"{self.paper}: {self.says}", *self.notes)
        if not effects:
            return Document(self.name, self.title, (), notes)
        kinds = _order(effects)
        part = Part(
            title="Ours: mean Δp of the true class, by kind of edit",
            labels=("Kind",),
            groups=(),
            columns=tuple(effects),
            rows=tuple(
                ((kind,), tuple(_cell(_of(kind, own)) for own in effects.values()))
                for kind in kinds
            ),
            notes=(
                "Absolute, from the full softmax; brackets: 95 % interval of a bootstrap over "
                "photos (± instead: over checkpoints). Bold: more than the same photos' "
                "reconstructions move it (sign-flip permutation over photos, Holm over kinds, in "
                "most checkpoints).",
            ),
        )
        bars = {
            kind: [(name, *_bar(_of(kind, own))) for name, own in effects.items()] for kind in kinds
        }
        plot = BarPlot("", "mean Δp of the true class", bars, tuple(effects), unit="probability")
        return Document(self.name, self.title, (part,), notes, bars=(plot,))


def _order(effects: Mapping[str, Sequence[Sequence[GroupEffect]]]) -> list[str]:
    """Return every kind, that which moves the models farthest first."""
    means: dict[str, list[float]] = {}
    for one in (one for own in effects.values() for some in own for one in some):
        means.setdefault(str(one.group), []).append(one.mean)
    return sorted(means, key=lambda kind: -sum(means[kind]) / len(means[kind]))


def _of(kind: str, own: Sequence[Sequence[GroupEffect]]) -> list[GroupEffect]:
    return [one for some in own for one in some if one.group == kind]


def _bar(found: Sequence[GroupEffect]) -> tuple[float | None, float | None, float | None]:
    """Return the mean and its interval; of several checkpoints mean and spread."""
    if not found:
        return None, None, None
    mean = sum(one.mean for one in found) / len(found)
    if len(found) == 1:
        low, high = (None if math.isnan(end) else end for end in (found[0].low, found[0].high))
        return mean, low, high
    sd = summarise([one.mean for one in found]).sd
    return mean, mean - sd, mean + sd


def _cell(found: Sequence[GroupEffect]) -> Entry:
    if not found:
        return Entry(DASH)
    summary = summarise([one.mean for one in found])
    mean, (_, low, high) = summary.mean, _bar(found)
    single = len(found) == 1
    numbers = {"value": mean, "n": float(sum(map(len, found)))}
    return Entry(
        f"{mean:.3f}",
        sub="" if single else f"{summary.sd:.3f}",
        bold=2 * sum(one.p_holm <= SENSITIVE and one.excess > 0 for one in found) > len(found),
        small=f"[{low:.3f}, {high:.3f}]" if single and low is not None else "",
        numbers=numbers if single else {**numbers, "sd": summary.sd},
    )


@dataclass(frozen=True)
class QualityFigure:
    """How real the images are and how likely the captions (Figure 4).

    Args:
        name: of the paper's numbers and of the files written.
        title: above the table.
        paper: whose numbers the paper's are.
        sets: {as printed: the set of the results}, in order.
        metrics: {as printed: metric of the results}.
        benchmarks: of the results, or the ends of their names.
        commands: what makes the results.
        notes: printed below everything.
        partial: print the paper's numbers alone where there are no results.
    """

    name: str
    title: str
    paper: str
    sets: Mapping[str, str]
    metrics: Mapping[str, str]
    benchmarks: Sequence[str]
    commands: Sequence[str]
    notes: Sequence[str] = ()
    partial: bool = False

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours by whatever measured them.

        Raises:
            MissingError: if there are no results, unless ``partial``.
            UserError: if results cannot be read.
        """
        found = self._results(runs.root)
        if not found and not self.partial:
            lacking = [f"results of {name}" for name in self.benchmarks]
            raise MissingError(self.name, lacking, self.commands)
        ours = [self._ours(name, rows) for name, rows in found.items()]
        return Document(self.name, self.title, (self._theirs(), *ours), tuple(self.notes))

    def _results(self, root: Path) -> dict[str, list[Result]]:
        found: dict[str, list[Result]] = {}
        for folder in sorted(root.glob(EVERYTHING)):
            file = folder / RESULTS
            rows = read_results(file) if file.is_file() else []
            for row in rows:
                if row.benchmark.endswith(tuple(self.benchmarks)):
                    found.setdefault(f"{folder.parent.name}, {row.benchmark}", []).append(row)
        return found

    def _theirs(self) -> Part:
        found = published(self.name)
        rows = tuple(
            ((row["method"],), tuple(Entry(f"{v:g}", numbers={"value": v}) for v in row["values"]))
            for row in found["rows"]
        )
        columns = tuple(f"{name} (lower is better)" for name in found["columns"])
        return Part(self.paper, ("Method",), (), columns, rows, notes=(found["note"],), ours=False)

    def _ours(self, name: str, results: Sequence[Result]) -> Part:
        known = {(row.by["set"], row.metric): row for row in results if [*row.by] == ["set"]}
        # As the images, so the captions: of photos of which there is an edit.
        known |= {
            (row.by["set"], row.metric): row
            for row in results
            if row.by.get("photos") == EDITED_PHOTOS
        }
        metrics = {
            printed: metric
            for printed, metric in self.metrics.items()
            if any(own == metric for _, own in known)
        }
        rows = tuple(
            ((printed,), tuple(_number(known.get((part, metric))) for metric in metrics.values()))
            for printed, part in self.sets.items()
        )
        return Part(f"Ours: {name}", ("Method",), (), tuple(metrics), rows)


def _number(row: Result | None) -> Entry:
    if row is None:
        return Entry(DASH)
    return Entry(f"{row.value:.4g}", numbers={"value": row.value, "n": float(row.n)})


@dataclass(frozen=True)
class InsightsFigure:
    """The interventions on a class that move a model most (Figure 6).

    Args:
        name: of the files written.
        title: above the figure.
        paper: whose figure it is.
        says: what the paper's figure shows, which has no numbers.
        shown: insights of a model.
        benchmark: of the items, or the end of its name.
        models: {as printed: checkpoints}; ``None`` is every one that was asked.
        commands: what makes the items.
        notes: printed below everything.
        partial: print the paper's words alone where there are no items.
    """

    name: str
    title: str
    paper: str
    says: str
    shown: int = 3
    benchmark: str = "stress"
    models: Models | None = None
    commands: Sequence[str] = COMMANDS
    notes: Sequence[str] = ()
    partial: bool = False

    def build(self, runs: Runs) -> Document:
        """Return a table of the insights and their pictures.

        Raises:
            MissingError: if no model has insights, unless ``partial``.
            UserError: if they cannot be read.
        """
        rows: list[tuple[tuple[str, ...], tuple[Entry, ...]]] = []
        pictures: list[Picture] = []
        for name, own in read_answers(runs.root, self.benchmark, self.models).items():
            for folder, answers in own:
                printed = name if len(own) == 1 else f"{name}, {folder.parent.name}"
                some, shown = self._insights(printed, folder, answers)
                rows += some
                pictures += shown
        if not rows and not self.partial:
            raise MissingError(self.name, ["insights into classes"], self.commands)
        notes = (f"{self.paper}: {self.says}", *self.notes)
        part = Part(
            title="Ours: interventions on a class, those that move the model farthest first",
            labels=("Model", "Class", "Kind", "Intervention"),
            groups=(),
            columns=("Edits", "Photos", "Mean Δp", "p (Holm)"),
            rows=tuple(rows),
            notes=(
                "Interval: bootstrap over photos. p: more than the same photos' reconstructions "
                "(sign-flip permutation over photos), corrected over all interventions of a model.",
            ),
        )
        return Document(
            self.name, self.title, (part,) if rows else (), notes, pictures=tuple(pictures)
        )

    def _insights(
        self, name: str, folder: Path, answers: StressItems
    ) -> tuple[list[tuple[tuple[str, ...], tuple[Entry, ...]]], list[Picture]]:
        rows: list[tuple[tuple[str, ...], tuple[Entry, ...]]] = []
        pictures = []
        for one in read_insights(folder, answers)[: self.shown]:
            between = "" if one.low is None else f"[{one.low:.2f}, {one.high:.2f}]"
            p = math.nan if one.p_holm is None else one.p_holm
            cells = (
                Entry(f"{one.edits:,}"), Entry(f"{one.photos:,}"),
                Entry(f"{one.mean:.2f}", small=between,
                      numbers={"value": one.mean, "n": float(one.edits)}),
                Entry(p_text(p), bold=p <= SENSITIVE),
            )  # fmt: skip
            rows.append(((name, one.label, one.kind, one.words), cells))
            said = f"{name}, {one.label}: {one.words} (Δp {one.mean:.2f}, {one.photos:,} photos)"
            pictures.append(Picture(said, one.png))
        return rows, pictures
