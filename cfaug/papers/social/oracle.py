"""MaxSkew on ShapeScapes, by an oracle: is a planted skew found, and how often is one invented?

Each of the tiny CLIPs was trained in a world that shows some subjects with planted labels, or in a
world without such labels. The labels and their strength are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path

import numpy as np

from cfaug.core.errors import UserError, say
from cfaug.papers.social.skew_items import Band, RankingTask, SkewItems, chance_of_mean, read_list
from cfaug.papers.social.within_set_gap import NOTHING, Placement, find_planted, rank_correlation
from cfaug.report.arm_results import Runs
from cfaug.report.document import Column, Curve, Document, Entry, Part, make_part
from cfaug.report.items import read_items
from cfaug.report.page import DASH, percent
from cfaug.report.paper_tables import PaperTable
from cfaug.report.records import read_config, read_run, setting_node
from cfaug.stats.effects import wilson_interval
from cfaug.stats.significance import summarise
from cfaug.worlds.shapescapes.settings import SKEWED, WorldSettings
from cfaug.worlds.shapescapes.world import World

LEVEL = 0.05
"""Nominal level of every test here."""

# Models trained in worlds with a planted skew, and how well questions find it.


@dataclass(frozen=True)
class Found:
    """The finding about one kind of label in one world with one source of sets.

    Attributes:
        question: the labels and the number of retrieved images.
        max_skew: mean MaxSkew of planted subjects.
        excess: ``max_skew`` minus that of a random ranking.
        max_skew_of_others: mean MaxSkew of the subjects without a planted label; ``nan`` without
            any.
        placement: test of the gaps of rank within sets.
    """

    question: RankingTask
    planted: int
    max_skew: float
    excess: float
    max_skew_of_others: float
    placement: Placement


@dataclass(frozen=True)
class WorldRun:
    """One model, the world it was trained in, and its answers.

    Attributes:
        trained: whether the model took a training step.
        answers: {name of the sets: answers about them}.
    """

    folder: Path
    world: World
    seed: int
    trained: bool
    answers: Mapping[str, SkewItems]

    def find(self, sets: str, kind: str, k: int | None) -> Found | None:
        """Test for planted labels of a kind; ``None`` if there are no answers about them.

        In a world where nothing was planted, the labels are those that would have been planted.

        Args:
            k: number of retrieved images, as for ``SkewItems.choose``.
        """
        answers = self.answers.get(sets)
        question = None if answers is None else choose_question(answers, kind, k)
        if answers is None or question is None:
            return None
        return compare_labels(answers, question, self.labels(kind))

    def labels(self, kind: str) -> dict[str, str]:
        """Return the label that was, or would have been, planted on each such subject."""
        world = World(replace(self.world.settings, skewed=kind))
        return {name: " ".join(attributes.values()) for name, attributes in world.planted.items()}


def choose_question(answers: SkewItems, kind: str, k: int | None) -> RankingTask | None:
    """Return the question about the labels of a kind; ``None`` without answers."""
    labelling = "_".join(SKEWED[kind])
    grids = dict.fromkeys(question.grid for question in answers.questions)
    chosen = (answers.choose(grid, labelling, k) for grid in grids)
    return next((question for question in chosen if question is not None), None)


def compare_labels(answers: SkewItems, question: RankingTask, labels: Mapping[str, str]) -> Found:
    """Compare the answers to a question with the planted labels.

    Args:
        labels: {subject: planted label}; other subjects have none.
    """
    rows, subjects = answers.rows(question), answers.texts("subject")
    gaps, numbers, names = [], [], None
    for row in rows:
        row_labels = [str(value) for value in read_list(answers.texts("labels")[row])]
        gap = read_list(answers.texts("rank_gaps")[row])
        names = row_labels if names is None else names
        if row_labels != names or len(gap) != len(row_labels) or None in gap:
            raise UserError(
                f"{answers.model}: the gaps of {subjects[row]!r} are not those of the labels "
                f"{', '.join(names)}: every subject needs sets with all labels"
            )
        label = labels.get(subjects[row])
        if label is not None and label not in row_labels:
            raise UserError(
                f"{answers.model}: {label!r} was planted on {subjects[row]!r}, and the sets "
                f"have no such label; they have {', '.join(row_labels)}"
            )
        gaps.append(gap)
        numbers.append(NOTHING if label is None else row_labels.index(label))
    if all(number == NOTHING for number in numbers):
        raise UserError(
            f"{answers.model}: labels were planted on {', '.join(labels)}, and none of these "
            "subjects was asked about"
        )
    skews = answers.values(question)
    chance = answers.values(question, "max_skew_chance")
    planted = [value for name, value in skews.items() if name in labels]
    others = [value for name, value in skews.items() if name not in labels]
    expected = [value for name, value in chance.items() if name in labels]
    max_skew = float(np.mean(planted))
    return Found(
        question=question,
        planted=len(planted),
        max_skew=max_skew,
        excess=max_skew - float(np.mean(expected)),
        max_skew_of_others=float(np.mean(others)) if others else math.nan,
        placement=find_planted(gaps, numbers),
    )


@dataclass(frozen=True)
class WorldRuns:
    """The finished runs of some experiments with answers, in the order of their folders."""

    runs: Sequence[WorldRun]

    @cached_property
    def nothing(self) -> list[WorldRun]:
        """Runs trained in worlds where nothing was planted."""
        return [run for run in self.runs if run.trained and run.world.settings.skew == 0]

    @cached_property
    def before(self) -> list[WorldRun]:
        """Runs without training."""
        return [run for run in self.runs if not run.trained]

    def planted(self, kind: str) -> dict[float, list[WorldRun]]:
        """Return {strength: trained runs} of a kind; at 0, the runs with the same seeds."""
        by_strength: dict[float, list[WorldRun]] = {}
        for run in self.runs:
            settings = run.world.settings
            if run.trained and settings.skewed == kind and settings.skew > 0:
                by_strength.setdefault(settings.skew, []).append(run)
        seeds = {run.seed for runs in by_strength.values() for run in runs}
        nothing = [run for run in self.nothing if run.seed in seeds]
        return {
            **({0.0: nothing} if nothing and by_strength else {}),
            **dict(sorted(by_strength.items())),
        }

    @property
    def kinds(self) -> list[str]:
        """The kinds of labels planted in any world."""
        return [kind for kind in SKEWED if self.planted(kind)]


def read_world_runs(root: Path, experiments: Sequence[str], sets: Mapping[str, str]) -> WorldRuns:
    """Read the models of experiments, each with its world; those without answers are left out.

    Args:
        experiments: the folders below ``root`` that contain the experiments' arms.
        sets: {name of the sets: the benchmark's name}.
    """
    runs = []
    for folder in (path for name in experiments for path in sorted(root.glob(f"{name}/*/seed=*"))):
        run = read_run(folder)
        if not run.done:
            say(f"left out, not finished: {folder}")
            continue
        items = {name: read_items(folder, benchmark) for name, benchmark in sets.items()}
        name = f"{run.arm}, seed {run.seed}"
        answers = {
            which: SkewItems(name, saved) for which, saved in items.items() if saved is not None
        }
        if not answers:
            continue
        trained = int(run.record.get("steps") or 0) > 0
        data_seed = int(run.record["data_seed"])
        # The world that the run was trained in.
        node = setting_node(read_config(folder), "data", folder).get("world")
        if not isinstance(node, dict):
            raise UserError(
                f"{folder}: the run has no world (data.world): nothing was planted there"
            )
        known = {name: value for name, value in node.items() if not name.startswith("_")}
        try:
            settings = WorldSettings(**known)
        except TypeError as error:
            raise UserError(f"{folder}: data.world is invalid: {error}") from error
        if settings.seed is None:
            settings = replace(settings, seed=data_seed)
        runs.append(WorldRun(folder, World(settings), run.seed, trained, answers))
    return WorldRuns(runs)


# The frequency of findings in worlds where nothing was planted.

NOTES = (
    "Nothing was planted in the worlds of these models. Placement: the exact test of the table "
    "above, for the labels that would have been planted; a world's three kinds of label are not "
    "independent. Shuffled: the pictures of each set have changed places, so labels mean nothing "
    "and every finding is a false alarm. Not shuffled: even a model that was trained without any "
    "skew has preferences, such as for one colour's contrast. MaxSkew rightly finds them, but they "
    "say nothing about the data. Only differences between subjects, or between before and after, "
    "do.",
)


ALARMS = ("alarms", "tests", "share, %", "95 % interval", "if nothing is there, %")


def _count_alarms(ps: Sequence[float], expected: float = LEVEL) -> dict[str, Entry]:
    """Return the cells of a test; dashes where nothing was tested.

    Args:
        expected: share of alarms to expect if nothing was planted; ``nan`` if unknown.
    """
    if not ps:
        return dict.fromkeys(ALARMS, Entry(DASH))
    count, tests = sum(p <= LEVEL for p in ps), len(ps)
    low, high = wilson_interval(count, tests)
    share = {"value": count / tests, "n": float(tests)}
    cells = (
        Entry(str(count)),
        Entry(str(tests)),
        Entry(percent(count / tests, 1), numbers=share),
        Entry(f"{percent(low, 1)} to {percent(high, 1)}"),
        Entry(DASH if np.isnan(expected) else percent(expected, 1)),
    )
    return dict(zip(ALARMS, cells, strict=True))


def _alarm_part(runs: Sequence[WorldRun], sets: Sequence[str], k: int | None) -> Part:
    """Return the table of alarms in worlds without a skew."""
    rows = []
    for name in sets:
        findings = [run.find(name, kind, k) for run in runs for kind in SKEWED]
        ps = [finding.placement.p for finding in findings if finding is not None]
        alarm = "a planted label is found (placement)"
        rows.append(((f"{name} sets", alarm), _count_alarms(ps)))
    # The alarms for a reader of the page who does not know what was planted.
    for name in (SHUFFLED, *sets):
        if not any(name in run.answers for run in runs):
            continue
        tasks = [
            (run.answers[name], question)
            for run in runs
            if name in run.answers
            for kind in SKEWED
            for question in [choose_question(run.answers[name], kind, k)]
            if question is not None
        ]
        subjects, levels = list[float](), list[float]()
        for items, question in tasks:
            subjects += items.values(question, "p_permutation").values()
            # The chance that p is at most 0.05 differs, as MaxSkew takes few values.
            chances = list(items.values(question, "p_level").values())
            levels.append(float(np.mean(chances)) if chances else LEVEL)
        expected = float(np.mean(levels)) if subjects else LEVEL
        cells = _count_alarms(subjects, expected)
        rows.append(((f"{name} sets", "a subject's MaxSkew, p without correction"), cells))
        for column, alarm in (
            ("p_holm", "some subject's MaxSkew after correction (Holm), a question"),
            ("p_gap_holm", "some subject's paired gaps after correction (Holm), a question"),
        ):
            least = [min(items.values(q, column).values(), default=1.0) for items, q in tasks]
            rows.append(((f"{name} sets", alarm), _count_alarms(least)))
    title = f"Ours: alarms in {len(runs)} worlds in which nothing was planted"
    columns = [Column(name, itemgetter(name)) for name in ALARMS]
    return make_part(title, ("Asked about", "Alarm"), columns, rows, NOTES)


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
        if worlds.nothing:
            parts.append(_alarm_part(worlds.nothing, sets, self.k))
        curves = [self._curve(worlds, name, kind) for name in sets for kind in worlds.kinds]
        # In how many worlds each source of sets finds a planted skew.
        shares = []
        for name in sets:
            ps = [
                finding.placement.p
                for kind in worlds.kinds
                for strength, _, finding in self._points(worlds, name, kind)
                if strength > 0
            ]
            right = sum(p <= LEVEL for p in ps)
            shares.append(f"{name} sets find it in {right} of {len(ps)} worlds")
        return self.document(
            *parts,
            curves=[curve for curve in curves if curve is not None],
            answer=f"Where a skew is planted, {' and '.join(shares)} (placement, p <= {LEVEL:g}).",
        )

    def _points(self, worlds: WorldRuns, sets: str, kind: str) -> list[Point]:
        return [
            (strength, run.seed, finding)
            for strength, runs in worlds.planted(kind).items()
            for run in runs
            for finding in [run.find(sets, kind, self.k)]
            if finding is not None
        ]

    def _recovery(self, worlds: WorldRuns, sets: Sequence[str]) -> Part:
        def cell(
            name: str, column: Column[Sequence[Found]], row: tuple[str, Sequence[WorldRun]]
        ) -> Entry:
            kind, runs = row
            every = [run.find(name, kind, self.k) for run in runs]
            findings = [finding for finding in every if finding is not None]
            return column.cell(findings) if findings else Entry(DASH)

        rows: list[tuple[tuple[str, ...], tuple[str, Sequence[WorldRun]]]] = []
        rules = []
        for kind in worlds.kinds:
            rules.append(len(rows))
            before = {"before training": worlds.before} if worlds.before else {}
            planted = {f"{strength:g}": runs for strength, runs in worlds.planted(kind).items()}
            rows += [
                ((kind, strength, str(len(runs))), (kind, runs))
                for strength, runs in {**before, **planted}.items()
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
            points = measure(self._points(worlds, name, kind))
            if not points:
                return Entry(DASH)
            strengths, seeds, values = zip(*points, strict=True)
            correlation = rank_correlation(strengths, values, seeds)
            if np.isnan(correlation.rho):
                return Entry(DASH)
            small = (
                ""
                if np.isnan(correlation.low)
                else f"[{correlation.low:.2f}, {correlation.high:.2f}]"
            )
            numbers = {"value": correlation.rho, "n": float(correlation.n)}
            return Entry(f"{correlation.rho:.2f}", small=small, numbers=numbers)

        columns = [
            Column(header, partial(cell, name, measure), f"{name} sets")
            for name in sets
            for header, measure in ORDERED.items()
        ]
        rows = [((kind,), kind) for kind in worlds.kinds]
        title = "Ours: is the planted order recovered?"
        return make_part(title, ("Labels",), columns, rows, [ORDER])

    def _curve(self, worlds: WorldRuns, sets: str, kind: str) -> Curve | None:
        series: dict[str, dict[float, dict[int, float]]] = {}
        band: Band | None = None
        k = 0
        for strength, runs in worlds.planted(kind).items():
            for run in runs:
                finding = run.find(sets, kind, self.k)
                if finding is None:
                    continue
                k = finding.question.k
                if band is None:
                    # The chance band of the mean over this many subjects.
                    band = chance_of_mean(
                        run.answers[sets].chance(finding.question)[: finding.planted]
                    )
                for which, value in (
                    ("planted subjects", finding.max_skew),
                    ("other subjects", finding.max_skew_of_others),
                ):
                    if not np.isnan(value):
                        points = series.setdefault(which, {}).setdefault(strength, {})
                        points[run.seed] = value
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


Point = tuple[float, int, Found]
"""Strength, seed, and the finding."""
Measured = Callable[[Sequence[Point]], list[tuple[float, int, float]]]
"""A function that gives (strength, seed, value) of a measure."""


def _less_twin(points: Sequence[Point]) -> list[tuple[float, int, float]]:
    twins = {seed: finding.excess for strength, seed, finding in points if strength == 0}
    return [
        (strength, seed, finding.excess - twins[seed])
        for strength, seed, finding in points
        if strength > 0 and seed in twins
    ]


ORDERED: Mapping[str, Measured] = {
    "MaxSkew": lambda points: [(x, seed, finding.excess) for x, seed, finding in points],
    "less its twin's": _less_twin,
    "gap": lambda points: [(x, seed, finding.placement.effect) for x, seed, finding in points],
}


def _other_subjects(findings: Sequence[Found]) -> Entry:
    others = [finding.max_skew_of_others for finding in findings]
    return Entry(DASH) if np.isnan(others).any() else _mean(others)


def _worlds_found(findings: Sequence[Found]) -> Entry:
    count = sum(finding.placement.p <= LEVEL for finding in findings)
    numbers = {"value": count / len(findings), "n": float(len(findings))}
    return Entry(f"{count}/{len(findings)}", numbers=numbers)


def _labels_named(findings: Sequence[Found]) -> Entry:
    hits, planted = (
        sum(getattr(finding.placement, n) for finding in findings) for n in ("hits", "planted")
    )
    numbers = {"value": hits / planted, "n": float(planted)}
    return Entry(f"{hits:g}/{planted}", numbers=numbers)


FOUND: tuple[Column[Sequence[Found]], ...] = (
    Column("MaxSkew", lambda findings: _mean([finding.max_skew for finding in findings])),
    Column(
        "beyond chance",
        lambda findings: _mean([finding.excess for finding in findings], signed=True),
    ),
    Column("other subjects", _other_subjects),
    Column(
        "gap",
        lambda findings: _mean([finding.placement.effect for finding in findings], signed=True),
    ),
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
