"""The significance table as a record: its rows, notes and families of comparisons."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cfaug.core.types import Better
from cfaug.report.arms import full_names
from cfaug.report.document import Part
from cfaug.report.item_tests import ItemTest
from cfaug.report.page import FRACTION, PERCENT, Measure
from cfaug.report.results import Cell, Result, cells_of
from cfaug.stats.significance import smallest_exact_p

# The significance table as a record: its rows and notes, and their meaning.
#
# It holds numbers and tests, and is not a second model of printed tables: ``cfaug.report.layout``
# makes a ``Document`` of it, which the writers of every other table print.

ALPHA = 0.05
"""The papers' level (COCO-Counterfactuals, caption of Table 3)."""
ONE_SEED = "one seed"
OTHER_SEEDS = "other seeds"
NO_SPREAD = "the same difference at every seed"
SPELLED_OUT = 5
"""Most comparisons without a test that are named one by one."""


@dataclass(frozen=True)
class SignificanceRow:
    """One arm on one benchmark and metric, against one baseline; the CSV's columns in order.

    ``mean`` and ``sd`` are over ``n`` seeds, in ``unit``. ``diff`` is the arm minus the baseline
    whatever the direction: where ``better`` is ``lower``, a gain is negative. Every p tests,
    one-sided, whether the arm is better: ``p_welch`` is the papers' test, ``p_paired`` pairs by
    seed, ``p_holm`` is ``p_paired`` corrected over the whole table. ``*_two_sided`` tests whether
    the two differ, which can also show that an arm is worse. ``p_min`` is the smallest p an exact
    test could give. ``nan`` means that a test was not made: for the baseline against itself, or for
    the ``reason`` given.
    """

    arm: str
    baseline: str
    benchmark: str
    metric: str
    n: int
    mean: float
    sd: float
    p_welch: float
    p_paired: float
    p_holm: float
    diff: float
    g: float
    d_z: float
    bca_low: float
    bca_high: float
    p_wilcoxon: float
    p_permutation: float
    p_min: float
    t_low: float
    t_high: float
    p_welch_two_sided: float
    p_paired_two_sided: float
    p_holm_two_sided: float
    reason: str
    unit: str = FRACTION
    better: Better = "higher"

    @property
    def cell(self) -> Cell:
        """The benchmark and metric."""
        return self.benchmark, self.metric

    @property
    def measure(self) -> Measure:
        """The unit and direction of its values."""
        return Measure(self.unit, self.better)

    @property
    def falls_behind(self) -> bool:
        """Whether the arm's mean is worse than the baseline's."""
        return self.measure.gain(self.diff) < 0

    @property
    def significant(self) -> bool:
        """Whether the arm is better than its baseline by the papers' test."""
        return self.p_welch <= ALPHA

    @property
    def worse(self) -> bool:
        """Whether the papers' test, two-sided, finds a loss."""
        return self.falls_behind and self.p_welch_two_sided <= ALPHA

    @property
    def kept(self) -> bool:
        """Whether the arm is better by the paired test after Holm's correction."""
        return self.p_holm <= ALPHA

    @property
    def lost(self) -> bool:
        """Whether the arm is worse by the two-sided paired test after Holm's correction."""
        return self.falls_behind and self.p_holm_two_sided <= ALPHA


@dataclass(frozen=True)
class ItemComparison:
    """One arm against one baseline over the items of a benchmark.

    Attributes:
        row: the comparison, which could not be tested over seeds.
        p_holm: one-sided p of the test, corrected over all tests over items of the table.
        p_holm_two_sided: two-sided p of the test, corrected in the same way.
    """

    row: SignificanceRow
    test: ItemTest
    p_holm: float = math.nan
    p_holm_two_sided: float = math.nan

    @property
    def measure(self) -> Measure:
        """The unit and direction of the metric."""
        return self.row.measure

    @property
    def kept(self) -> bool:
        """Whether the arm is better after Holm's correction."""
        return self.p_holm <= ALPHA

    @property
    def lost(self) -> bool:
        """Whether the arm is worse after Holm's correction, two-sided."""
        return self.test.gain < 0 and self.p_holm_two_sided <= ALPHA

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of arm minus baseline, whatever the metric's direction."""
        return self.test.interval(self.row.measure)


