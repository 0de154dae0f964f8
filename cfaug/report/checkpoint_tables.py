"""Checkpoints before and after fine-tuning: what was forgotten, and WiSE-FT between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TypedDict

from cfaug.core.errors import UserError
from cfaug.core.weights import ENCODER_SETTINGS, model_identity
from cfaug.report.arm_results import MissingError, Runs, require_one_test
from cfaug.report.comparison import shows_no_more_than_chance
from cfaug.report.document import Column, Document, Entry, Part, Tradeoff, make_part, rules_of
from cfaug.report.page import DASH, Measure, span_text
from cfaug.report.paper_tables import PaperTable
from cfaug.report.records import read_run
from cfaug.report.results import (
    NAME_OF_PART,
    RECORD,
    RESULTS,
    WEIGHTS,
    Cell,
    Result,
    every_result,
    name_part,
)
from cfaug.report.significance_rows import ALPHA
from cfaug.stats.effects import t_interval
from cfaug.stats.item_tests import mcnemar
from cfaug.stats.significance import summarise

# WiSE-FT: weights between a checkpoint before and after fine-tuning (Wortsman et al., 2022).
#
# Not one of the papers reproduced here, but the cheapest remedy for forgetting in fine-tuning,
# applicable to every arm. ``evaluate.py wise_ft=[...]`` evaluates; this module makes the table and
# the plot.

FACTOR = ",wise_ft="
"""Between arm and mixing factor in the name of an interpolated arm."""


def interpolated_arm(arm: str, factor: float) -> str:
    """Return the name of an interpolated arm.

    >>> interpolated_arm("both", 0.25)
    'both,wise_ft=0.25'
    """
    return f"{arm}{FACTOR}{factor:g}"


@dataclass(frozen=True)
class ChangeColumn:
    """A column of values and of their change, of a benchmark or of the part ``by`` of one.

    ``name`` is its printed name; if empty, the benchmark and the metric.
    """

    benchmark: str
    metric: str
    name: str = ""
    by: Mapping[str, str | int | float] = field(default_factory=dict)

    @property
    def cell(self) -> Cell:
        """Its cell in the results."""
        by = {name: str(value) for name, value in self.by.items()}
        return name_part(self.benchmark, by), self.metric

    @property
    def group(self) -> str:
        """The header above its two columns."""
        return self.name or f"{self.benchmark} {self.metric}"


class RequiredColumnSettings(TypedDict):
    """Required settings of every column; see ``ChangeColumn``."""

    benchmark: str
    metric: str


class ColumnSettings(RequiredColumnSettings, total=False):
    """The settings of a column, arguments of ``ChangeColumn``."""

    name: str
    by: Mapping[str, str | int | float]


Points = Mapping[float, Mapping[Cell, Mapping[int, float]]]
"""{factor: {cell: {seed: value}}} of one arm."""


@dataclass(frozen=True, kw_only=True)
class WiseFtTable(PaperTable):
    """Arms' gains and losses over mixing factors; other arguments as for ``PaperTable``.

    Args:
        experiment: the experiment of the arms, a folder below ``paths.runs``.
        gain: settings of ``ChangeColumn`` for the aim of fine-tuning.
        cost: settings of ``ChangeColumn`` for an ability that fine-tuning may lose.
        arms: {arm: printed name}, in order; ``None`` uses every arm evaluated with ``wise_ft=``.
    """

    experiment: str | None
    gain: ColumnSettings
    cost: ColumnSettings
    arms: Mapping[str, str] | None = None

    def build(self, runs: Runs) -> Document:
        """Return the table and the curve.

        Changes are relative to factor 0 of the same seed, the weights before fine-tuning.

        Raises:
            MissingError: if arms, factors or results are missing.
        """
        columns = []
        for setting, given in (("gain", self.gain), ("cost", self.cost)):
            try:
                columns.append(ChangeColumn(**given))
            except TypeError as error:
                raise UserError(
                    f"table.{setting} of {self.name}: {error}; give benchmark=NAME and metric=NAME"
                ) from error
        if self.experiment is None:
            raise UserError(
                f"table={self.name} needs table.experiment=NAME: that of the runs which "
                "`python evaluate.py name=NAME wise_ft=[0,0.25,0.5,0.75,1]` asked"
            )
        rows: list[Result] = []
        read: dict[str, Points] = {}
        for arm, factors in self._find_factors(runs).items():
            names = {f: f"{self.experiment}/{interpolated_arm(arm, f)}" for f in factors}
            by_factor = {f: runs.arm(name) for f, name in names.items()}
            for column in columns:
                seeds = set(by_factor[0.0].values(column.cell))
                lacks = [
                    f"{' '.join(column.cell)} of {interpolated_arm(arm, factor)}"
                    for factor, results in by_factor.items()
                    if not seeds or set(results.values(column.cell)) != seeds
                ]
                if lacks:
                    raise MissingError(self.name, lacks, self.commands, partial=self.partial)
            every = zip(names.values(), by_factor.values(), strict=True)
            require_one_test(self.name, every, {column.cell[0] for column in columns})
            rows += [row for results in by_factor.values() for row in results.rows]
            read[arm] = {
                f: {c.cell: results.values(c.cell) for c in columns}
                for f, results in by_factor.items()
            }
        measured = [
            (column, next(Measure(r.unit, r.better) for r in rows if r.cell == column.cell))
            for column in columns
        ]
        tradeoffs = [self._tradeoff(read, *measured)]
        return self.document(self._part(read, measured), tradeoffs=tradeoffs)

    def _label(self, arm: str) -> str:
        return (self.arms or {}).get(arm, arm)

    def _find_factors(self, runs: Runs) -> dict[str, list[float]]:
        """Return the factors at which every arm was evaluated, including 0."""
        by_arm: dict[str, list[float]] = {}
        for folder in sorted((runs.root / str(self.experiment)).glob(f"*{FACTOR}*")):
            arm, _, factor = folder.name.rpartition(FACTOR)
            with suppress(ValueError):  # of a user's own folder
                by_arm.setdefault(arm, []).append(float(factor))
        chosen = {
            arm: sorted(factors) for arm, factors in by_arm.items() if arm in (self.arms or by_arm)
        }
        lacks = [f"{arm} with wise_ft=..." for arm in (self.arms or ()) if arm not in chosen]
        lacks += [
            f"{arm} with wise_ft=[0,...]" for arm, factors in chosen.items() if factors[0] != 0
        ]
        if not chosen or (lacks and not self.partial):
            nothing = [f"a run of {self.experiment} asked with wise_ft=[0,...]"]
            raise MissingError(self.name, lacks or nothing, self.commands, partial=self.partial)
        order = [arm for arm in (self.arms or chosen) if arm in chosen and chosen[arm][0] == 0]
        return {arm: chosen[arm] for arm in order}

    def _part(
        self, read: Mapping[str, Points], measured: Sequence[tuple[ChangeColumn, Measure]]
    ) -> Part:
        def value(cell: Cell, measure: Measure, row: tuple[Points, float]) -> Entry:
            points, factor = row
            summary = summarise(list(points[factor][cell].values()))
            spread = {"sd": summary.sd} if summary.n > 1 else {}
            return Entry(
                measure.text(summary.mean), measure.spread(summary.sd) if spread else "",
                numbers={"value": summary.mean, "n": float(summary.n), **spread},
            )  # fmt: skip

        def change(cell: Cell, measure: Measure, row: tuple[Points, float]) -> Entry:
            deltas = list(_change(*row, cell).values())
            summary = summarise(deltas)
            interval = span_text(measure.difference, *t_interval(deltas), DASH)
            return Entry(
                measure.difference(summary.mean), small=interval,
                numbers={"value": summary.mean, "n": float(summary.n)},
            )  # fmt: skip

        rows = [
            ((self._label(arm), f"{factor:g}"), (points, factor))
            for arm, points in read.items()
            for factor in points
        ]
        columns = []
        for column, measure in measured:
            for name, entry in ((measure.header("value"), value), ("change", change)):
                columns.append(Column(name, partial(entry, column.cell, measure), column.group))
        seeds = max(len(v) for p in read.values() for c in p.values() for v in c.values())
        return make_part(
            f"Ours: {self.experiment}, {seeds} seed{'s' * (seeds > 1)}",
            ("Arm", "factor"),
            columns,
            rows,
            (
                "Weights: (1 - factor) * initial + factor * fine-tuned, in float32. Value: mean "
                "over seeds and its standard deviation. Change: against factor 0 of the same seed, "
                "with its 95 % interval over seeds.",
            ),
            rules=rules_of([labels[0] for labels, _ in rows]),
        )

    def _tradeoff(
        self,
        read: Mapping[str, Points],
        gain: tuple[ChangeColumn, Measure],
        cost: tuple[ChangeColumn, Measure],
    ) -> Tradeoff:
        titles = []
        for column, measure in (cost, gain):
            unit = "points" if measure.is_fraction else measure.unit
            worse = ", lower is better" if measure.better == "lower" else ""
            titles.append(f"change of {column.group} ({unit}{worse})")
        x, y = cost[0].cell, gain[0].cell
        series = {
            self._label(arm): [
                (f"{f:g}", _change(points, f, x), _change(points, f, y)) for f in points
            ]
            for arm, points in read.items()
        }
        return Tradeoff(
            f"{gain[0].group} against {cost[0].group}",
            titles[0],
            titles[1],
            series,
            "Each point is a mixing factor: 0, before fine-tuning, to 1, after it. Whiskers: 95 % "
            "intervals over seeds (Student).",
            (cost[1].unit, gain[1].unit),
        )


def _change(points: Points, factor: float, cell: Cell) -> dict[int, float]:
    first = points[0.0][cell]
    return {seed: value - first[seed] for seed, value in points[factor][cell].items()}


# The cost of fine-tuning: every result compared with that of the weights it started from.
#
# A fine-tuned CLIP that gains on one test and loses its zero-shot accuracy elsewhere is the usual
# accident. The results before fine-tuning are found by the hashes of weights and data: in runs of 0
# steps in the same experiment, and for checkpoints evaluated with ``weights=`` or
# ``evaluate_initial=true``.

WATCHED = ("acc1", "image_to_text_R@1", "text_to_image_R@1")
"""Metrics of zero-shot classification and retrieval, in any benchmark."""
ResultKey = tuple[str, str, str, str]
"""Hash of the weights, benchmark, metric, hash of the data."""


@dataclass(frozen=True)
class MetricChange:
    """One metric of one run before and after fine-tuning, as fractions; larger is better.

    ``n`` is the number of items, and ``chance`` what a model that guesses is expected to reach;
    ``None`` if that is not known.
    """

    arm: str
    seed: int
    benchmark: str
    metric: str
    before: float
    after: float
    n: int
    chance: float | None = None

    @property
    def difference(self) -> float:
        """After minus before."""
        return self.after - self.before


def initial_values(experiment: Path) -> dict[ResultKey, float]:
    """Return the known results of weights before fine-tuning, also of the sibling ``weights``."""
    values: dict[ResultKey, float] = {}
    for file in sorted((experiment.parent / WEIGHTS).glob(f"*/seed=*/{RESULTS}")):
        values |= {(row.weights, *_question(row)): row.value for row in every_result(file)}
    for file in sorted(experiment.glob(f"*/seed=*/{RECORD}")):
        try:
            run = read_run(file.parent)
        except UserError:
            continue  # reported where the run itself is evaluated
        if run.done and run.record.get("steps") == 0 and (file.parent / RESULTS).exists():
            # Such a run may have saved another precision, which has another hash.
            weights = initial_weights(run.record)
            rows = every_result(file.parent / RESULTS)
            values |= {(weights, *_question(row)): row.value for row in rows}
    return values


def initial_weights(record: Mapping[str, object]) -> str:
    """Return the identity of the model a run started from; empty if it is not in its record."""
    identity = record.get("identity")
    if not isinstance(identity, Mapping) or not identity.get("content.weights"):
        return ""
    settings = {name: identity.get(f"model.{name}") for name in ENCODER_SETTINGS}
    return model_identity(str(identity["content.weights"]), settings)


def _question(row: Result) -> tuple[str, str, str]:
    return row.benchmark, row.metric, row.data


def changes(folder: Path, initial: Mapping[ResultKey, float]) -> list[MetricChange]:
    """Return every watched metric of a run that is also known for its initial weights."""
    run = read_run(folder)
    if run.record.get("steps") == 0:
        return []
    weights = initial_weights(run.record)
    return [
        MetricChange(
            row.arm,
            row.seed,
            *row.cell,
            initial[weights, *_question(row)],
            row.value,
            row.n,
            row.chance,
        )
        for row in run.results()
        if row.metric in WATCHED and row.data and (weights, *_question(row)) in initial
    ]


@dataclass(frozen=True)
class Fall:
    """A metric whose mean over an arm's runs fell.

    ``unshown`` says why the fall shows no forgetting; empty if it does.
    """

    arm: str
    benchmark: str
    metric: str
    before: float
    after: float
    runs: int
    items: int
    unshown: str = ""

    def __str__(self) -> str:
        if self.unshown:
            items = f"of {self.items:,} item{'s' * (self.items > 1)}"
            values = f"{100 * self.before:.1f} % before and {100 * self.after:.1f} % after"
            return f"{self.benchmark} {self.metric}: {values}, {items}: {self.unshown}"
        return (
            f"{self.arm}: {self.benchmark} {self.metric} fell from {100 * self.before:.1f} % to "
            f"{100 * self.after:.1f} % ({100 * (self.after - self.before):+.1f} points, "
            f"{self.runs} run{'s' * (self.runs > 1)})"
        )


def falls(deltas: Iterable[MetricChange], threshold: float) -> list[Fall]:
    """Return the metrics whose mean over an arm's runs fell by more than ``threshold``.

    A fall shows forgetting if the initial weights are better than chance, by the exact binomial
    test of ``cfaug.report.comparison``, and if as many lost items can be significant at all: in
    McNemar's exact test, two-sided, where no other item was gained, which takes six. Means over
    runs are tested as if they were one model's, as seeds answer the same items.
    """
    groups: dict[tuple[str, str, str], list[MetricChange]] = {}
    for change in deltas:
        groups.setdefault((change.arm, change.benchmark, change.metric), []).append(change)
    fallen = []
    for key, group in groups.items():
        before, after = fmean(c.before for c in group), fmean(c.after for c in group)
        if before - after <= threshold:
            continue
        items = min(change.n for change in group)
        known = [change.chance for change in group if change.chance is not None]
        unshown = ""
        if mcnemar(0, round(items * (before - after))) > ALPHA:
            unshown = "too few to show forgetting"
        elif len(known) == len(group) and shows_no_more_than_chance(before, items, fmean(known)):
            guessed = f"{100 * fmean(known):.1f} %"
            unshown = f"at chance ({guessed}) before, so it shows no forgetting"
        fallen.append(Fall(*key, before, after, len(group), items, unshown))
    return fallen


def alarms(deltas: Iterable[MetricChange], threshold: float) -> dict[str, list[str]]:
    """Return sentences on benchmarks and metrics that fell by more than ``threshold``.

    Args:
        threshold: largest fall that is not reported, as a fraction: 0.02 for two points.

    Returns:
        {benchmark: a sentence for each of its metrics that fell}.
    """
    fallen: dict[tuple[str, str], list[Fall]] = {}
    for fall in falls(deltas, threshold):
        if not fall.unshown:
            fallen.setdefault((fall.benchmark, fall.metric), []).append(fall)
    lines: dict[str, list[str]] = {}
    for cell, some in fallen.items():
        text = str(some[0])
        if len(some) > 1:
            arms = [f"{f.arm} from {100 * f.before:.1f} to {100 * f.after:.1f} %" for f in some]
            text = f"{' '.join(cell)} fell in {len(some)} arms: {', '.join(arms)}"
        line = f"forgetting, more than {100 * threshold:g} points: {text}"
        lines.setdefault(NAME_OF_PART.sub("", cell[0]), []).append(line)
    return lines


def unshown_falls(deltas: Iterable[MetricChange], threshold: float) -> list[str]:
    """Return a sentence on each benchmark and metric whose fall shows no forgetting.

    Of several arms, the largest fall is named.
    """
    largest: dict[tuple[str, str], Fall] = {}
    for fall in sorted(falls(deltas, threshold), key=lambda fall: fall.after - fall.before):
        if fall.unshown:
            largest.setdefault((fall.benchmark, fall.metric), fall)
    return [f"{fall}." for fall in largest.values()]


def sentences(deltas: Sequence[MetricChange], threshold: float | None) -> list[str]:
    """Return sentences on metrics that fell, or why there are none; empty without a threshold.

    Args:
        threshold: largest fall that is not reported, as a fraction; ``None`` reports nothing.
    """
    if threshold is None:
        return []
    if not deltas:
        return [
            "Nothing is known about the weights before fine-tuning: `python evaluate.py "
            "evaluate_initial=true` runs the same benchmarks on them."
        ]
    lines = [line for some in alarms(deltas, threshold).values() for line in some]
    lines += unshown_falls(deltas, threshold)
    count = len({(change.benchmark, change.metric) for change in deltas})
    none = f"None of {count} watched metrics fell by more than {100 * threshold:g} points."
    return lines or [none]
