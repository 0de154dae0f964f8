"""The names of a user's own columns, ``data.fields``: rows are seen under the names readers know.

While a source is open (:func:`reading_by`), what readers of columns are given is renamed: the rows
of lists and of parquet, the types of parquet, the json of a tar's samples. No reader knows of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from difflib import get_close_matches
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, name_some
from cfaug.core.known_names import nearest
from cfaug.core.validation import write_value
from cfaug.data.sources.row import Description, HeaderError, Reader

Fields = Mapping[str, str | Sequence[str]]
"""{name that readers know: the column's own name, ``meta.title`` if it is nested}."""
IGNORED = "ignored"
"""The name of columns that are not read at all."""
KNOWN = (
    "image", "caption", "label", "split", "group", "id", "detections",
    "cf_image", "cf_caption", "neg_caption", "counterfactuals",  # of pairs
    "photo", "edit", "edits", "kind", "before", "after", "severity", "reconstruction",  # of edits
    "file", "image_id", "hypothesis", "premise", "objects", "attributes", "original", "modified",
    IGNORED,
)  # fmt: skip
"""The names that ``data.fields`` may give to columns."""
NUMBERED = re.compile(r"(image|caption|edit|kind)_?\d+")
"""Such names with the number of a set's member or of an edit."""
ALSO = {"text": "caption", "class": "label", "edit_kind": "kind"}
"""Other names of some."""
MEANS = {**ALSO, "image_id": "group", ".txt": "caption", ".cls": "label"}
"""What else says the same as a column: other columns, and members of a tar's sample."""
SHOWN = 20
"""Most columns that a message names."""


def read_fields(fields: Fields) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return {name that readers know: own name}, and the columns that are ignored.

    Raises:
        UserError: for a name that no reader knows, and a column that is named twice.
    """
    names: dict[str, str] = {}
    ignored: tuple[str, ...] = ()
    for name, column in fields.items():
        usual, known = ALSO.get(name, name), [*KNOWN, *ALSO]
        if name not in known and NUMBERED.fullmatch(name) is None:
            near = nearest(name, known)
            hint = f"did you mean {near}? " if near else ""
            raise UserError(
                f"data.fields: no reader knows a column {name!r}: {hint}On the left stand "
                f"{', '.join(KNOWN)}, image_0, caption_0, image_1, ...; on the right the names in "
                "the source"
            )
        if name == IGNORED:
            ignored = (column,) if isinstance(column, str) else tuple(column)
        elif not isinstance(column, str):
            raise UserError(
                f"data.fields.{name}={write_value(column)} should be the name of one column"
            )
        elif usual in names:
            raise UserError(f"data.fields={write_value(fields)} names {usual} twice: leave out one")
        else:
            names[usual] = column
    both = next((column for column in ignored if column in names.values()), None)
    if both is not None:
        raise UserError(f"data.fields: {both} is both read and ignored: leave out one")
    return names, ignored


class FieldNames:
    """The names of one source's columns while it is open.

    Args:
        fields: ``data.fields``; ``None`` or empty for the names that readers know.
        reader: ``data.reader``, by which the source is read if it reads such a one; ``None`` for
            the readers of cfaug alone.

    Attributes:
        fields: {name that readers know: the column's own name}.
        ignored: own names of columns that are not read.
    """

    def __init__(self, fields: Fields | None, reader: Reader | None = None) -> None:
        self.reader = reader
        self.fields, self.ignored = read_fields(fields or {})
        self._named = {*self.fields.values(), *self.ignored}
        self._deepest = max((column.count(".") for column in self._named), default=0)
        self._seen: dict[Path, dict[str, None]] = {}
        self._beside: dict[Path, dict[str, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._named)

    @property
    def key(self) -> list[Any]:
        """JSON that is added to what a cache is keyed by; nothing without fields."""
        return [sorted(self.fields.items()), sorted(self.ignored)] if self else []

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that were seen, by their own names."""
        return tuple(dict.fromkeys(name for seen in self._seen.values() for name in seen))

    @property
    def renamed(self) -> tuple[str, ...]:
        """``NAME=COLUMN`` of every field whose column was seen."""
        seen = set(self.columns)
        return tuple(f"{name}={column}" for name, column in self.pairs() if column in seen)

    def pairs(self) -> list[tuple[str, str]]:
        """Return (name, own name) of every column that is named."""
        return [*self.fields.items(), *((IGNORED, column) for column in self.ignored)]

    def origin(self, name: str) -> str:
        """Return the own name of a column, as far as columns were seen."""
        column = self.fields.get(name, name)
        return column if column in self.columns else name

    def apply(
        self, record: dict[str, Any], file: Path, members: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Return a record under the names that readers know, its columns in their order.

        Args:
            record: the values of columns, or their types, by their own names.
            members: the extensions of a tar's sample.

        Raises:
            HeaderError: if two columns of the file could be meant by one name.
        """
        if not self:
            return record
        there = paths_in(record, self._deepest)
        self._see(file, (*there, *members))
        moved = {name: there[column] for name, column in self.fields.items() if column in there}
        rest = record
        for path in (*moved.values(), *(there[name] for name in self.ignored if name in there)):
            rest = _without(rest, path)
        renamed: dict[str, Any] = {
            n: None for n, c in self.fields.items() if _lies_in_null(record, c)
        }
        for column in record:
            for name, path in moved.items():
                if path[0] == column:
                    renamed[name] = value_at(record, path)
            if column in rest:
                renamed[column] = rest[column]
        return renamed

    def records(
        self, file: Path, records: Iterator[tuple[str, Mapping[str, Any]]]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Return (place, record) of every record of a file, renamed."""
        if not self:
            return records
        return ((where, self.apply(dict(record), file)) for where, record in records)

    def head(self, text: str) -> str:
        """Return the start of a json with the names of its renamed keys behind it."""

        def has(column: str) -> bool:
            keys = (column, column.partition(".")[0])
            return any(json.dumps(k, ensure_ascii=a) in text for k in keys for a in (True, False))

        return text + "".join(f' "{n}":' for n, column in self.fields.items() if has(column))

    def _see(self, file: Path, names: Iterable[str]) -> None:
        seen, beside = self._seen.setdefault(file, {}), self._beside.setdefault(file, {})
        for column in names:
            if column not in seen:
                seen[column] = None
                name = MEANS.get(column.lower(), column.lower())
                if name in self.fields and column not in self._named:
                    beside.setdefault(name, column)
        for name, other in beside.items():
            column = self.fields[name]
            if column in seen:
                raise HeaderError(
                    f"{file} has {column!r}, which data.fields reads as {name}, and {other!r} "
                    f"beside it: which is meant? To read {column}, add {IGNORED}: {other} to "
                    f"data.fields; to read {other}, leave {name} out of it"
                )

    def describe(self, described: Description) -> Description:
        """Return a description with what was renamed."""
        if not self:
            return described
        return replace(described, renamed=self.renamed, columns=self.columns)

    def explain(self, message: str) -> str:
        """Return an error about a source with what fields made of its columns."""
        missing = [column for _, column in self.pairs() if column not in self.columns]
        if not self.columns:
            return message
        if missing:
            first = str(next(iter(self._seen)))
            message = f"{missing_columns(missing, {first: self.columns})}\n{message}"
        return f"{message} (read with data.fields: {', '.join(self.renamed) or 'nothing of it'})"


_CURRENT: ContextVar[FieldNames] = ContextVar("fields", default=FieldNames(None))  # noqa: B039


def field_names() -> FieldNames:
    """Return the names of the columns of the source that is open."""
    return _CURRENT.get()


@contextmanager
def reading_by(fields: Fields | None, reader: Reader | None = None) -> Iterator[FieldNames]:
    """Open a source by the names of its own columns, and by a reader of the user's own.

    Args:
        fields: ``data.fields``; ``None`` or empty for the names that readers know.
        reader: ``data.reader``; ``None`` for the readers of cfaug alone.

    Raises:
        UserError: an error of a reader, with the names by which it read.
    """
    names = FieldNames(fields, reader)
    token = _CURRENT.set(names)
    try:
        yield names
    except UserError as error:
        if not names:
            raise
        raise UserError(names.explain(str(error))) from error
    finally:
        _CURRENT.reset(token)


def version_of(file: Path) -> tuple[Any, ...]:
    """Return what changes whenever a file, or the names of its columns, may have changed."""
    stat = file.stat()
    return (stat.st_size, stat.st_mtime_ns, *map(repr, field_names().key))


def fields_phrase(renamed: Sequence[str]) -> str:
    """Return the phrase about columns that ``data.fields`` renamed."""
    return f"columns read by data.fields: {', '.join(renamed)}"


def refuse_unused(fields: Fields | None, reader: Reader | None, sources: Mapping[str, Any]) -> None:
    """Refuse fields of which a column is in no source, and a reader that recognises none.

    Args:
        sources: {source: its ``ScanReport`` or ``Description``, or ``None`` without one}.
    """
    readings = {name: reading for name, reading in sources.items() if reading is not None}
    if reader is not None and reader.kind not in (read.kind for read in readings.values()):
        raise UserError(
            f"data.reader would have no effect: {type(reader).__name__} recognises none of the "
            f"sources that are read ({', '.join(sources) or 'none'}); leave it out"
        )
    renamed = {pair for reading in readings.values() for pair in reading.renamed}
    columns = {name: reading.columns for name, reading in readings.items() if reading.columns}
    missing = [c for name, c in FieldNames(fields).pairs() if f"{name}={c}" not in renamed]
    if missing and not columns:
        raise UserError(
            "data.fields would have no effect: it renames columns of lists, parquet and tars, and "
            f"{' and '.join(sources) or 'what is read'} has none of these; leave it out"
        )
    if missing:
        raise UserError(missing_columns(missing, columns))


def missing_columns(missing: Sequence[str], sources: Mapping[str, Sequence[str]]) -> str:
    """Return the sentence about columns that are named and not there, the nearest ones first.

    Args:
        sources: {source: its columns}.
    """
    there = [column for columns in sources.values() for column in columns]
    near = {name: get_close_matches(name, there, 1, 0.5) for name in missing}
    hints = [f"{name!r}" + "".join(f" (did you mean {n}?)" for n in near[name]) for name in missing]
    first = [name for names in near.values() for name in names]
    listed = (
        f"{source} has " + name_some(sorted(columns, key=lambda name: name not in first), SHOWN)
        for source, columns in sources.items()
    )
    return f"data.fields: no column {' and none '.join(hints)}; {'; '.join(listed)}"


def paths_in(record: Mapping[str, Any], deepest: int) -> dict[str, tuple[str, ...]]:
    """Return the place of each value of a record and, as ``OUTER.INNER``, of those in its objects.

    >>> paths_in({"meta": {"title": "a dog"}, "file": "a.jpg"}, 1)
    {'meta': ('meta',), 'file': ('file',), 'meta.title': ('meta', 'title')}
    """
    there: dict[str, tuple[str, ...]] = {name: (name,) for name in record}
    for name, value in record.items() if deepest else ():
        if isinstance(value, Mapping):
            for inner, path in paths_in(value, deepest - 1).items():
                there.setdefault(f"{name}.{inner}", (name, *path))
    return there


def value_at(record: Any, path: Sequence[str]) -> Any:
    """Return the value at a place of a record."""
    return reduce(getitem, path, record)


def _lies_in_null(record: Any, column: str) -> bool:
    """Return whether the object in which a value should lie is null."""
    for part in column.split(".")[:-1]:
        if not isinstance(record, Mapping) or part not in record:
            return False
        record = record[part]
    return record is None


def _without(record: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Return a record without the value at a place, and without the objects that this empties."""
    first, *inside = path
    if first not in record:  # two names of one column
        return record
    rest = dict(record)
    value = rest.pop(first)
    inner = _without(value, inside) if inside else None
    return {name: inner if name == first else rest[name] for name in record} if inner else rest
