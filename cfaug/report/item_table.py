"""One file of items that another program wrote, one row per item, and the meaning of its cells."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.data.sources.lists import list_records

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
        file: path of the file, as given.
        columns: values of each column, by its name; memory addresses are removed from texts.
        places: the location of each row, ``FILE, line N``.
    """

    file: Path
    columns: Mapping[str, list[Any]]
    places: Sequence[str]

    def column(self, name: str) -> list[Any]:
        """Return a column.

        Raises:
            UserError: if no column has that name, listing those that exist.
        """
        if name not in self.columns:
            raise UserError(f"{self.file} has no column {name!r}; it has {', '.join(self.columns)}")
        return self.columns[name]

    def key(self, names: Sequence[str]) -> list[str]:
        """Return the name of each row: the texts of some columns together.

        Raises:
            UserError: if a column is missing, or two rows have the same name.
        """
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
        """Return a metric, float64 (items,), ``nan`` where an item does not count.

        Raises:
            UserError: if the column is missing, or a value is neither right, wrong nor a number.
        """
        found = [read_number(value) for value in self.column(name)]
        for number, value, place in zip(found, self.column(name), self.places, strict=True):
            if number is None:
                raise UserError(
                    f"{place}: {name} is {str(value)[:60]!r}: it should be 0 or 1, True or False, "
                    "or a number"
                )
        return np.array(found, np.float64)


def read_table(file: Path) -> ItemTable:
    """Read a file of items.

    Raises:
        UserError: if it cannot be read, is empty, or its rows have different columns.
    """
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
