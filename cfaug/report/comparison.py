"""Choose which arms of an experiment are compared: the configuration node ``comparison``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean
from typing import Literal

from cfaug.core.errors import UserError
from cfaug.report.arms import ORIGINALS, PAIRS_IN_BATCH, SHUFFLED, SINGLES, Arm
from cfaug.report.page import Measure
from cfaug.report.results import Cell, Result, arms_of, cells_of, join_seeds


@dataclass(frozen=True)
class ComparisonSettings:
    """The arms that an experiment is about, by name; names without an arm are ignored.

    Args:
        baselines: arms that others are compared with, the main one first. If none of them exists,
            the arms that were trained on real data only.
        before: arms expected below the main baseline, from worst to best, such as the checkpoint
            before fine-tuning.
        tested: arms under test, the main one first. If none of them exists, the arm with the
            largest share of counterfactual examples, with captions unshuffled and all images.
        control_sources: counterfactual sources without pairs; arms trained on them are controls for
            the pairing. So are arms with ``data.counterfactual_members=singles`` or
            ``one``, or ``data.counterfactual_captions=shuffled``, and those whose
            ``data.negatives`` show only the originals.
        headlines: metric for the first line of a report, by benchmark; the first with results is
            used, or else the first metric of the command's first benchmark.
        in_distribution: part of a benchmark's name, and its replacement in the name of the
            in-distribution counterpart, which shows the cost of a gain.
        labels: label of each arm in tables, by its name or by the label that it would have.
        seeds: the seeds that are compared; ``None`` for those that all arms have.
        seeds_and_items: whether arms are also compared over seeds and items at once, if items were
            saved.
    """

    baselines: Sequence[str] = ()
    before: Sequence[str] = ()
    tested: Sequence[str] = ()
    control_sources: Sequence[str] = ()
    headlines: Mapping[str, str] = field(default_factory=dict)
    in_distribution: Sequence[str] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    seeds: Sequence[int] | None = None
    seeds_and_items: bool = True

    def __post_init__(self) -> None:
        if self.in_distribution is not None and len(self.in_distribution) != 2:
            raise UserError(
                f"comparison.in_distribution={list(self.in_distribution)} is invalid: give two "
                "texts, such as [_ood_, _id_], or null"
            )

    def choose_baselines(
        self,
        arms: Mapping[str, Arm],
        requested: str | Sequence[str] | None,
        labels: Mapping[str, str],
    ) -> list[str]:
        """Return the arms that others are compared with, the main one first.

        Args:
            requested: names or labels of arms, as given by the user; ``None`` for the default.
        """
        if requested is None:
            usual = [arm for arm in self.baselines if arm in arms]
            real = [arm.name for arm in arms.values() if arm.trained and arm.cf_ratio == 0]
            return usual or sorted(real)
        by_label = {label: arm for arm, label in labels.items() if label not in arms}
        given = [requested] if isinstance(requested, str) else requested
        names = list(dict.fromkeys(by_label.get(name, name) for name in given))  # only once
        missing = [name for name in names if name not in arms]
        if missing:
            there = ", ".join(min(arm, labels.get(arm, arm), key=len) for arm in arms)
            raise UserError(f"no arm is called {missing[0]!r}; there are {there}")
        return names

    def headline(
        self,
        rows: Sequence[Result],
        arms: Mapping[str, Arm],
        baseline: str,
        labels: Mapping[str, str],
        benchmarks: Sequence[str] = (),
    ) -> Headline:
        """Return the topic of a report of these results.

        Args:
            baseline: the main arm to beat; a number that it lacks is no topic.
            benchmarks: names of the command's benchmarks, in order; results may be of others too.
        """
        comparable = [row for row in rows if row.arm == baseline] or rows
        cells = cells_of(comparable)
        first = (row.cell for name in benchmarks for row in comparable if row.benchmark == name)
        benchmark, metric = next(
            (cell for cell in self.headlines.items() if cell in cells), next(first, cells[0])
        )
        ratios = {
            arm.name: arm.cf_ratio or 0.0
            for arm in arms.values()
            if arm.trained and arm.name != baseline
        }
        tested = [arm for arm in self.tested if arm in ratios]
        if not tested:
            candidates = [arm for arm in ratios if arms[arm].control not in (SHUFFLED, ORIGINALS)]
            tested = [max(candidates or ratios, key=lambda arm: (ratios[arm], arm))]
        order = [arm for arm in dict.fromkeys((*self.before, baseline)) if arm in arms_of(rows)]
        paired: list[str] = []
        for name in tested:
            unpaired = arms[name]
            paired += [name] + [
                arm.name
                for arm in arms.values()
                if arm.pairs_in_batch > unpaired.pairs_in_batch
                and arm.cf_ratio == unpaired.cf_ratio
                and arm.differs_only_in(PAIRS_IN_BATCH, unpaired)
            ]
        controls = [
            arm.name
            for arm in arms.values()
            if arm.name not in paired
            and (
                arm.source in self.control_sources or arm.control in (SINGLES, SHUFFLED, ORIGINALS)
            )
        ]
        counterpart = None
        if self.in_distribution is not None and self.in_distribution[0] in benchmark:
            shifted, unshifted = self.in_distribution
            counterpart = benchmark.replace(shifted, unshifted)
        return Headline(
            benchmark=benchmark,
            metric=metric,
            order=tuple(arm for arm in order if arm not in tested),
            tested=tuple(tested),
            in_distribution=counterpart,
            paired=tuple(dict.fromkeys(paired)),
            controls=tuple(controls),
            labels=labels,
            share=arms[tested[0]].cf_ratio or None,
            expected=len(order) > 1 or any(arm in arms for arm in self.tested),
        )


# Which arms may be compared: those evaluated on the same test data, with different weights.
#
# A number on 2 images is not lower than one on 22 because of the training, and a difference between
# arms with the same weights is not an effect of training. Such pairs get no test, no mark and no
# verdict.

Answers = Mapping[int, Result]
"""{seed: row} of one arm on one benchmark and metric."""
OTHER_DATA = "other test data"
BOTH_AT_CHANCE = "both at chance"
SAME_WEIGHTS = "the same weights"
ONE_TEST = (
    "Evaluate all arms on the same data: set benchmark.data=FOLDER; for your own data, "
    "data.holdout=0.1 keeps one held-out set for every arm; on the embedded world, compare arms of "
    "one data.world."
)


def answers(rows: Iterable[Result]) -> dict[tuple[str, Cell], dict[int, Result]]:
    """Return the rows by arm, by benchmark and metric, and by seed."""
    grouped: dict[tuple[str, Cell], dict[int, Result]] = {}
    for row in rows:
        grouped.setdefault((row.arm, row.cell), {})[row.seed] = row
    return grouped


def measures(rows: Iterable[Result]) -> dict[Cell, Measure]:
    """Return the unit and the direction of every benchmark and metric."""
    first: dict[Cell, Result] = {}
    for row in rows:
        other = first.setdefault(row.cell, row)
        if (row.unit, row.better) != (other.unit, other.better):
            raise UserError(
                f"{row.cell[0]} {row.metric}: {other.run} says {other.better} is better, in "
                f"{other.unit}; {row.run} says {row.better} is better, in {row.unit}: remove the "
                f"rows of {row.benchmark} from results.jsonl of one of them, and evaluate it again"
            )
    return {cell: Measure(row.unit, row.better) for cell, row in first.items()}


def values(by_seed: Answers) -> dict[int, float]:
    """Return {seed: value}."""
    return {seed: row.value for seed, row in by_seed.items()}


def obstacle(ours: Answers, theirs: Answers) -> str:
    """Return why two arms cannot be compared on a benchmark and metric; empty if they can.

    A seed's test data must be the same in both arms; arms with different seeds must share the same
    set of tests. Rows without hashes of data or weights count as comparable.
    """
    shared = ours.keys() & theirs.keys()
    if any(_differ(ours[seed].data, theirs[seed].data) for seed in shared):
        return OTHER_DATA
    if ours.keys() != theirs.keys() and _differ(_tests(ours), _tests(theirs)):
        return OTHER_DATA
    same = same_weights(ours, theirs)
    return SAME_WEIGHTS if same and same == shared else ""


def chances(rows: Iterable[Result]) -> dict[Cell, float]:
    """Return what a model that answers at random is expected to reach, where that is known."""
    by_cell: dict[Cell, list[float]] = {}
    for row in rows:
        if row.chance is not None:
            by_cell.setdefault(row.cell, []).append(row.chance)
    return {cell: fmean(known) for cell, known in by_cell.items()}


def at_chance(by_seed: Answers) -> bool:
    """Return whether an arm is not shown to be better than chance on a benchmark and metric.

    An exact binomial test, one-sided, of the mean over seeds as if it were one model's: seeds
    answer the same items. ``False`` where chance is not known.
    """
    return _p_of_chance(by_seed.values(), "greater") > 0.05


BELOW = 0.001
"""Level, two-sided, at which a result is said to be below chance: rare without a mistake."""


def describe_below_chance(rows: Iterable[Result]) -> list[str]:
    """Return a sentence for each benchmark with results below chance, naming the metrics.

    By an exact binomial test, two-sided, of each arm's mean over seeds as in ``at_chance``. A model
    that is wrong more often than one that guesses has usually been shown the wrong data.
    """
    below: dict[str, dict[str, None]] = {}
    for by_seed in answers(rows).values():
        some = list(by_seed.values())
        lower = fmean(row.value for row in some) < fmean(row.chance or 0.0 for row in some)
        if lower and _p_of_chance(some, "two-sided") < BELOW:  # a test imports scipy.stats
            below.setdefault(some[0].benchmark, {})[some[0].metric] = None
    return [
        f"Below chance (exact binomial test, p < {BELOW}) on {benchmark}: {', '.join(metrics)}. "
        "Check the columns and paths: are captions or images swapped?"
        for benchmark, metrics in below.items()
    ]


def shows_no_more_than_chance(share: float, items: int, chance: float) -> bool:
    """Return whether a share of right answers is not shown to be better than chance.

    By the test of ``at_chance``.
    """
    return _exact_p(share, items, chance, "greater") > 0.05


def _p_of_chance(some: Iterable[Result], alternative: Literal["greater", "two-sided"]) -> float:
    """Return the exact p of a mean over seeds; ``nan`` where chance is not known."""
    rows = list(some)
    known = [row.chance for row in rows if row.chance is not None]
    if not rows or len(known) < len(rows):
        return math.nan
    share, items = fmean(row.value for row in rows), min(row.n for row in rows)
    return _exact_p(share, items, fmean(known), alternative)


def _exact_p(
    share: float, items: int, chance: float, alternative: Literal["greater", "two-sided"]
) -> float:
    from scipy.stats import binomtest

    within = [min(max(value, 0.0), 1.0) for value in (share, chance)]
    tested = binomtest(round(items * within[0]), items, within[1], alternative=alternative)
    return float(tested.pvalue)


def same_weights(ours: Answers, theirs: Answers) -> set[int]:
    """Return the seeds at which both arms have the same weights."""
    shared = ours.keys() & theirs.keys()
    return {s for s in shared if ours[s].weights and ours[s].weights == theirs[s].weights}


def _differ(first: str | frozenset[str], second: str | frozenset[str]) -> bool:
    return bool(first and second and first != second)


def _tests(by_seed: Answers) -> frozenset[str]:
    """Return the hashes of an arm's test data; empty if a row has none."""
    hashes = {row.data for row in by_seed.values()}
    return frozenset() if "" in hashes else frozenset(hashes)


