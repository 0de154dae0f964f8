"""Is one arm better than another over seeds and items at once? For arms of several seeds.

The tests over seeds in ``significance_table`` ask whether retraining would give a better model on
the same items. These ask whether it would do so on other items of the same kind as well, and which
of the two sources of variance is larger.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.outputs import remove_output
from cfaug.core.rng import generator
from cfaug.report.document import Column, Part, csv_text, make_part, text_column
from cfaug.report.item_tests import Values, read_values
from cfaug.report.items import Items
from cfaug.report.page import DASH, p_text, percent, span_text, write_page
from cfaug.report.results import Cell, Result
from cfaug.report.significance_rows import NO_SPREAD, OTHER_SEEDS, SignificanceRow
from cfaug.report.significance_table import RunItems, shorten
from cfaug.stats.cluster_tests import standard_error
from cfaug.stats.item_tests import describe_resolution
from cfaug.stats.seeds_and_items import (
    FEW_SEEDS,
    ArmDifference,
    Decomposition,
    OneTest,
    OwnTests,
    decompose,
    read_resampled,
    resample_rows,
)
from cfaug.stats.significance import holm

TESTABLE = ("", OTHER_SEEDS, NO_SPREAD)
"""Reasons in a row of the table over seeds that still allow a comparison over seeds and items."""


@dataclass(frozen=True)
class JointComparison:
    """One arm against one baseline over seeds and items at once.

    Attributes:
        difference: bootstrap over seeds and items; ``p_greater`` and ``p_less`` are of arm minus
            baseline.
        parts: contributions of seeds and items to the squared standard error.
        item_error: standard error, over clusters of items, of the difference averaged over seeds,
            for these seeds.
        own_tests: whether every seed has its own items.
        p_holm: ``p``, corrected over all comparisons made together.
    """

    row: SignificanceRow
    difference: ArmDifference
    parts: Decomposition
    item_error: float
    own_tests: bool
    p_holm: float = math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Student's 95 % interval of arm minus baseline over seeds and items."""
        return self.parts.interval(self.difference.mean)

    @property
    def p(self) -> float:
        """Student's one-sided p over seeds and items: the arm is better."""
        return self.parts.p_greater(self.row.measure.gain(self.difference.mean))

    @property
    def p_two_sided(self) -> float:
        """Student's two-sided p over seeds and items: the two differ."""
        return min(1.0, 2 * min(self.p, 1 - self.p)) if self.parts.total else self.p

    @property
    def p_bootstrap(self) -> float:
        """The bootstrap's one-sided p: the arm is better."""
        higher = self.row.measure.gain(1.0) > 0
        return self.difference.p_greater if higher else self.difference.p_less

    def describe(self, labels: Mapping[str, str]) -> str:
        """Return a sentence on what a difference of this size means on this set and seeds."""
        measure, items = self.row.measure, self.difference.items
        unit = "points" if measure.is_fraction else measure.unit
        about = describe_resolution(
            self.item_error, items, self.difference.clusters, factor=measure.factor, unit=unit
        )
        arm, baseline = (labels.get(name, name) for name in (self.row.arm, self.row.baseline))
        return f"{arm} against {baseline} on {' '.join(self.row.cell)}, {about}"


def compare_over_seeds_and_items(
    rows: Sequence[SignificanceRow],
    results: Iterable[Result],
    items: RunItems,
    labels: Mapping[str, str] | None = None,
    family: Collection[Cell] | None = None,
) -> tuple[list[JointComparison], list[str]]:
    """Compare arms of several seeds over seeds and items at once; Holm over the family.

    Args:
        rows: comparisons over seeds; those without a test over seeds are left out, as are metrics
            that are not means over items.

    Returns:
        The comparisons, and sentences on what could not be compared.
    """
    about = {result.cell: result for result in results}
    by_benchmark: dict[str, list[SignificanceRow]] = {}
    for row in rows:
        if row.arm != row.baseline and row.reason in TESTABLE:
            by_benchmark.setdefault(about[row.cell].benchmark, []).append(row)
    comparisons: list[JointComparison] = []
    refused: dict[str, list[str]] = {}
    for benchmark, group in by_benchmark.items():
        answers = _Answers(group, about, items)
        for row in group:
            try:
                comparisons += answers.compare(row)
            except UserError as error:
                names = ((labels or {}).get(arm, arm) for arm in (row.arm, row.baseline))
                refused.setdefault(benchmark, []).append(f"{' against '.join(names)}: {error}.")
    p = [
        comparison.p if family is None or comparison.row.cell in family else math.nan
        for comparison in comparisons
    ]
    corrected = holm(p).tolist() if p else []
    order = {id(row): position for position, row in enumerate(rows)}
    made = [
        replace(comparison, p_holm=p) for comparison, p in zip(comparisons, corrected, strict=True)
    ]
    return sorted(made, key=lambda comparison: order[id(comparison.row)]), shorten(refused)


