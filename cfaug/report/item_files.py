"""Read files of other programs' answers, right or wrong, and match them item by item.

The released ``results/*.csv`` of BiVLC are examples. A column of only 0 and 1, True and False, or
right and wrong is a metric. Rows are matched by a column that names items or, without one, by their
position; then the texts of a row must agree in all files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.data.sources.lists import list_records

NAMES = ("item", "id", "key", "index", "question_id")
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
    """

    metrics: Sequence[str] | str | None = None
    item: Sequence[str] | str | None = None
    cluster: str | None = None
    by: Sequence[str] | str | None = None


@dataclass(frozen=True)
class ItemAnswers:
    """The answers of several files to the same items, in one order.

    Attributes:
        items: names of the items, (items,).
        metrics: values of each metric, float64 (files, items), ``nan`` where an item does not
            count.
        clusters: cluster each item was sampled in, (items,); ``None`` if every item is its own
            cluster.
        parts: items of each part, bool (items,), by the joined values of the columns of ``by``.
        left_out: columns of right and wrong answers that are equal in all files.
    """

    files: Sequence[Path]
    items: Sequence[str]
    metrics: Mapping[str, np.ndarray]
    clusters: np.ndarray | None
    parts: Mapping[str, np.ndarray]
    left_out: Sequence[str]


def read_item_files(files: Sequence[Path], columns: ItemColumns) -> ItemAnswers:
    """Read files of items, and match their rows."""
    if len(files) < 2:
        raise UserError("compare=[A.csv,B.csv] takes two files or more")
    tables = [read_table(file) for file in files]
    metrics, left_out = _choose_metrics(tables, columns)
    tables = _match(tables, columns, metrics)
    first = tables[0]
    cluster = columns.cluster or (CLUSTER if CLUSTER in first.columns else None)
    return ItemAnswers(
        files=files,
        items=first.places,
        metrics={name: np.stack([table.values(name) for table in tables]) for name in metrics},
        clusters=None if cluster is None else np.array([*map(str, first.column(cluster))]),
        parts=_parts(first, _listed(columns.by)),
        left_out=left_out,
    )


def _choose_metrics(
    tables: Sequence[ItemTable], columns: ItemColumns
) -> tuple[list[str], list[str]]:
    """Return the metrics, and columns like them that are the same in all files."""
    if columns.metrics is not None:
        return _listed(columns.metrics), []
    taken = {*_listed(columns.item), *_listed(columns.by), columns.cluster, CLUSTER, *NAMES}
    first, *others = tables
    found = [
        name
        for name, values in first.columns.items()
        if name not in taken
        and is_binary(values)
        and all(name in one.columns and is_binary(one.columns[name]) for one in others)
    ]
    if not found:
        raise UserError(
            f"{first.file}: no column of all files has only 0 and 1, or True and False; "
            "compare_columns.metrics=[COLUMN,...] names what is compared, among "
            f"{', '.join(first.columns)}"
        )
    same = [
        name for name in found if all(one.columns[name] == first.columns[name] for one in others)
    ]
    if len(same) == len(found):
        return found, []
    return [name for name in found if name not in same], same


def _match(
    tables: Sequence[ItemTable], columns: ItemColumns, metrics: Sequence[str]
) -> list[ItemTable]:
    """Return the tables with their rows in the order of the first."""
    names = _listed(columns.item) or _find_name(tables)
    if not names:
        _check_places(tables, metrics)
        return list(tables)
    first, *others = tables
    keys = first.key(names)
    found = [first]
    for table in others:
        place = {name: row for row, name in enumerate(table.key(names))}
        _check_same(first, keys, table, [*place])
        rows = [place[name] for name in keys]
        own = {name: [values[row] for row in rows] for name, values in table.columns.items()}
        found.append(ItemTable(table.file, own, [table.places[row] for row in rows]))
    return found


def _find_name(tables: Sequence[ItemTable]) -> list[str]:
    """Return the column of ``NAMES`` that names every item in all files; empty without one."""
    for name in NAMES:
        own = [table.columns.get(name, ()) for table in tables]
        if all(values and len({*map(str, values)}) == len(values) for values in own):
            return [name]
    return []


def _check_same(
    first: ItemTable, names: Sequence[str], other: ItemTable, theirs: Sequence[str]
) -> None:
    for table, lacking in (
        (other, [name for name in names if name not in {*theirs}]),
        (first, [name for name in theirs if name not in {*names}]),
    ):
        if lacking:
            told = ", ".join(map(repr, lacking[:NAMED]))
            more = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
            raise UserError(
                f"{table.file} lacks the items {told}{more}: {first.file} and {other.file} are not "
                "about the same items"
            )


