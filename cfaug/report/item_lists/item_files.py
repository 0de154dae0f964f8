"""Compare models item by item, from files that say which items each of them got right.

Such files are other programs' answers. A column of only 0 and 1, True and False, or right and wrong
is a metric. ``item_tables`` reads a file, ``item_alignment`` matches the rows of several.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.report.document import Column, Document, Entry, make_part, text_column
from cfaug.report.item_lists.evaluator_logs import TARGET, TASK
from cfaug.report.item_lists.item_alignment import CLUSTER, NAMES, align, holds_results
from cfaug.report.item_lists.item_cautions import caution_about, check_one_model
from cfaug.report.item_lists.item_tables import (
    ItemColumns,
    ItemFileTable,
    describes_item,
    listed,
    read_table,
    shown_names,
)
from cfaug.report.page import DASH, PERCENT, Measure, p_text, span_text
from cfaug.report.significance_rows import ALPHA
from cfaug.stats.cluster_tests import MeanDifference, standard_error
from cfaug.stats.item_tests import MCNEMAR, compare_answers, describe_resolution, mcnemar
from cfaug.stats.significance import holm


@dataclass(frozen=True)
class ItemAnswers:
    """The answers of several files to the same items, in one order.

    Attributes:
        names: printed names of the files.
        items: places of the items in the first file, (items,).
        metrics: values of each metric, float64 (files, items), ``nan`` where an item does not
            count.
        clusters: cluster each item was sampled in, (items,); ``None`` if every item is its own
            cluster.
        parts: items of each part, bool (items,), by the joined values of the columns of ``by``.
        left_out: columns of right and wrong answers that are equal in all files.
        copies: {column of right and wrong answers: the metric that it repeats in every file}.
        task: the task that the files are of; empty if none says so.
        notes: sentences on how rows were matched, and on what the files say differently.
        questions: texts of the questions, (items,); places of items where no column has them.
        targets: the right answers, (items,); empty where no column says them.
        said: answers of each file's model, (files, items); empty where a file lacks them.
        labels: names of the items on a page, ``doc_id 3``, (items,).
    """

    names: Sequence[str]
    items: Sequence[str]
    metrics: Mapping[str, np.ndarray]
    clusters: np.ndarray | None
    parts: Mapping[str, np.ndarray]
    left_out: Sequence[str]
    copies: Mapping[str, str]
    task: str = ""
    notes: Sequence[str] = ()
    questions: Sequence[str] = ()
    targets: Sequence[str] = ()
    said: Sequence[Sequence[str]] = ()
    labels: Sequence[str] = ()


QUESTIONS = (
    "input", "doc.question", "question", "doc.query", "doc.problem", "doc.prompt", "doc.ctx",
    "doc.sentence", "doc.premise", "doc.text", "prompt", "caption", "text",
)  # fmt: skip
"""Columns that say what was asked, the best first."""
TARGETS = (TARGET, "answer", "label", "gold")
ANSWERS = ("prediction", "response", "output")
"""Columns of lists with the right answer, and with a model's."""


