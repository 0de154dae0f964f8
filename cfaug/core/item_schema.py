"""The columns of a benchmark's items, declared once: writer, readers, pages and docs follow them.

A benchmark's class names its schema as ``item_schema`` (and ``ranking_schema``, if it keeps
rankings). ``evaluate.py`` refuses to write other columns, readers refuse items that lack one, and
docs/items.md lists them all.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.types import ColumnValues

ColumnKind = Literal["text", "number", "whole number", "yes or no", "JSON"]
DTYPES: Mapping[ColumnKind, str] = {
    "text": "OUT", "number": "fiub", "whole number": "iu", "yes or no": "b", "JSON": "OU",
}  # fmt: skip
"""Kinds of numpy's types that the values of a column may have."""


@dataclass(frozen=True)
class ItemColumn:
    """One column of a benchmark's items.

    Attributes:
        name: the name; ``<n>`` or the like stands for a number or a word, as in ``text <n>``.
        meaning: the meaning of a value, and of null.
        always: whether every evaluation writes it, so that its absence is an error.
    """

    name: str
    meaning: str
    kind: ColumnKind = "number"
    always: bool = False

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = re.split(r"<[^>]*>", self.name)
        return re.compile(".+".join(map(re.escape, parts)))

    def is_of(self, name: str) -> bool:
        """Return whether a column of this name is declared here."""
        return self._pattern.fullmatch(name) is not None

    def holds(self, values: ColumnValues) -> bool:
        """Return whether values are of its kind; null is of every kind."""
        known = values
        if not isinstance(values, np.ndarray) or values.dtype.kind == "O":
            known = [value for value in values if value is not None]
            if self.kind in ("text", "JSON"):
                return all(isinstance(value, str) for value in known)
        array = np.asarray(known)
        return not array.size or array.dtype.kind in DTYPES[self.kind]


@dataclass(frozen=True)
class ItemSchema:
    """The columns of a benchmark's items.

    Attributes:
        row: the thing that has a row.
        tags: a description of further columns, such as tags of the source; empty for none.
    """

    row: str
    columns: tuple[ItemColumn, ...]
    tags: str = ""

    def extend(self, row: str, *columns: ItemColumn) -> ItemSchema:
        """Return this schema with further columns, which replace those of the same name."""
        names = {column.name for column in columns}
        kept = (column for column in self.columns if column.name not in names)
        return replace(self, row=row, columns=(*kept, *columns))

    def names(self, kind: ColumnKind) -> tuple[str, ...]:
        """Return the names of the columns of a kind, in order."""
        return tuple(column.name for column in self.columns if column.kind == kind)

    def find_lacking(self, names: Iterable[str]) -> list[str]:
        """Return the columns that every evaluation writes and these do not have."""
        there = set(names)
        return [
            column.name for column in self.columns if column.always and column.name not in there
        ]

    def check(self, columns: Mapping[str, ColumnValues], title: str) -> None:
        """Refuse columns that a benchmark should not write: undeclared, missing or of another kind.

        Args:
            title: the name of the benchmark and what the rows are, for errors.
        """
        for name, values in columns.items():
            declared = next((column for column in self.columns if column.is_of(name)), None)
            if declared is None:
                if not self.tags:
                    raise UserError(f"{title} have a column {name!r} that their schema lacks")
            elif not declared.holds(values):
                raise UserError(f"{title}: the column {name!r} does not hold {declared.kind}")
        lacking = self.find_lacking(columns)
        if lacking:
            raise UserError(f"{title} lack {', '.join(lacking)}, which their schema promises")


def to_json(values: Iterable[Any]) -> str:
    """Return values as an item's JSON list, with null for NaN and infinity."""
    plain = [None if isinstance(v, float) and not math.isfinite(v) else v for v in values]
    return json.dumps(plain, ensure_ascii=False)