def one_test(arms: Sequence[Answers]) -> bool:
    """Return whether all arms have the same test data, so that one of them can be the best."""
    return not any(
        obstacle(ours, theirs) == OTHER_DATA for i, ours in enumerate(arms) for theirs in arms[:i]
    )


def different_tests(rows: Iterable[Result], labels: Mapping[str, str] | None = None) -> list[str]:
    """Return a sentence for each benchmark whose test data differ between arms.

    Examples are tests of two worlds, or rows that each arm held out of its own training data.
    """
    names = labels or {}
    sentences: dict[str, str] = {}
    by_cell: dict[Cell, dict[str, Answers]] = {}
    for (arm, cell), by_seed in answers(rows).items():
        by_cell.setdefault(cell, {})[arm] = by_seed
    for (benchmark, _), arms in by_cell.items():
        first = next((arm for arm, by_seed in arms.items() if _tests(by_seed)), None)
        if first is None or benchmark in sentences:
            continue
        others = [a for a, by_seed in arms.items() if obstacle(arms[first], by_seed) == OTHER_DATA]
        if others:
            ours, theirs = arms[first], arms[others[0]]
            where = f"{len(_tests(ours))} and {len(_tests(theirs))} tests over their seeds"
            for seed in sorted(ours.keys() & theirs.keys()):
                if _differ(ours[seed].data, theirs[seed].data):
                    where = f"seed {seed}: {ours[seed].n:,} and {theirs[seed].n:,} queries"
                    break
            listed = ", ".join(names.get(arm, arm) for arm in others)
            sentences[benchmark] = (
                f"{benchmark} is not one test for all arms: {names.get(first, first)} and {listed} "
                f"have different test data ({where}). Their numbers are shown but not compared. "
                f"{ONE_TEST}"
            )
    return list(sentences.values())