@dataclass(frozen=True)
class Table:
    """Rows in the order baseline, arm, benchmark, metric; arms begin with the untrained.

    Attributes:
        baselines: the arms that others are compared with, the main one first.
        labels: label of each arm, by its name; an arm without a label is printed by its name.
        one_test: cells with the same test data for all arms.
        over_items: tests over items of comparisons that cannot be tested over seeds.
        notes: sentences on comparisons without a test over items, and on the arms' training.
        cautions: sentences on what weakens the results: arms that cannot be compared, leaks.
        asides: sentences to the user of the command, which a published table leaves out.
        more: parts of the documents after the comparisons; not in the CSV.
        chance: expected value of a model that answers at random, where that is known.
        at_chance: arms not shown to be better than that, with the cell; two of them get no marks
            against each other.
    """

    rows: tuple[SignificanceRow, ...]
    baselines: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    one_test: frozenset[Cell] = frozenset()
    over_items: tuple[ItemComparison, ...] = ()
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    asides: tuple[str, ...] = ()
    more: tuple[Part, ...] = ()
    chance: Mapping[Cell, float] = field(default_factory=dict)
    at_chance: frozenset[tuple[str, Cell]] = frozenset()

    @cached_property
    def arms(self) -> tuple[str, ...]:
        """Every arm once, in order."""
        return tuple(dict.fromkeys(row.arm for row in self.rows))

    @cached_property
    def benchmarks(self) -> dict[str, list[str]]:
        """Every benchmark with its metrics, in order."""
        by_benchmark: dict[str, list[str]] = {}
        for row in self.rows:
            metrics = by_benchmark.setdefault(row.benchmark, [])
            if row.metric not in metrics:
                metrics.append(row.metric)
        return by_benchmark

    def label(self, arm: str) -> str:
        """Return an arm's label in the table."""
        return self.labels.get(arm, arm)

    def measure(self, cell: Cell) -> Measure:
        """Return the unit and direction of a benchmark and metric."""
        return self._measures[cell]

    @cached_property
    def plain(self) -> bool:
        """Whether every metric is a fraction in which higher is better."""
        return all(row.measure == PERCENT for row in self.rows)

    def get(self, arm: str, cell: Cell, baseline: str | None = None) -> SignificanceRow | None:
        """Return the row of an arm in a cell against a baseline (the first one by default)."""
        return self._by_key.get((arm, cell, baseline or self.baselines[0]))

    def both_at_chance(self, row: SignificanceRow) -> bool:
        """Return whether neither arm of a comparison is shown to be better than chance."""
        return {(row.arm, row.cell), (row.baseline, row.cell)} <= self.at_chance

    @property
    def one_seed(self) -> bool:
        """Whether no arm has a second seed, so that there is no spread."""
        return all(row.n < 2 for row in self.rows)

    def get_over_items(
        self, arm: str, cell: Cell, baseline: str | None = None
    ) -> ItemComparison | None:
        """Return the test over items of an arm against a baseline; ``None`` if seeds test it."""
        return self._over_items_by_key.get((arm, cell, baseline or self.baselines[0]))

    @cached_property
    def _by_key(self) -> dict[tuple[str, Cell, str], SignificanceRow]:
        return {(row.arm, row.cell, row.baseline): row for row in self.rows}

    @cached_property
    def _over_items_by_key(self) -> dict[tuple[str, Cell, str], ItemComparison]:
        return {(test.row.arm, test.row.cell, test.row.baseline): test for test in self.over_items}

    @cached_property
    def _measures(self) -> dict[Cell, Measure]:
        return {row.cell: row.measure for row in reversed(self.rows)}

    @property
    def comparisons(self) -> list[SignificanceRow]:
        """The rows of an arm against another."""
        return [row for row in self.rows if row.arm != row.baseline]

    def note(self) -> str:
        """Return the note under the table: n, the smallest p possible with n, and Holm's family."""
        paired = [row for row in self.comparisons if not math.isnan(row.p_holm)]
        if not paired:
            return "No comparison has a test paired by seed, so there is no p_paired and no p_holm."
        least = "; ".join(
            f"n = {n}: smallest attainable exact p = {smallest_exact_p(n):.2g}"
            for n in sorted({row.n for row in paired})
        )
        first = " or ".join(self.label(name) for name in self.baselines)
        return (
            f"Seeds per arm: {least} (sign flips, one-sided). All p one-sided unless named "
            f"two-sided: the arm is better than {first}. p_holm corrects p_paired for "
            f"{self.describe_corrected()}."
        )

    def describe_corrected(self) -> str:
        """Return the family of the tests paired by seed in words: "2 comparisons: 1 arm ..."."""
        paired = [row for row in self.comparisons if not math.isnan(row.p_holm)]
        bases = " and ".join(map(self.label, dict.fromkeys(row.baseline for row in paired)))
        arms, cells = len({row.arm for row in paired}), len({row.cell for row in paired})
        benchmarks = ", ".join(dict.fromkeys(row.benchmark for row in paired))
        return (
            f"{len(paired)} comparison{'s' * (len(paired) > 1)}: {arms} arm{'s' * (arms != 1)} "
            f"against {bases} on {cells} metric{'s' * (cells != 1)} of {benchmarks}"
        )

    def item_note(self) -> str:
        """Return the note on the tests over items and their family."""
        tests = " and ".join(dict.fromkeys(item.test.test for item in self.over_items))
        count = sum(not math.isnan(item.p_holm) for item in self.over_items)
        return (
            f"Comparisons of one seed are tested over items ({tests}; one-sided, Holm over "
            f"{count} comparison{'s' * (count > 1)}). This tests whether these models differ on "
            "items of this kind, not whether training again would give the same."
        )

    def at_chance_note(self, benchmark: str | None = None) -> list[str]:
        """Return at most one sentence: the arms that are not shown to be better than chance.

        Args:
            benchmark: the benchmark, or part of one, that it is about; ``None`` for all.
        """
        cells: dict[Cell, list[str]] = {}
        order = {arm: place for place, arm in enumerate(self.arms)}
        for arm, cell in sorted(self.at_chance, key=lambda pair: (pair[1], order[pair[0]])):
            if benchmark in (None, cell[0]):
                cells.setdefault(cell, []).append(self.label(arm))
        if not cells:
            return []
        listed = [f"{' '.join(cell)} ({', '.join(arms)})" for cell, arms in cells.items()]
        more = len(listed) - SPELLED_OUT
        return [
            f"Not shown to be better than chance (exact binomial test, p > {ALPHA}): "
            f"{'; '.join(listed[:SPELLED_OUT])}{f' and {more} more' * (more > 0)}. Two such "
            "arms get no mark against each other."
        ]

    def untested_notes(self, benchmark: str | None = None) -> list[str]:
        """Return sentences on comparisons that the seeds cannot test; a few are named.

        Args:
            benchmark: the benchmark, or part of one, that they are about; ``None`` for all.
        """
        rows = [row for row in self.comparisons if benchmark in (None, row.benchmark)]
        notes = []
        for reason, means in (
            (ONE_SEED, "one seed, so no test over seeds"),
            (OTHER_SEEDS, "other seeds, so nothing is paired"),
        ):
            pairs = dict.fromkeys((r.arm, r.baseline) for r in rows if r.reason == reason)
            listed = [f"{self.label(arm)} against {self.label(base)}" for arm, base in pairs]
            notes += [f"{', '.join(listed)}: {means}."] if listed else []
        # Metrics of a benchmark about which the same is to be said share a sentence.
        metrics: dict[tuple[str, str], list[str]] = {}
        for row in rows:
            if row.reason == NO_SPREAD:
                arms = f"{self.label(row.arm)} against {self.label(row.baseline)}"
                clause = describe_no_spread(row.diff, row.measure)
                metrics.setdefault((f"{arms} on {row.benchmark}", clause), []).append(row.metric)
        sentences = [f"{on} {', '.join(some)}: {why}." for (on, why), some in metrics.items()]
        notes += sentences[:SPELLED_OUT]
        if more := sum(map(len, list(metrics.values())[SPELLED_OUT:])):
            notes.append(
                f"{more} more comparison{'s' * (more > 1)} cannot be tested either, as every seed "
                "gives the same difference."
            )
        return notes

    def test_notes(self) -> list[str]:
        """Return the notes on the tests over seeds and over items."""
        untested = all(math.isnan(row.p_holm) for row in self.comparisons)
        notes = [] if self.over_items and untested else [self.note()]
        return [*notes, *([self.item_note()] if self.over_items else [])]

    def own_notes(self) -> list[str]:
        """Return the notes on the tests and on the arms' training."""
        measured = [*self.at_chance_note(), *self.untested_notes()]
        return [*self.test_notes(), *measured, *self.notes, *self.asides]

    def all_notes(self) -> list[str]:
        """Return all notes under the table except the legend of its marks."""
        names = full_names(self.labels, self.arms)
        cautions = [f"Caution: {line}" for line in self.cautions]
        return [*self.own_notes(), *cautions, *([names] if names else [])]