def read_item_files(files: Sequence[Path], columns: ItemColumns) -> ItemAnswers:
    """Read files of items, and match their rows."""
    if len(files) < 2:
        raise UserError("cfaug compare A.csv B.csv takes two files or more")
    read = [read_table(file, columns.filter) for file in files]
    check_one_model(read, columns)
    aligned = align(read, columns)
    tables, notes = aligned.tables, [*aligned.notes]
    metrics, left_out, copies = _choose_metrics(tables, columns)
    values = {name: np.stack([table.values(name) for table in tables]) for name in metrics}
    if columns.common:
        for name, answers in values.items():
            lacking = np.isnan(answers).any(axis=0)
            if (dropped := int((lacking & ~np.isnan(answers).all(axis=0)).sum())) > 0:
                notes.append(
                    f"{name}: {dropped:,} of {len(lacking):,} items, without a value in one file, "
                    "are left out."
                )
            answers[:, lacking] = np.nan
    first = tables[0]

    def find_saying(name: str) -> ItemFileTable:
        return next((table for table in tables if name in table.columns), first)

    default = CLUSTER if any(CLUSTER in table.columns for table in tables) else None
    cluster = columns.cluster or default
    notes += caution_about(tables, values, columns, clustered=cluster is not None)
    clusters = None
    if cluster is not None:
        saying = find_saying(cluster)
        clusters = saying.texts(cluster)
        if "" in clusters:
            raise UserError(
                f"{saying.places[clusters.index('')]} has no {cluster}: name a column of clusters "
                "that all rows have"
            )
    parts: dict[str, np.ndarray] = {}
    if by := listed(columns.by):
        rows = zip(*(map(str, find_saying(name).column(name)) for name in by), strict=True)
        joined = np.array([" ".join(row) for row in rows])
        for part in dict.fromkeys(joined.tolist()):
            # Not by the name of the comparison of all items, which it would replace.
            parts[f"{', '.join(by)}={part}" if part == WHOLE else part] = joined == part
    labels = [Path(place).name for place in first.places]
    if aligned.names:
        named = zip(*(first.texts(name) for name in aligned.names), strict=True)
        labels = [
            ", ".join(f"{name} {text}" for name, text in zip(aligned.names, texts, strict=True))
            for texts in named
        ]
    models = [table.model for table in tables if table.model is not None]
    return ItemAnswers(
        names=models if len({*models}) == len(files) else shown_names(files),
        items=first.places,
        metrics=values,
        clusters=None if clusters is None else np.array(clusters),
        parts=parts,
        left_out=left_out,
        copies=copies,
        task=next((table.about[TASK] for table in tables if TASK in table.about), ""),
        notes=notes,
        questions=_first_of(first, QUESTIONS) or first.places,
        targets=first.targets or _first_of(first, TARGETS) or [""] * len(first),
        said=[table.answers or _first_of(table, ANSWERS) or [""] * len(table) for table in tables],
        labels=labels,
    )


def _first_of(table: ItemFileTable, names: Sequence[str]) -> list[str]:
    """Return the texts of the first of these columns that a table has; empty if it has none."""
    return next((table.texts(name) for name in names if name in table.columns), [])


def _choose_metrics(
    tables: Sequence[ItemFileTable], columns: ItemColumns
) -> tuple[list[str], list[str], dict[str, str]]:
    """Return the metrics, columns like them that are the same in all files, and copies of them."""
    if columns.metrics is not None:
        return listed(columns.metrics), [], {}
    taken = {*listed(columns.item), *listed(columns.by), columns.cluster, CLUSTER, *NAMES, TARGET}
    first, *others = tables
    scored = [
        name
        for name in first.columns
        if name not in taken
        and not describes_item(name)
        and all(table.holds_scores(name) for table in tables)
    ]
    same = [
        name
        for name in scored
        if all(table.columns[name] == first.columns[name] for table in others)
    ]
    results = [name for name in scored if holds_results(tables, name)]
    results = [name for name in results if name not in same] or results
    if not results:
        raise UserError(
            f"{first.file}: no column of all files says which answers are right, with only 0 and "
            "1, or True and False; columns.metrics=[COLUMN,...] names what is compared, "
            f"among {', '.join(first.columns)}"
        )
    metrics: list[str] = []
    copies: dict[str, str] = {}
    for name in results:
        equal = (
            metric
            for metric in metrics
            if all(t.columns[metric] == t.columns[name] for t in tables)
        )
        if (original := next(equal, None)) is not None:
            copies[name] = original  # Holm would count it twice
        else:
            metrics.append(name)
    return metrics, [name for name in same if name not in results], copies


# Comparisons of files, on every metric and part, and their table.

WHOLE = "all"
ALONE = "Holm, this task alone"
"""The header of p where another table of the page is corrected over all tasks."""