def equal_weights(
    rows: Sequence[Result], baselines: Iterable[str], labels: Mapping[str, str] | None = None
) -> list[str]:
    """Return a sentence for each arm that has weights in common with a baseline.

    Other arms that have the same weights at every seed are named as well: settings that differ in
    name alone, such as two shares that are rounded to the same examples, are one arm twice.
    """
    names, grouped, sentences = labels or {}, answers(rows), {}
    baselines = list(baselines)
    for base in baselines:
        for (arm, cell), ours in grouped.items():
            theirs = grouped.get((base, cell), {})
            same = same_weights(ours, theirs)
            if arm == base or not same or (base, arm) in sentences or (arm, base) in sentences:
                continue
            shared = ours.keys() & theirs.keys()
            sentences[arm, base] = same_weights_say(
                names.get(arm, arm), names.get(base, base), same, every=same == shared
            )
    others: dict[Cell, dict[str, Answers]] = {}
    for (arm, cell), by_seed in grouped.items():
        if arm not in baselines:
            others.setdefault(cell, {})[arm] = by_seed
    for arms in others.values():
        for (other, first), (arm, second) in combinations(arms.items(), 2):
            shared = first.keys() & second.keys()
            if shared and same_weights(first, second) == shared:
                both = f"{names.get(other, other)} and {names.get(arm, arm)}"
                sentence = f"{both} have the same weights at every seed: they are one arm twice."
                sentences.setdefault((other, arm), sentence)
    return list(sentences.values())


