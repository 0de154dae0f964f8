"""Compare models item by item, from files that say which items each of them got right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.report.document import Column, Document, Entry, make_part, text_column
from cfaug.report.item_files import ItemAnswers, shown_names
from cfaug.report.page import DASH, PERCENT, Measure, p_text
from cfaug.report.significance_rows import ALPHA
from cfaug.stats.item_tests import (
    MeanDifference,
    cluster_bootstrap,
    describe_resolution,
    mcnemar,
    standard_error,
)
from cfaug.stats.significance import holm

WHOLE = "all"
PLAIN = Measure("", "higher")
"""The measure of numbers that are not right or wrong."""


@dataclass(frozen=True)
class FileComparison:
    """Two files on one metric, over all items or a part of them.

    Attributes:
        other: printed name of the second file, which is subtracted from the first.
        metric: name of the metric's column.
        part: name of the compared items: ``all``, or values of the columns of ``by``.
        means: mean over items of the first file and of the second.
        drawn: mean difference, with interval and p of a bootstrap that draws clusters.
        error: standard error of the difference for independent items.
        cluster_error: standard error of the difference over clusters; ``nan`` without clusters.
        better: number of items on which only the first is right, or has the larger value.
        worse: number of items on which only the second is right, or has the larger value.
        p_exact: two-sided p of McNemar's exact test; ``nan`` for values that are not right or
            wrong.
        p_holm: ``p``, corrected over all comparisons.
    """

    first: str
    other: str
    metric: str
    part: str
    means: tuple[float, float]
    drawn: MeanDifference
    error: float
    cluster_error: float
    better: int
    worse: int
    p_exact: float
    p_holm: float = math.nan

    @property
    def measure(self) -> Measure:
        """The unit and format of its printed values."""
        return PLAIN if math.isnan(self.p_exact) else PERCENT

    @property
    def p(self) -> float:
        """Two-sided p: of the bootstrap if clusters are known, else of McNemar's exact test."""
        exact = math.isnan(self.cluster_error) and not math.isnan(self.p_exact)
        return self.p_exact if exact else self.drawn.p

    def describe(self) -> str:
        """Return a sentence on what a difference of this size means on a set of this size."""
        clustered = not math.isnan(self.cluster_error)
        error = self.cluster_error if clustered else self.error
        measure = self.measure
        about = describe_resolution(
            error, self.drawn.items, self.drawn.clusters, factor=measure.factor,
            unit="points" if measure.is_fraction else "of its unit",
        )  # fmt: skip
        return f"{self.metric}, {self.first} minus {self.other}, {about}."


def compare_item_files(answers: ItemAnswers) -> list[FileComparison]:
    """Compare every file with every later one, on every metric and part; Holm over all."""
    names = shown_names(answers.files)
    comparisons: list[FileComparison] = []
    for first, other in combinations(range(len(names)), 2):
        for metric, values in answers.metrics.items():
            pair = values[[first, other]]
            _check_counts(answers, metric, pair, (names[first], names[other]))
            comparisons += _compare_parts(answers, metric, pair, (names[first], names[other]))
    if not comparisons:
        raise UserError("no item counts in these files: every value is empty")
    corrected = holm([comparison.p for comparison in comparisons]).tolist()
    return [replace(one, p_holm=p) for one, p in zip(comparisons, corrected, strict=True)]


def _check_counts(
    answers: ItemAnswers, metric: str, pair: np.ndarray, names: tuple[str, str]
) -> None:
    odd = np.flatnonzero(np.isnan(pair[0]) != np.isnan(pair[1]))
    if len(odd):
        raise UserError(
            f"{metric} of {names[0]} and {names[1]}: {len(odd):,} items have a value in one file "
            f"and none in the other, first {answers.items[odd[0]]}"
        )


def _compare_parts(
    answers: ItemAnswers, metric: str, pair: np.ndarray, names: tuple[str, str]
) -> Iterator[FileComparison]:
    counts = ~np.isnan(pair[0])
    parts = {WHOLE: np.ones(len(counts), bool), **answers.parts}
    binary = bool(np.isin(pair[:, counts], (0.0, 1.0)).all())
    for part, chosen in parts.items():
        rows = np.flatnonzero(chosen & counts)
        if not len(rows):
            continue
        ours, theirs = pair[:, rows]
        differences = ours - theirs
        own = answers.clusters
        clusters = np.arange(len(rows)) if own is None else own[rows]
        better, worse = int((differences > 0).sum()), int((differences < 0).sum())
        yield FileComparison(
            *names,
            metric=metric,
            part=part,
            means=(float(ours.mean()), float(theirs.mean())),
            drawn=cluster_bootstrap(
                differences, clusters, generator(0, "item_files", metric, part)
            ),
            error=standard_error(differences),
            cluster_error=math.nan if own is None else standard_error(differences, clusters),
            better=better,
            worse=worse,
            p_exact=mcnemar(better, worse) if binary else math.nan,
        )