def describe_no_spread(difference: float, measure: Measure) -> str:
    """Return a clause on a difference that is the same for every seed.

    >>> describe_no_spread(0.1, Measure())
    'every seed gives the same difference of +10.0 points: these seeds cannot test it'
    """
    same = round(1000 * difference) == 0 if measure.is_fraction else difference == 0
    if same:
        return "every seed gives the same number in both arms"
    return (
        f"every seed gives the same difference of {measure.amount(difference)}: these seeds "
        "cannot test it"
    )


# Families of comparisons that are corrected together: those of a benchmark's primary metrics.
#
# A benchmark that reports many numbers per answer names its few primary ones; the others are shown
# and tested, but neither corrected nor counted, so that the primary ones lose no power.

Primary = Mapping[str, Collection[str]]
"""{benchmark: its primary metrics}; for a benchmark without any, all metrics are primary."""


def family_of(rows: Iterable[Result], primary: Primary | None) -> frozenset[Cell]:
    """Return the cells over which comparisons are corrected; all without ``primary``.

    A primary metric counts for a whole benchmark or, if it exists only for parts, for the largest
    parts, such as methods rather than methods by label.
    """
    results = list(rows)
    # The number of columns that define the largest part with a metric.
    widest: dict[tuple[str, str], int] = {}
    for row in results:
        key = (row.benchmark, row.metric)
        widest[key] = min(len(row.by), widest.get(key, len(row.by)))
    chosen = {
        benchmark: {metric for metric in metrics if (benchmark, metric) in widest}
        for benchmark, metrics in (primary or {}).items()
    }
    return frozenset(
        row.cell
        for row in results
        if not chosen.get(row.benchmark)
        or (
            row.metric in chosen[row.benchmark] and len(row.by) == widest[row.benchmark, row.metric]
        )
    )


def describe_family(
    rows: Iterable[Result], family: Collection[Cell], primary: Primary | None
) -> str:
    """Return a sentence on benchmarks that are corrected over some metrics only; or nothing."""
    if not primary or all(cell in family for cell in cells_of(rows)):
        return ""
    listed = [
        f"{benchmark}: {', '.join(metrics)}" for benchmark, metrics in primary.items() if metrics
    ]
    return (
        f"Corrected for their primary metrics only ({'; '.join(listed)}); other metrics and parts "
        "are shown without correction."
    )
