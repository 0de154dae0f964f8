"""Compare models item by item, from files that say which items each of them got right.

Such files are other programs' answers; the released ``results/*.csv`` of BiVLC are examples. A
column of only 0 and 1, True and False, or right and wrong is a metric. Rows are matched by a column
that names items or, without one, by their position; then the texts of a row must agree in all
files. Logs of other evaluators are read as they are written (``cfaug.report.evaluator_logs``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.data.sources.lists import list_records
from cfaug.report.document import Column, Document, Entry, make_part, text_column
from cfaug.report.evaluator_logs import ABOUT, TARGET, read_log, unfold
from cfaug.report.page import DASH, PERCENT, Measure, p_text, span_text
from cfaug.report.significance_rows import ALPHA
from cfaug.stats.item_tests import (
    MeanDifference,
    cluster_bootstrap,
    describe_resolution,
    mcnemar,
    standard_error,
)
from cfaug.stats.significance import holm

NAMES = ("item", "doc_id", "id", "key", "index", "question_id", "sample_id")
"""Columns that may name an item, if their values are unique."""
CLUSTER = "cluster"
"""The default column of clusters."""
NAMED = 3
"""Items that a message names."""


@dataclass(frozen=True)
class ItemColumns:
    """The roles of columns in files of items; the node ``compare_columns``.

    Args:
        metrics: columns of right and wrong answers, or of numbers; ``None`` uses every column of
            only 0 and 1, or True and False.
        item: the column, or several together, that names an item; ``None`` uses one of ``NAMES`` if
            there is one, else rows are matched by their position.
        cluster: the column of clusters in which items were sampled, such as the image; ``None``
            uses ``cluster`` if there is one, else every item is its own cluster.
        by: columns whose combinations of values are also compared as parts.
        filter: the filter whose answers are compared, if a log of lm-evaluation-harness has
            several.
    """

    metrics: Sequence[str] | str | None = None
    item: Sequence[str] | str | None = None
    cluster: str | None = None
    by: Sequence[str] | str | None = None
    filter: str | None = None


@dataclass(frozen=True)
class ItemAnswers:
    """The answers of several files to the same items, in one order.

    Attributes:
        names: printed names of the files.
        items: names of the items, (items,).
        metrics: values of each metric, float64 (files, items), ``nan`` where an item does not
            count.
        clusters: cluster each item was sampled in, (items,); ``None`` if every item is its own
            cluster.
        parts: items of each part, bool (items,), by the joined values of the columns of ``by``.
        left_out: columns of right and wrong answers that are equal in all files.
        copies: {column of right and wrong answers: the metric that it repeats in every file}.
    """

    names: Sequence[str]
    items: Sequence[str]
    metrics: Mapping[str, np.ndarray]
    clusters: np.ndarray | None
    parts: Mapping[str, np.ndarray]
    left_out: Sequence[str]
    copies: Mapping[str, str]


def read_item_files(files: Sequence[Path], columns: ItemColumns) -> ItemAnswers:
    """Read files of items, and match their rows."""
    if len(files) < 2:
        raise UserError("compare=[A.csv,B.csv] takes two files or more")
    tables = [read_table(file, columns.filter) for file in files]
    metrics, left_out, copies = _choose_metrics(tables, columns)
    matched = _match(tables, columns, metrics)
    first = matched[0]
    cluster = columns.cluster or (CLUSTER if CLUSTER in first.columns else None)
    if cluster is not None and None in (names := first.column(cluster)):
        lacking = first.places[names.index(None)]
        raise UserError(f"{lacking} has no {cluster}: name a column of clusters that all rows have")
    parts: dict[str, np.ndarray] = {}
    if by := _listed(columns.by):
        rows = zip(*(map(str, first.column(name)) for name in by), strict=True)
        values = np.array([" ".join(row) for row in rows])
        for part in dict.fromkeys(values.tolist()):
            # Not by the name of the comparison of all items, which it would replace.
            parts[f"{', '.join(by)}={part}" if part == WHOLE else part] = values == part
    models = [table.model for table in tables if table.model is not None]
    return ItemAnswers(
        names=models if len({*models}) == len(files) else shown_names(files),
        items=first.places,
        metrics={name: np.stack([table.values(name) for table in matched]) for name in metrics},
        clusters=None if cluster is None else np.array([*map(str, first.column(cluster))]),
        parts=parts,
        left_out=left_out,
        copies=copies,
    )


def _choose_metrics(
    tables: Sequence[ItemFileTable], columns: ItemColumns
) -> tuple[list[str], list[str], dict[str, str]]:
    """Return the metrics, columns like them that are the same in all files, and copies of them."""
    if columns.metrics is not None:
        return _listed(columns.metrics), [], {}
    taken = {*_listed(columns.item), *_listed(columns.by), columns.cluster, CLUSTER, *NAMES, TARGET}
    first, *others = tables
    names = [
        name
        for name in first.columns
        if name not in taken
        and not name.startswith(ABOUT)
        and all(table.holds_scores(name) for table in tables)
    ]
    if not names:
        raise UserError(
            f"{first.file}: no column of all files has only 0 and 1, or True and False; "
            "compare_columns.metrics=[COLUMN,...] names what is compared, among "
            f"{', '.join(first.columns)}"
        )
    same = [
        name
        for name in names
        if all(table.columns[name] == first.columns[name] for table in others)
    ]
    if len(same) == len(names):
        same = []
    metrics: list[str] = []
    copies: dict[str, str] = {}
    for name in names:
        equal = (
            metric
            for metric in metrics
            if all(t.columns[metric] == t.columns[name] for t in tables)
        )
        if name not in same and (original := next(equal, None)) is not None:
            copies[name] = original  # Holm would count it twice
        elif name not in same:
            metrics.append(name)
    return metrics, same, copies


def _match(
    tables: Sequence[ItemFileTable], columns: ItemColumns, metrics: Sequence[str]
) -> Sequence[ItemFileTable]:
    """Return the tables with their rows in the order of the first."""
    names = _listed(columns.item)
    for name in NAMES if not names else ():
        named = [table.columns.get(name, ()) for table in tables]
        if all(values and len({*map(str, values)}) == len(values) for values in named):
            names = [name]
            break
    if not names:
        _check_places(tables, metrics)
        return tables
    first, *others = tables
    keys = first.key(names)
    matched = [first]
    for other in others:
        places = {name: row for row, name in enumerate(other.key(names))}
        for table, lacking in (
            (other, [name for name in keys if name not in places]),
            (first, [name for name in places if name not in {*keys}]),
        ):
            if lacking:
                text = ", ".join(map(repr, lacking[:NAMED]))
                more = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
                raise UserError(
                    f"{table.file} lacks the items {text}{more}: {first.file} and {other.file} are "
                    "not about the same items"
                )
        rows = [places[name] for name in keys]
        reordered = {name: [values[row] for row in rows] for name, values in other.columns.items()}
        places_of = [other.places[row] for row in rows]
        matched.append(ItemFileTable(other.file, reordered, places_of, other.model))
    _check_targets(matched)
    return matched


def _check_targets(tables: Sequence[ItemFileTable]) -> None:
    """Refuse logs that give an item different right answers: they are of different tasks."""
    logs = [table for table in tables if table.model is not None]
    for log in logs[1:]:
        rows = zip(logs[0].column(TARGET), log.column(TARGET), strict=True)
        for row, (ours, theirs) in enumerate(rows):
            if str(ours) != str(theirs):
                raise UserError(
                    f"{log.places[row]}: the right answer is {str(theirs)[:60]!r}, and "
                    f"{str(ours)[:60]!r} at {logs[0].places[row]}: logs of different tasks"
                )


def _check_places(tables: Sequence[ItemFileTable], metrics: Sequence[str]) -> None:
    """Refuse files whose rows, in order, are different items according to their texts."""
    first, *others = tables
    for table in others:
        if len(table.places) != len(first.places):
            raise UserError(
                f"{first.file} has {len(first.places):,} items and {table.file} "
                f"{len(table.places):,}: nothing names them, so they cannot be matched; "
                "compare_columns.item=[COLUMN,...] names what identifies an item"
            )
        for name in first.columns:
            if name in metrics or name not in table.columns:
                continue
            ours, theirs = first.columns[name], table.columns[name]
            if ours == theirs or all(read_number(value) is not None for value in (*ours, *theirs)):
                continue  # numbers are a model's answers
            row = next(row for row, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
            raise UserError(
                f"{table.places[row]}: {name} is {str(theirs[row])[:60]!r}, and "
                f"{str(ours[row])[:60]!r} at {first.places[row]}: other items, or another order; "
                "compare_columns.item=[COLUMN,...] names what identifies an item"
            )


def _listed(names: Sequence[str] | str | None) -> list[str]:
    return [] if names is None else [names] if isinstance(names, str) else list(names)


def shown_names(files: Sequence[Path]) -> list[str]:
    """Return short names of files: with folders, or with suffixes, only where two are equal.

    >>> shown_names([Path("a/x.csv"), Path("b/x.csv"), Path("c/y.csv"), Path("c/y.tsv")])
    ['a/x', 'b/x', 'y.csv', 'y.tsv']
    """
    stems = [file.with_suffix("") for file in files]
    paths = [f if stems.count(stem) > 1 else stem for f, stem in zip(files, stems, strict=True)]
    names = []
    for path in paths:
        parts, others = path.parts, [other.parts for other in paths if other != path]
        depth = 1
        while depth < len(parts) and any(other[-depth:] == parts[-depth:] for other in others):
            depth += 1
        names.append(Path(*parts[-depth:]).as_posix())
    return names


# One file of items that another program wrote, one row per item, and the meaning of its cells.

TRUE = ("true", "1", "1.0", "right", "correct")
FALSE = ("false", "0", "0.0", "wrong", "incorrect")
"""Spellings of right and wrong, in lower case."""
EMPTY = ("", "nan", "none", "null")
"""Spellings of an item that does not count, in lower case."""
ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
"""The address of an object in memory, as Python prints it: different in every file."""


@dataclass(frozen=True)
class ItemFileTable:
    """One file: one column per field, one row per item.

    Attributes:
        places: the location of each row, ``FILE, line N``.
        model: the model of an evaluator's log; ``None`` for a list.
    """

    file: Path
    columns: Mapping[str, list[Any]]
    places: Sequence[str]
    model: str | None = None

    def column(self, name: str) -> list[Any]:
        """Return a column."""
        if name not in self.columns:
            raise UserError(f"{self.file} has no column {name!r}; it has {', '.join(self.columns)}")
        return self.columns[name]

    def holds_scores(self, name: str) -> bool:
        """Return whether a column has right and wrong; in a log, parts of it (0.5) count too."""
        values = self.columns.get(name, ())
        if self.model is None or is_binary(values):
            return is_binary(values)
        numbers = {read_number(value) for value in values}
        counted = {number for number in numbers if number is None or number == number}
        return bool(counted) and all(number is not None and 0 <= number <= 1 for number in counted)

    def key(self, names: Sequence[str]) -> list[str]:
        """Return the name of each row: the texts of some columns together."""
        rows = zip(*(self.column(name) for name in names), strict=True)
        keys = [" | ".join(map(str, row)) for row in rows]
        places: dict[str, str] = {}
        for name, where in zip(keys, self.places, strict=True):
            if name in places:
                raise UserError(
                    f"{where}: the item {name!r} is duplicated, it is at {places[name]} already; "
                    "compare_columns.item=[COLUMN,...] names what tells items apart"
                )
            places[name] = where
        return keys

    def values(self, name: str) -> np.ndarray:
        """Return a metric, float64 (items,), ``nan`` where an item does not count."""
        numbers = [read_number(value) for value in self.column(name)]
        for number, value, where in zip(numbers, self.column(name), self.places, strict=True):
            if number is None:
                raise UserError(
                    f"{where}: {name} is {str(value)[:60]!r}: it should be 0 or 1, True or False, "
                    "or a number"
                )
        return np.array(numbers, np.float64)


def read_table(file: Path, log_filter: str | None = None) -> ItemFileTable:
    """Read a file of items: a list, or the log of an evaluator; ``log_filter`` is as in columns."""
    log = read_log(file, log_filter)
    columns: dict[str, list[Any]] = {}
    places: list[str] = []
    names: set[str] = set()
    for where, record in list_records(file, 2**20) if log is None else log.records:
        names = names or {*record}
        if log is None and record.keys() != names:
            odd = sorted(record.keys() ^ names)[0]
            raise UserError(f"{where}: not every row has the column {odd!r}")
        for name, value in unfold(record).items():
            text = ADDRESS.sub("", value).strip() if isinstance(value, str) else value
            columns.setdefault(name, [None] * len(places)).append(text)
        places.append(where)
        for column in columns.values():
            column += [None] * (len(places) - len(column))
    if not places:
        raise UserError(f"{file} has no items: a header and one row per item are needed")
    return ItemFileTable(file, columns, places, None if log is None else log.model)


def read_number(value: Any) -> float | None:
    """Return right or wrong as 1 or 0, a number as it is, ``nan`` if empty; ``None`` for others."""
    text = str(value).strip().lower()
    if text in TRUE or text in FALSE:
        return float(text in TRUE)
    if text in EMPTY:
        return math.nan
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def is_binary(values: Sequence[Any]) -> bool:
    """Return whether values are right, wrong or empty, and not all empty."""
    known = {str(value).strip().lower() for value in values} - {*EMPTY}
    return bool(known) and known <= {*TRUE, *FALSE}


# Comparisons of files, on every metric and part, and their table.

WHOLE = "all"


@dataclass(frozen=True)
class FileComparison:
    """Two files on one metric, over all items or a part of them.

    Attributes:
        other: printed name of the second file, which is subtracted from the first.
        part: name of the compared items: ``all``, or values of the columns of ``by``.
        drawn: mean difference, with interval and p of a bootstrap that draws clusters.
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
        """Two-sided p: of the bootstrap if clusters are known, else of McNemar's exact test."""
        exact = math.isnan(self.cluster_error) and not math.isnan(self.p_exact)
        return self.p_exact if exact else self.drawn.p

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
                    f"and none in the other, first {answers.items[odd[0]]}"
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
                rng = generator(0, "item_files", metric, part)
                better, worse = int((differences > 0).sum()), int((differences < 0).sum())
                comparison = FileComparison(
                    first,
                    other,
                    metric=metric,
                    part=part,
                    means=(float(ours.mean()), float(theirs.mean())),
                    drawn=cluster_bootstrap(differences, clusters, rng),
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
    answers: ItemAnswers, comparisons: Sequence[FileComparison], name: str
) -> Document:
    """Return the comparisons as a table, with a note on what a set of this size can show."""
    clustered = answers.clusters is not None
    bootstrapped = clustered or any(math.isnan(row.p_exact) for row in comparisons)

    def difference(row: FileComparison) -> Entry:
        numbers = {"value": row.drawn.mean, "n": float(row.drawn.items)}
        return Entry(row.measure.difference(row.drawn.mean, 2), numbers=numbers)

    def corrected(row: FileComparison) -> Entry:
        numbers = {} if math.isnan(row.p_holm) else {"p_holm": row.p_holm}
        return Entry(p_text(row.p_holm), bold=row.p_holm <= ALPHA, numbers=numbers)

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
    if bootstrapped:
        drawn = "clusters" if clustered else "bootstrap"
        columns += [
            text_column(f"95 %, {drawn}", interval),
            Column(f"p, {drawn}", lambda row: _entry(p_text(row.drawn.p), row.drawn.p)),
        ]
    labels = ("first", "other", "metric", *(("items of",) if answers.parts else ()))
    rows = [
        ((row.first, row.other, row.metric, row.part)[: len(labels)], row) for row in comparisons
    ]
    notes = _explain(comparisons, clustered)
    if answers.left_out:
        notes.append(f"Not compared, as the same in all files: {', '.join(answers.left_out)}.")
    if answers.copies:
        copied = ", ".join(f"{name} (as {metric})" for name, metric in answers.copies.items())
        notes.append(f"Not compared again, as equal in every row: {copied}.")
    part = make_part("Item by item", labels, [*columns, Column("Holm", corrected)], rows, notes)
    return Document(name, "Models compared item by item", (part,))


def _entry(text: str, value: float, **look: Any) -> Entry:
    return Entry(text, numbers={} if math.isnan(value) else {"value": float(value)}, **look)


def _explain(comparisons: Sequence[FileComparison], clustered: bool) -> list[str]:
    count, over = len(comparisons), " over clusters" if clustered else ""
    drawn = f"; SE, interval and p{over}: items of one cluster are drawn together (bootstrap)"
    whole = [comparison for comparison in comparisons if comparison.part == WHOLE]
    first = {comparison.metric: comparison for comparison in reversed(whole)}
    unlike = any(math.isnan(comparison.p_exact) for comparison in comparisons)
    numbers = "; values other than right and wrong are in their unit"
    numbers += "" if clustered else ", and their p is a bootstrap's over items"
    return [
        "Difference: first minus other, in points, with its standard error (SE) over items; p: "
        "McNemar's exact test on the items that only one answers right, two-sided"
        f"{drawn * clustered}{numbers * unlike}. Holm: p{over} corrected over {count} "
        f"comparison{'s' * (count > 1)}. Each file is one model, so this does not show what "
        "training again would give.",
        *(comparison.describe() for comparison in whole if first[comparison.metric] is comparison),
    ]