@dataclass(frozen=True)
class FileComparison:
    """Two files on one metric, over all items or a part of them.

    Attributes:
        other: printed name of the second file, which is subtracted from the first.
        part: name of the compared items: ``all``, or values of the columns of ``by``.
        drawn: mean difference, with interval and p, by ``cfaug.stats.item_tests.WHICH_TEST``.
        cluster_error: standard error of the difference over clusters; ``nan`` without clusters.
        better: number of items on which only the first is right, or has the larger value.
        worse: number of items on which only the second is right, or has the larger value.
        p_exact: two-sided p of McNemar's exact test; ``nan`` for values that are not right or
            wrong.
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
        """The unit and format of its values, which have no unit if they are not right or wrong."""
        return Measure("") if math.isnan(self.p_exact) else PERCENT

    @property
    def p(self) -> float:
        """Two-sided p of the test that was used."""
        return self.drawn.p

    def describe(self) -> str:
        """Return a sentence on what a difference of this size means on a set of this size."""
        clustered = not math.isnan(self.cluster_error)
        about = describe_resolution(
            self.cluster_error if clustered else self.error,
            self.drawn.items,
            self.drawn.clusters,
            factor=self.measure.factor,
            unit="points" if self.measure.is_fraction else "of its unit",
        )
        return f"{self.metric}, {self.first} minus {self.other}, {about}."


def compare_item_files(answers: ItemAnswers) -> list[FileComparison]:
    """Compare every file with every later one, on every metric and part; Holm over all."""
    names = answers.names
    comparisons: list[FileComparison] = []
    for files in combinations(range(len(names)), 2):
        first, other = (names[file] for file in files)
        for metric, values in answers.metrics.items():
            pair = values[[*files]]
            counts = ~np.isnan(pair[0])
            odd = np.flatnonzero(np.isnan(pair[1]) == counts)
            if len(odd):
                raise UserError(
                    f"{metric} of {first} and {other}: {len(odd):,} items have a value in one file "
                    f"and none in the other, first {answers.items[odd[0]]}; "
                    "columns.common=true leaves them out"
                )
            binary = bool(np.isin(pair[:, counts], (0.0, 1.0)).all())
            for part, chosen in {WHOLE: counts, **answers.parts}.items():
                rows = np.flatnonzero(chosen & counts)
                if not len(rows):
                    continue
                ours, theirs = pair[:, rows]
                differences = ours - theirs
                clusters = np.arange(len(rows))
                cluster_error = math.nan
                if answers.clusters is not None:
                    clusters = answers.clusters[rows]
                    cluster_error = standard_error(differences, clusters)
                better, worse = int((differences > 0).sum()), int((differences < 0).sum())
                comparison = FileComparison(
                    first,
                    other,
                    metric=metric,
                    part=part,
                    means=(float(ours.mean()), float(theirs.mean())),
                    drawn=compare_answers(ours, theirs, clusters),
                    error=standard_error(differences),
                    cluster_error=cluster_error,
                    better=better,
                    worse=worse,
                    p_exact=mcnemar(better, worse) if binary else math.nan,
                )
                comparisons.append(comparison)
    if not comparisons:
        raise UserError("no item counts in these files: every value is empty")
    corrected = holm([comparison.p for comparison in comparisons]).tolist()
    return [
        replace(comparison, p_holm=p) for comparison, p in zip(comparisons, corrected, strict=True)
    ]


def comparison_document(
    answers: ItemAnswers,
    comparisons: Sequence[FileComparison],
    name: str,
    *,
    within: bool = False,
) -> Document:
    """Return the comparisons as a table, with a note on what a set of this size can show.

    Args:
        within: whether the same page has a table that is corrected over other comparisons, too: p
            is then named as one of these alone, and none is marked as significant.
    """
    clustered = answers.clusters is not None
    flipped = clustered or any(row.drawn.test != MCNEMAR for row in comparisons)

    def difference(row: FileComparison) -> Entry:
        numbers = {"value": row.drawn.mean, "n": float(row.drawn.items)}
        return Entry(row.measure.difference(row.drawn.mean, 2), numbers=numbers)

    def corrected(row: FileComparison) -> Entry:
        numbers = {} if math.isnan(row.p_holm) else {"p_holm": row.p_holm}
        bold = row.p_holm <= ALPHA and not within
        return Entry(p_text(row.p_holm), bold=bold, numbers=numbers)

    def interval(row: FileComparison) -> str:
        return span_text(row.measure.text, row.drawn.low, row.drawn.high, DASH)

    columns: list[Column[FileComparison]] = [
        text_column("items", lambda row: f"{row.drawn.items:,}"),
        Column("first", lambda row: _entry(row.measure.text(row.means[0]), row.means[0])),
        Column("other", lambda row: _entry(row.measure.text(row.means[1]), row.means[1])),
        Column("difference", difference),
        Column("SE", lambda row: _entry(row.measure.text(row.error), row.error)),
        Column("only first right", lambda row: _entry(f"{row.better:,}", row.better)),
        Column("only other right", lambda row: _entry(f"{row.worse:,}", row.worse)),
        Column("p (McNemar)", lambda row: _entry(p_text(row.p_exact), row.p_exact)),
    ]
    if clustered:
        columns += [
            Column("clusters", lambda row: _entry(f"{row.drawn.clusters:,}", row.drawn.clusters)),
            Column(
                "SE, clusters",
                lambda row: _entry(row.measure.text(row.cluster_error), row.cluster_error),
            ),
        ]
    columns.append(text_column("95 %, clusters" if clustered else "95 %", interval))
    if flipped:
        flips = "p, clusters" if clustered else "p, sign flips"
        columns.append(Column(flips, lambda row: _entry(p_text(row.p), row.p)))
    labels = ("first", "other", "metric", *(("items of",) if answers.parts else ()))
    rows = [
        ((row.first, row.other, row.metric, row.part)[: len(labels)], row) for row in comparisons
    ]
    notes = [*_explain(comparisons, clustered, within), *answers.notes]
    if answers.left_out:
        notes.append(f"Not compared, as the same in all files: {', '.join(answers.left_out)}.")
    if answers.copies:
        copied = ", ".join(f"{name} (as {metric})" for name, metric in answers.copies.items())
        notes.append(f"Not compared again, as equal in every row: {copied}.")
    part = make_part(
        "Item by item",
        labels,
        [*columns, Column(ALONE if within else "Holm", corrected)],
        rows,
        notes,
    )
    title = "Models compared item by item" + f": {answers.task}" * bool(answers.task)
    return Document(name, title, (part,))


def _entry(text: str, value: float, **style: Any) -> Entry:
    return Entry(text, numbers={} if math.isnan(value) else {"value": float(value)}, **style)


def _explain(
    comparisons: Sequence[FileComparison], clustered: bool, within: bool = False
) -> list[str]:
    count, over = len(comparisons), " over clusters" if clustered else ""
    drawn = f"; SE, interval and p{over}: the signs of whole clusters are flipped"
    whole = [comparison for comparison in comparisons if comparison.part == WHOLE]
    first = {comparison.metric: comparison for comparison in reversed(whole)}
    unlike = any(math.isnan(comparison.p_exact) for comparison in comparisons)
    numbers = "; values other than right and wrong are in their unit"
    numbers += "" if clustered else ", and the signs of their differences are flipped for p"
    return [
        "Difference: first minus other, in points, with its standard error (SE) over items; p: "
        "McNemar's exact test on the items that only one answers right, two-sided"
        f"{drawn * clustered}{numbers * unlike}. {ALONE if within else 'Holm'}: p{over} corrected "
        f"over {count} comparison{'s' * (count > 1)}"
        f"{', and not over those of other tasks' * within}. Each file is one model, so this does "
        "not show what training again would give.",
        *(comparison.describe() for comparison in whole if first[comparison.metric] is comparison),
    ]