Answer = tuple[str, Cell, int]
"""An arm, a cell (a benchmark or part with a metric), and a seed."""


@dataclass(frozen=True)
class _SeedAnswers:
    """One model's answers in a cell: the hash of the test, and the items that count."""

    data: str
    values: Values


Side = Mapping[int, _SeedAnswers]
"""The answers of an arm in a cell, by seed."""


class _Answers:
    """Arms' answers to one benchmark; each file is read once, and each test resampled once."""

    def __init__(
        self, rows: Sequence[SignificanceRow], about: Mapping[Cell, Result], items: RunItems
    ) -> None:
        self._sides: dict[tuple[str, Cell], Side | UserError] = {}
        arms = dict.fromkeys(arm for row in rows for arm in (row.arm, row.baseline))
        cells = dict.fromkeys(row.cell for row in rows)
        benchmark = about[rows[0].cell].benchmark
        for arm in arms:
            try:
                by_seed = items.by_seed(arm, benchmark)
            except UserError as error:
                self._sides |= {(arm, cell): error for cell in cells}
                continue
            self._sides |= {(arm, cell): self._read(by_seed, about[cell]) for cell in cells}
        # The means of every model's resampled clusters; equal items have equal draws.
        alike: dict[tuple[str, bytes], list[tuple[Answer, Values]]] = {}
        for (arm, cell), side in self._sides.items():
            for seed, answers in side.items() if isinstance(side, Mapping) else ():
                names = answers.values.names
                key = (answers.data, b"\0".join(name.encode() for name in names.tolist()))
                alike.setdefault(key, []).append(((arm, cell, seed), answers.values))
        self._means: dict[Answer, np.ndarray] = {}
        for (data, own_names), models in alike.items():
            digest = hashlib.blake2b(own_names, digest_size=8).hexdigest()
            rng = generator(0, "clusters", benchmark, data, digest)
            stacked = np.stack([values.values for _, values in models])
            resampled = resample_rows(stacked, models[0][1].clusters, rng)
            self._means |= dict(zip([answer for answer, _ in models], resampled, strict=True))

    @staticmethod
    def _read(by_seed: Mapping[int, Items], about: Result) -> Side | UserError:
        """Return the items that count; empty without the metric; or the reason if unreadable."""
        if not all(about.metric in items.columns for items in by_seed.values()):
            return {}
        side = {}
        for seed, items in sorted(by_seed.items()):
            try:
                every = read_values(items, about.metric, about.by)
            except UserError as error:
                return error
            counts = ~np.isnan(every.values)
            if not counts.any():
                return UserError("no item counts")
            kept = Values(every.names[counts], every.clusters[counts], every.values[counts])
            side[seed] = _SeedAnswers(items.data, kept)
        return side

    def compare(self, row: SignificanceRow) -> list[JointComparison]:
        """Return the comparison in a list; empty without items, or if the metric is not a mean."""
        sides: list[Side] = []
        for arm in (row.arm, row.baseline):
            side = self._sides[arm, row.cell]
            if isinstance(side, UserError):
                raise side
            sides.append(side)
        ours, theirs = sides
        if not ours or not theirs:
            return []
        means = [
            np.stack([self._means[arm, row.cell, seed] for seed in side])
            for arm, side in ((row.arm, ours), (row.baseline, theirs))
        ]
        compared: OneTest | OwnTests
        same_seeds = ours.keys() == theirs.keys()
        if len({answers.data for side in sides for answers in side.values()}) == 1:
            first, *others = (answers.values for side in sides for answers in side.values())
            for other in others:
                _check_names(row.cell, first, other)
            arm_values, baseline_values = (
                np.stack([answers.values.values for answers in side.values()]) for side in sides
            )
            compared = OneTest(arm_values, baseline_values, first.clusters, same_seeds)
            drawn = np.concatenate(means)
        else:
            tests = {answers.data for answers in ours.values()}
            same = same_seeds and all(ours[seed].data == theirs[seed].data for seed in ours)
            if not same or len(tests) < len(ours):
                raise UserError(
                    f"{' '.join(row.cell)}: seeds share some test data and not others, so seeds "
                    "and items cannot be told apart"
                )
            pairs = [(ours[seed].values, theirs[seed].values) for seed in ours]
            for left, right in pairs:
                _check_names(row.cell, left, right)
            differences = [left.values - right.values for left, right in pairs]
            compared = OwnTests(differences, [left.clusters for left, _ in pairs])
            drawn = means[0] - means[1]
        try:
            parts = decompose(compared)
        except ValueError:  # a single cluster
            return []
        rng = generator(0, "seeds", *row.cell, row.arm, row.baseline)
        difference = read_resampled(compared, drawn, rng)
        own_tests = isinstance(compared, OwnTests)
        if isinstance(compared, OwnTests):
            of_seeds = zip(compared.differences, compared.clusters, strict=True)
            errors = [standard_error(values, clusters) for values, clusters in of_seeds]
            item_error = math.sqrt(sum(error**2 for error in errors)) / len(errors)
        else:
            gains = compared.arm.mean(axis=0) - compared.baseline.mean(axis=0)
            item_error = standard_error(gains, compared.clusters)
        return [JointComparison(row, difference, parts, item_error, own_tests)]