def comparison_document(
    answers: ItemAnswers, found: Sequence[FileComparison], name: str
) -> Document:
    """Return the comparisons as a table, with a note on what a set of this size can show.

    Args:
        name: stem of the names of the files to write.
    """
    clustered = answers.clusters is not None
    part = make_part(
        "Item by item",
        ("first", "other", "metric", *(("items of",) if answers.parts else ())),
        [*COLUMNS, *(CLUSTER_COLUMNS if clustered else ()), Column("Holm", _holm)],
        [
            (
                (
                    comparison.first,
                    comparison.other,
                    comparison.metric,
                    *((comparison.part,) if answers.parts else ()),
                ),
                comparison,
            )
            for comparison in found
        ],
        (*_explain(found, clustered), *_left_out(answers)),
    )
    return Document(name, "Models compared item by item", (part,))


def _mean(comparison: FileComparison, file: int) -> Entry:
    return Entry(
        comparison.measure.text(comparison.means[file]), numbers={"value": comparison.means[file]}
    )


def _difference(comparison: FileComparison) -> Entry:
    numbers = {"value": comparison.drawn.mean, "n": float(comparison.drawn.items)}
    return Entry(comparison.measure.difference(comparison.drawn.mean, 2), numbers=numbers)


def _interval(comparison: FileComparison) -> str:
    (low, high), text = (comparison.drawn.low, comparison.drawn.high), comparison.measure.text
    return DASH if math.isnan(low) else f"{text(low)} to {text(high)}"


def _holm(comparison: FileComparison) -> Entry:
    return Entry(
        p_text(comparison.p_holm),
        bold=comparison.p_holm <= ALPHA,
        numbers=_known(p_holm=comparison.p_holm),
    )


def _number(text: str, value: float) -> Entry:
    return Entry(text, numbers=_known(value=float(value)))


def _known(**numbers: float) -> dict[str, Any]:
    return {name: value for name, value in numbers.items() if not math.isnan(value)}


COLUMNS: tuple[Column[FileComparison], ...] = (
    text_column("items", lambda comparison: f"{comparison.drawn.items:,}"),
    Column("first", lambda comparison: _mean(comparison, 0)),
    Column("other", lambda comparison: _mean(comparison, 1)),
    Column("difference", _difference),
    Column(
        "SE",
        lambda comparison: _number(comparison.measure.text(comparison.error), comparison.error),
    ),
    Column(
        "only first right", lambda comparison: _number(f"{comparison.better:,}", comparison.better)
    ),
    Column(
        "only other right", lambda comparison: _number(f"{comparison.worse:,}", comparison.worse)
    ),
    Column(
        "p (McNemar)", lambda comparison: _number(p_text(comparison.p_exact), comparison.p_exact)
    ),
)
CLUSTER_COLUMNS: tuple[Column[FileComparison], ...] = (
    Column(
        "clusters",
        lambda comparison: _number(f"{comparison.drawn.clusters:,}", comparison.drawn.clusters),
    ),
    Column(
        "SE, clusters",
        lambda comparison: _number(
            comparison.measure.text(comparison.cluster_error), comparison.cluster_error
        ),
    ),
    text_column("95 %, clusters", _interval),
    Column(
        "p, clusters", lambda comparison: _number(p_text(comparison.drawn.p), comparison.drawn.p)
    ),
)


def _explain(comparisons: Sequence[FileComparison], clustered: bool) -> list[str]:
    count = len(comparisons)
    said = (
        "Difference: first minus other, in points, with its standard error (SE) over items; p: "
        "McNemar's exact test on the items that only one answers right, two-sided"
    )
    said += (
        "; SE, interval and p over clusters: items of one cluster are drawn together (bootstrap)"
        if clustered
        else ""
    )
    tested = "p over clusters" if clustered else "p"
    said += f". Holm: {tested} corrected over {count} comparison{'s' * (count > 1)}."
    said += " Each file is one model, so this does not show what training again would give."
    whole = [comparison for comparison in comparisons if comparison.part == WHOLE]
    first = {one.metric: one for one in reversed(whole)}
    return [said, *(one.describe() for one in whole if first[one.metric] is one)]


def _left_out(answers: ItemAnswers) -> list[str]:
    if not answers.left_out:
        return []
    return [f"Not compared, as the same in all files: {', '.join(answers.left_out)}."]