def _check_places(tables: Sequence[ItemTable], metrics: Sequence[str]) -> None:
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


def _parts(table: ItemTable, names: Sequence[str]) -> dict[str, np.ndarray]:
    if not names:
        return {}
    rows = zip(*(map(str, table.column(name)) for name in names), strict=True)
    values = np.array([" ".join(row) for row in rows])
    return {str(part): values == part for part in dict.fromkeys(values.tolist())}


def _listed(names: Sequence[str] | str | None) -> list[str]:
    return [] if names is None else [names] if isinstance(names, str) else list(names)


def shown_names(files: Sequence[Path]) -> list[str]:
    """Return short names of files: without suffix, with folders where two are equal.

    >>> shown_names([Path("a/x.csv"), Path("b/x.csv"), Path("c/y.csv")])
    ['a/x', 'b/x', 'y']
    """
    return [*_shorten(files)]


def _shorten(files: Sequence[Path]) -> Iterator[str]:
    for file in files:
        parts = file.with_suffix("").parts
        others = [path.with_suffix("").parts for path in files if path != file]
        depth = next(
            (n for n in range(1, len(parts)) if all(one[-n:] != parts[-n:] for one in others)),
            len(parts),
        )
        yield "/".join(parts[-depth:])


# One file of items that another program wrote, one row per item, and the meaning of its cells.

TRUE = ("true", "1", "1.0", "right", "correct")
FALSE = ("false", "0", "0.0", "wrong", "incorrect")
"""Spellings of right and wrong, in lower case."""
EMPTY = ("", "nan", "none", "null")
"""Spellings of an item that does not count, in lower case."""
ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
"""The address of an object in memory, as Python prints it: different in every file."""
LONGEST_FIELD = 2**20


@dataclass(frozen=True)
class ItemTable:
    """One file: one column per field, one row per item.

    Attributes:
        columns: values of each column, by its name; memory addresses are removed from texts.
        places: the location of each row, ``FILE, line N``.
    """

    file: Path
    columns: Mapping[str, list[Any]]
    places: Sequence[str]

    def column(self, name: str) -> list[Any]:
        """Return a column."""
        if name not in self.columns:
            raise UserError(f"{self.file} has no column {name!r}; it has {', '.join(self.columns)}")
        return self.columns[name]

    def key(self, names: Sequence[str]) -> list[str]:
        """Return the name of each row: the texts of some columns together."""
        rows = zip(*(self.column(name) for name in names), strict=True)
        found = [" | ".join(map(str, row)) for row in rows]
        places: dict[str, str] = {}
        for name, place in zip(found, self.places, strict=True):
            if name in places:
                raise UserError(
                    f"{place}: the item {name!r} is duplicated, it is at {places[name]} already; "
                    "compare_columns.item=[COLUMN,...] names what tells items apart"
                )
            places[name] = place
        return found

    def values(self, name: str) -> np.ndarray:
        """Return a metric, float64 (items,), ``nan`` where an item does not count."""
        found = [read_number(value) for value in self.column(name)]
        for number, value, place in zip(found, self.column(name), self.places, strict=True):
            if number is None:
                raise UserError(
                    f"{place}: {name} is {str(value)[:60]!r}: it should be 0 or 1, True or False, "
                    "or a number"
                )
        return np.array(found, np.float64)


def read_table(file: Path) -> ItemTable:
    """Read a file of items."""
    columns: dict[str, list[Any]] = {}
    places: list[str] = []
    for place, record in list_records(file, LONGEST_FIELD):
        if places and record.keys() != columns.keys():
            odd = sorted(record.keys() ^ columns.keys())[0]
            raise UserError(f"{place}: not every row has the column {odd!r}")
        for name, value in record.items():
            text = ADDRESS.sub("", value).strip() if isinstance(value, str) else value
            columns.setdefault(name, []).append(text)
        places.append(place)
    if not places:
        raise UserError(f"{file} has no items: a header and one row per item are needed")
    return ItemTable(file, columns, places)


def read_number(value: Any) -> float | None:
    """Return right or wrong as 1 or 0, a number as it is, ``nan`` if empty; ``None`` for others."""
    text = str(value).strip().lower()
    if text in TRUE or text in FALSE:
        return float(text in TRUE)
    if text in EMPTY:
        return math.nan
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def is_binary(values: Sequence[Any]) -> bool:
    """Return whether values are right, wrong or empty, and not all empty."""
    known = {str(value).strip().lower() for value in values} - {*EMPTY}
    return bool(known) and known <= {*TRUE, *FALSE}