def _check_names(cell: Cell, first: Values, other: Values) -> None:
    if not np.array_equal(first.names, other.names):
        raise UserError(
            f"{' '.join(cell)}: different items, so there is nothing to pair; evaluate both "
            "on the same data"
        )


# Comparisons over seeds and items at once (``cfaug.report.joint_tests``) as a table and as CSV.

TITLE = "Comparisons over seeds and items"
CSV = "seeds_and_items.csv"
SHOWN = 500
"""Most comparisons in a table; the CSV has all."""


def seeds_and_items_parts(
    comparisons: Sequence[JointComparison],
    labels: Mapping[str, str] | None = None,
    refused: Sequence[str] = (),
) -> tuple[Part, ...]:
    """Return the comparisons as a table, one row each; empty without any."""
    if not comparisons:
        return ()
    names = labels or {}
    rows = [
        (
            (
                *(names.get(arm, arm) for arm in (comparison.row.arm, comparison.row.baseline)),
                *comparison.row.cell,
            ),
            comparison,
        )
        for comparison in comparisons[:SHOWN]
    ]
    notes = _explain(comparisons)
    # The comparison of each benchmark's first metric with the smallest standard error over items.
    least: dict[str, JointComparison] = {}
    for comparison in comparisons:
        if not comparison.item_error > 0:
            continue
        best = least.setdefault(comparison.row.benchmark, comparison)
        if comparison.row.metric == best.row.metric and comparison.item_error < best.item_error:
            least[comparison.row.benchmark] = comparison
    if least:
        listed = "; ".join(comparison.describe(names) for comparison in least.values())
        notes.append(
            f"For these seeds, the most precise differences paired item by item: {listed}."
        )
    if len(comparisons) > SHOWN:
        notes.append(f"{len(comparisons) - SHOWN:,} more comparisons are in {CSV}.")
    head = ("arm", "baseline", "benchmark", "metric")
    return (make_part(TITLE, head, COLUMNS, rows, (*notes, *refused)),)


def _share(comparison: JointComparison, name: str) -> str:
    value = comparison.parts.share(getattr(comparison.parts, name))
    return percent(value, 0) + "*" * (name in comparison.parts.truncated)