def same_weights_say(arm: str, other: str, same: Iterable[int], *, every: bool) -> str:
    """Return a sentence on two arms with the same weights at some or all of their common seeds.

    Args:
        every: whether these are all common seeds.
    """
    both = f"{arm} and {other} have the same weights"
    if every:
        return f"{both} at every seed: no comparison."
    return f"{both} at seed {join_seeds(same)}: those pairs are no evidence of a difference."


def unknown_tests(rows: Sequence[Result], labels: Mapping[str, str] | None = None) -> list[str]:
    """Return at most one sentence, naming arms whose results do not record their test data."""
    names = labels or {}
    silent = [row for row in rows if not row.data]
    if not silent or len(arms_of(rows)) < 2:
        return []
    listed = ", ".join(names.get(arm, arm) for arm in arms_of(silent))
    benchmarks = ", ".join(dict.fromkeys(row.benchmark for row in silent))
    return [
        f"The test data of {listed} are not recorded ({benchmarks}): they are compared as if they "
        "were the same; evaluate again to find out."
    ]


# The topic of a report: one number, the arms under test, and the expected order.


@dataclass(frozen=True)
class Headline:
    """The topic of a report: one number, the arms under test, and those expected below them.

    Attributes:
        order: the other arms, from worst to best expected.
        tested: the arms under test, the main one first; each was expected above all of ``order``.
        in_distribution: the benchmark that shows the cost of a gain; ``None`` if the verdict is not
            about a distribution shift.
        paired: the arms under test, and those that have the same pairs in one batch.
        controls: arms with the same number of examples but without the pairing.
        labels: longer names of arms, for people.
        share: share of counterfactual examples of the main arm under test; ``None`` if unknown.
        expected: whether the settings name the order, rather than it being the only one.
    """

    benchmark: str
    metric: str
    order: tuple[str, ...]
    tested: tuple[str, ...]
    in_distribution: str | None = None
    paired: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    share: float | None = None
    expected: bool = True

    @property
    def cell(self) -> Cell:
        """The benchmark and metric of the verdict."""
        return self.benchmark, self.metric

    def cost_cell(self, rows: Sequence[Result]) -> Cell | None:
        """Return the in-distribution counterpart of the headline cell, if there are results."""
        if self.in_distribution is None:
            return None
        cell = (self.in_distribution, self.metric)
        return cell if cell in cells_of(rows) else None

    def label(self, arm: str) -> str:
        """Return the name of an arm for people."""
        return self.labels.get(arm, arm)

    @property
    def expectation(self) -> str:
        """The expected order in words, from worst to best."""
        best = join_words([self.label(arm) for arm in self.tested])
        return " < ".join([*map(self.label, self.order), best])


def join_words(parts: Sequence[str]) -> str:
    """Join words into a list for a sentence: ``a, b and c``."""
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
