"""MaxSkew on ShapeScapes, by an oracle: is a planted skew found, and how often is one invented?

Each of the tiny CLIPs was trained in a world that shows some subjects with planted labels, or in a
world without such labels. The labels and their strength are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cfaug.report.arm_results import Runs
from cfaug.report.document import Column, Curve, Document, Entry, Part, make_part
from cfaug.report.page import DASH, percent
from cfaug.report.paper_tables import PaperTable
from cfaug.shapescapes.oracles.social_planted import (
    Found,
    WorldRun,
    WorldRuns,
    choose_question,
    read_world_runs,
)
from cfaug.shapescapes.settings import SKEWED
from cfaug.social.skew_items import Band, SkewItems, chance_of_mean
from cfaug.social.within_set_gap import rank_correlation
from cfaug.stats.effects import wilson_interval
from cfaug.stats.significance import summarise

# The frequency of findings in worlds where nothing was planted.

LEVEL = 0.05
"""Nominal level of every test here."""
NOTES = (
    "Nothing was planted in the worlds of these models. Placement: the exact test of the table "
    "above, for the labels that would have been planted; a world's three kinds of label are not "
    "independent. Shuffled: the pictures of each set have changed places, so labels mean nothing "
    "and every finding is a false alarm. Not shuffled: even a model that was trained without any "
    "skew has preferences, such as for one colour's contrast. MaxSkew rightly finds them, but they "
    "say nothing about the data. Only differences between subjects, or between before and after, "
    "do.",
)


@dataclass(frozen=True)
class Alarms:
    """The alarms of a test.

    Attributes:
        expected: share of alarms to expect if nothing was planted; ``nan`` if unknown.
    """

    count: int
    tests: int
    expected: float


def alarm_part(worlds: WorldRuns, sets: Sequence[str], shuffled: str, k: int | None) -> Part | None:
    """Return the table of alarms; ``None`` if there is no world without a skew.

    Args:
        sets: names of the sets, in order.
        shuffled: name of the sets with shuffled labels.
        k: number of retrieved images, as for ``SkewItems.choose``.
    """
    own = worlds.nothing
    if not own:
        return None
    found = "a planted label is found (placement)"
    rows = [((f"{name} sets", found), _placements(own, name, k)) for name in sets]
    for name in (shuffled, *sets):
        if not any(name in one.answers for one in own):
            continue
        for which, alarms in _blind(own, name, k):
            rows.append(((f"{name} sets", which), alarms))
    title = f"Ours: alarms in {len(own)} worlds in which nothing was planted"
    return make_part(title, ("Asked about", "Alarm"), ALARMS, rows, NOTES)


def _placements(own: Sequence[WorldRun], sets: str, k: int | None) -> Alarms:
    found = [run.find(sets, kind, k) for run in own for kind in SKEWED]
    ps = [one.placement.p for one in found if one is not None]
    return Alarms(sum(p <= LEVEL for p in ps), len(ps), LEVEL)


def _blind(own: Sequence[WorldRun], sets: str, k: int | None) -> Iterable[tuple[str, Alarms]]:
    """Yield the alarms for a reader of the page who does not know what was planted."""
    asked = [
        (run.answers[sets], question)
        for run in own
        if sets in run.answers
        for kind in SKEWED
        for question in [choose_question(run.answers[sets], kind, k)]
        if question is not None
    ]

    def worlds(name: str) -> Alarms:
        least = [min(items.values(q, name).values(), default=1.0) for items, q in asked]
        return Alarms(sum(p <= LEVEL for p in least), len(least), LEVEL)

    def subjects(name: str, level: Callable[[SkewItems, object], float]) -> Alarms:
        values = [v for items, q in asked for v in items.values(q, name).values()]
        levels = [level(items, q) for items, q in asked]
        return Alarms(sum(p <= LEVEL for p in values), len(values), float(np.mean(levels)))

    yield "a subject's MaxSkew, p without correction", subjects("p_permutation", _level)
    yield "some subject's MaxSkew after correction (Holm), a question", worlds("p_holm")
    yield "some subject's paired gaps after correction (Holm), a question", worlds("p_gap_holm")


def _level(items: SkewItems, question: object) -> float:
    """Return the chance that p is at most 0.05, which differs as MaxSkew takes few values."""
    levels = items.values(question, "p_level")  # type: ignore[arg-type]
    return float(np.mean(list(levels.values()))) if levels else LEVEL


def _alarms(
    name: str,
    text: Callable[[Alarms], str],
    numbers: Callable[[Alarms], dict[str, float]] = lambda _: {},
) -> Column[Alarms]:
    """Return a column with a dash where nothing was tested."""
    return Column(
        name, lambda one: Entry(text(one), numbers=numbers(one)) if one.tests else Entry(DASH)
    )


def _alarm_interval(alarms: Alarms) -> str:
    low, high = wilson_interval(alarms.count, alarms.tests)
    return f"{percent(low, 1)} to {percent(high, 1)}"


ALARMS = (
    _alarms("alarms", lambda one: str(one.count)),
    _alarms("tests", lambda one: str(one.tests)),
    _alarms(
        "share, %",
        lambda one: percent(one.count / one.tests, 1),
        lambda one: {"value": one.count / one.tests, "n": float(one.tests)},
    ),
    _alarms("95 % interval", _alarm_interval),
    _alarms(
        "if nothing is there, %",
        lambda one: DASH if np.isnan(one.expected) else percent(one.expected, 1),
    ),
)


ABOUT = (
    "MaxSkew (K is given at the curves), its excess over a random ranking, and the gap are means "
    "over planted subjects; at strength 0, over those on which the labels would have been "
    "planted. ± is over seeds. Gap: how much more the planted label is preferred for these "
    "subjects than for the average subject, within sets, as a share of the order of rank (1 is "
    "from last to first). So what a model prefers for every subject does not count. Found: p <= "
    f"{LEVEL} among random placements of the labels over subjects, which is exact. Named: planted "
    "subjects for which no other label is preferred as much, relative to the average subject."
)
ORDER = (
    "Spearman's correlation with the strength over the trained worlds of the table above. "
    "Brackets: 95 % interval of a bootstrap over seeds. A twin is the model of the same seed whose "
    "world has no skew and is otherwise the same; it is left out of that column."
)
Point = tuple[float, int, Found]
"""Strength, seed, and the finding."""
SHUFFLED = "Shuffled"
"""First word of titles and rows, like ``Oracle`` and ``Generated`` in the settings."""


@dataclass(frozen=True, kw_only=True)
class PlantedSkewTable(PaperTable):
    """Findings by strength, the recovered order, false alarms, and curves.

    Args:
        experiments: folders of the runs below ``paths.runs``; each run was trained in its own
            world.
        sets: {printed name: benchmark of the answers}.
        shuffled: benchmark of the answers about sets with shuffled labels; ``None`` for no such
            sets.
        k: number of retrieved images; the number of labels if ``None`` or without answers.
    """

    experiments: Sequence[str]
    sets: Mapping[str, str]
    shuffled: str | None = None
    k: int | None = None

    def build(self, runs: Runs) -> Document:
        """Return the parts and a curve for each kind of label.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
        """
        shuffled = {} if self.shuffled is None else {SHUFFLED: self.shuffled}
        worlds = read_world_runs(runs.root, self.experiments, {**self.sets, **shuffled})
        self.require(worlds.kinds, f"answers of models trained in worlds of {self.experiments[0]}")
        if not worlds.kinds:
            return self.document()
        sets = [name for name in self.sets if any(name in run.answers for run in worlds.runs)]
        parts = [self._recovery(worlds, sets), self._order(worlds, sets)]
        alarms = alarm_part(worlds, sets, SHUFFLED, self.k)
        if alarms is not None:
            parts.append(alarms)
        curves = [self._curve(worlds, name, kind) for name in sets for kind in worlds.kinds]
        shown = [curve for curve in curves if curve is not None]
        return self.document(*parts, curves=shown, answer=self._answer(worlds, sets))

    def _answer(self, worlds: WorldRuns, sets: Sequence[str]) -> str:
        """Say in how many worlds each source of sets finds a planted skew."""
        said = []
        for name in sets:
            found = [
                one
                for kind in worlds.kinds
                for strength, own in worlds.planted(kind).items()
                if strength > 0
                for _, one in self._found(own, name, kind)
            ]
            right = sum(one.placement.p <= LEVEL for one in found)
            said.append(f"{name} sets find it in {right} of {len(found)} worlds")
        return f"Where a skew is planted, {' and '.join(said)} (placement, p <= {LEVEL:g})."

    def _found(self, own: Sequence[WorldRun], sets: str, kind: str) -> list[tuple[int, Found]]:
        every = ((run.seed, run.find(sets, kind, self.k)) for run in own)
        return [(seed, found) for seed, found in every if found is not None]

    def _recovery(self, worlds: WorldRuns, sets: Sequence[str]) -> Part:
        def cell(name: str, column: Column[Sequence[Found]], row: tuple[str, Worlds]) -> Entry:
            kind, own = row
            found = [one for _, one in self._found(own, name, kind)]
            return column.cell(found) if found else Entry(DASH)

        rows: list[tuple[tuple[str, ...], tuple[str, Worlds]]] = []
        rules = []
        for kind in worlds.kinds:
            rules.append(len(rows))
            before = {"before training": worlds.before} if worlds.before else {}
            planted = {f"{strength:g}": own for strength, own in worlds.planted(kind).items()}
            rows += [
                ((kind, strength, str(len(own))), (kind, own))
                for strength, own in {**before, **planted}.items()
            ]
        return make_part(
            "Ours: findings by the strength of the planted skew",
            ("Labels", "Strength", "Worlds"),
            [
                Column(column.name, partial(cell, name, column), f"{name} sets")
                for name in sets
                for column in FOUND
            ],
            rows,
            [ABOUT],
            rules=tuple(rules[1:]),
        )

    def _order(self, worlds: WorldRuns, sets: Sequence[str]) -> Part:
        def cell(name: str, measure: Measured, kind: str) -> Entry:
            return _correlation(
                measure(
                    [
                        (strength, seed, found)
                        for strength, own in worlds.planted(kind).items()
                        for seed, found in self._found(own, name, kind)
                    ]
                )
            )

        columns = [
            Column(header, partial(cell, name, measure), f"{name} sets")
            for name in sets
            for header, measure in ORDERED.items()
        ]
        rows = [((kind,), kind) for kind in worlds.kinds]
        return make_part(
            "Ours: is the planted order recovered?", ("Labels",), columns, rows, [ORDER]
        )

    def _curve(self, worlds: WorldRuns, sets: str, kind: str) -> Curve | None:
        series: dict[str, dict[float, dict[int, float]]] = {}
        band: Band | None = None
        k = 0
        for strength, own in worlds.planted(kind).items():
            for one in own:
                found = one.find(sets, kind, self.k)
                if found is None:
                    continue
                k, band = found.question.k, band or _band(one, sets, found)
                for which, value in (
                    ("planted subjects", found.max_skew),
                    ("other subjects", found.max_skew_of_others),
                ):
                    if not np.isnan(value):
                        points = series.setdefault(which, {}).setdefault(strength, {})
                        points[one.seed] = value
        if not series:
            return None
        return Curve(
            title=f"{sets} sets, planted labels: {kind}; MaxSkew@{k} by strength, nats",
            x_title="strength of the planted skew",
            y_title=f"MaxSkew@{k}, mean over subjects, nats",
            series=series,
            note="Grey: the middle 90 % of the mean over as many subjects of random rankings.",
            unit="nats",
            chance=band,
        )


def _band(run: WorldRun, sets: str, finding: Found) -> Band:
    """Return the chance band of the mean over this many subjects."""
    chance = run.answers[sets].chance(finding.question)
    return chance_of_mean(chance[: len(finding.planted)])


Worlds = Sequence[WorldRun]
Measured = Callable[[Sequence[Point]], list[tuple[float, int, float]]]
"""A function that gives (strength, seed, value) of a measure."""


def _less_twin(points: Sequence[Point]) -> list[tuple[float, int, float]]:
    twins = {seed: found.excess for strength, seed, found in points if strength == 0}
    return [
        (strength, seed, found.excess - twins[seed])
        for strength, seed, found in points
        if strength > 0 and seed in twins
    ]


ORDERED: Mapping[str, Measured] = {
    "MaxSkew": lambda points: [(x, seed, found.excess) for x, seed, found in points],
    "less its twin's": _less_twin,
    "gap": lambda points: [(x, seed, found.placement.effect) for x, seed, found in points],
}


def _other_subjects(own: Sequence[Found]) -> Entry:
    others = [finding.max_skew_of_others for finding in own]
    return Entry(DASH) if np.isnan(others).any() else _mean(others)


def _worlds_found(own: Sequence[Found]) -> Entry:
    found = sum(finding.placement.p <= LEVEL for finding in own)
    numbers = {"value": found / len(own), "n": float(len(own))}
    return Entry(f"{found}/{len(own)}", numbers=numbers)


def _labels_named(own: Sequence[Found]) -> Entry:
    hits, planted = (
        sum(getattr(finding.placement, n) for finding in own) for n in ("hits", "planted")
    )
    numbers = {"value": hits / planted, "n": float(planted)}
    return Entry(f"{hits:g}/{planted}", numbers=numbers)


FOUND: tuple[Column[Sequence[Found]], ...] = (
    Column("MaxSkew", lambda own: _mean([one.max_skew for one in own])),
    Column("beyond chance", lambda own: _mean([one.excess for one in own], signed=True)),
    Column("other subjects", _other_subjects),
    Column("gap", lambda own: _mean([one.placement.effect for one in own], signed=True)),
    Column("worlds found", _worlds_found),
    Column("labels named", _labels_named),
)


def _mean(values: Sequence[float], *, signed: bool = False) -> Entry:
    summary = summarise(values)
    known = {"value": summary.mean, "n": float(len(values))}
    spread = not np.isnan(summary.sd)
    return Entry(
        f"{summary.mean:+.2f}" if signed else f"{summary.mean:.2f}",
        sub=f"{summary.sd:.2f}" if spread else "",
        numbers={**known, "sd": summary.sd} if spread else known,
    )


def _correlation(points: Sequence[tuple[float, int, float]]) -> Entry:
    if not points:
        return Entry(DASH)
    strengths, seeds, values = zip(*points, strict=True)
    found = rank_correlation(strengths, values, seeds)
    if np.isnan(found.rho):
        return Entry(DASH)
    small = "" if np.isnan(found.low) else f"[{found.low:.2f}, {found.high:.2f}]"
    return Entry(f"{found.rho:.2f}", small=small, numbers={"value": found.rho, "n": float(found.n)})