SHARES = "share of the squared standard error, %"
COLUMNS: tuple[Column[JointComparison], ...] = (
    text_column(
        "difference", lambda comparison: comparison.row.measure.text(comparison.difference.mean)
    ),
    text_column(
        "95 % interval",
        lambda comparison: span_text(comparison.row.measure.text, *comparison.interval),
    ),
    text_column("p", lambda comparison: p_text(comparison.p)),
    text_column("p_holm", lambda comparison: p_text(comparison.p_holm)),
    text_column(
        "bootstrap 95 %",
        lambda comparison: span_text(
            comparison.row.measure.text, comparison.difference.low, comparison.difference.high
        ),
    ),
    text_column("p bootstrap", lambda comparison: p_text(comparison.p_bootstrap)),
    text_column(
        "standard error",
        lambda comparison: (
            comparison.row.measure.text(comparison.parts.standard_error)
            if comparison.parts.total
            else DASH
        ),
    ),
    text_column("seeds", lambda comparison: _share(comparison, "seeds"), SHARES),
    text_column("items", lambda comparison: _share(comparison, "items"), SHARES),
    text_column("interaction", lambda comparison: _share(comparison, "rest"), SHARES),
)


def _explain(comparisons: Sequence[JointComparison]) -> list[str]:
    count = sum(not math.isnan(comparison.p_holm) for comparison in comparisons)
    sentences = [
        "Would training again, tested on other items of this kind, give the same result? Interval "
        "and p (one-sided: the arm is better; Holm over "
        f"{count} comparison{'s' * (count > 1)}) are Student's, with the squared standard error "
        "that seeds and clusters of items add up to. The bootstrap draws seeds and clusters; its "
        "intervals are too narrow where a few seeds cause most of the variance. Metrics that are "
        "not means over items are left out."
    ]
    if any(comparison.parts.truncated for comparison in comparisons):
        sentences.append("*: estimated below 0 and set to 0.")
    if any(comparison.own_tests for comparison in comparisons):
        sentences.append(
            "Where every seed has items of its own, the interaction (–) is part of the items, and "
            "the bootstrap counts items twice."
        )
    counts = {
        min(comparison.difference.seeds, comparison.difference.baseline_seeds)
        for comparison in comparisons
    }
    sentences += [
        f"Caution: where an arm has only {count} seeds, p is too small and the interval too short. "
        f"In simulations without a difference, p was .05 or less in up to {percent(p, 0)} %, and "
        f"the 95 % interval left out 0 in up to {percent(missed, 0)} %. Use four seeds or more."
        for count, (p, missed) in sorted(FEW_SEEDS.items())
        if count in counts
    ]
    return sentences


CSV_COLUMNS = (
    "arm", "baseline", "label", "benchmark", "metric", "unit", "better", "seeds", "baseline_seeds",
    "items", "clusters", "difference", "low", "high", "p", "p_holm", "bootstrap_low",
    "bootstrap_high", "p_bootstrap", "p_two_sided", "standard_error", "degrees", "share_seeds",
    "share_items", "share_rest", "truncated", "own_tests", "item_error",
)  # fmt: skip


def seeds_and_items_csv(
    comparisons: Sequence[JointComparison], labels: Mapping[str, str] | None = None
) -> str:
    """Return a row per comparison, numbers in full precision, missing ones empty."""
    names, rows = labels or {}, []
    for comparison in comparisons:
        row, diff, parts = comparison.row, comparison.difference, comparison.parts
        rows.append([
            row.arm, row.baseline, names.get(row.arm, row.arm), *row.cell, row.unit, row.better,
            diff.seeds, diff.baseline_seeds, diff.items, diff.clusters, diff.mean,
            *comparison.interval, comparison.p, comparison.p_holm, diff.low, diff.high,
            comparison.p_bootstrap, comparison.p_two_sided, parts.standard_error, parts.degrees,
            *(parts.share(part) for part in (parts.seeds, parts.items, parts.rest)),
            " ".join(parts.truncated), comparison.own_tests, comparison.item_error,
        ])  # fmt: skip
    return csv_text(CSV_COLUMNS, rows)


def write_seeds_and_items(
    comparisons: Sequence[JointComparison], labels: Mapping[str, str], folder: Path
) -> list[Path]:
    """Write ``seeds_and_items.csv`` into the folder of an experiment, if there are comparisons."""
    file = folder / CSV
    if not comparisons:
        remove_output(file, CSV)  # from an earlier call, for other benchmarks
        return []
    return [write_page(file, seeds_and_items_csv(comparisons, labels))]
