"""Columns that only some sources have: attributes, kinds of edits, and other columns of a list.

They are in one Arrow file beside the other columns, memory-mapped on first use, and typed:
booleans, whole numbers, floats, texts; anything else (lists, objects, mixed types) is JSON in a
column of texts marked as such. They are not part of a source's hash.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.data.index.arrow_file import read_table
from cfaug.data.index.string_column import GrowingStrings
from cfaug.data.sources.lists import require_unicode

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

EXTRA = "extra.arrow"

MOST_COLUMNS = 256
"""Maximum number of columns: a file with more is not a list of attributes."""

ROWS_AT_ONCE = 2**16
"""Number of rows of one batch, kept in memory until it is written."""

ENCODED_AT_ONCE = 2**10
"""Number of rows whose values are encoded together."""

JSON = {b"cfaug": b"json"}
"""Metadata of a field whose texts are JSON."""

WHOLE = range(-(2**63), 2**63)
EXACT = range(-(2**53), 2**53 + 1)
"""Whole numbers that both int64 and float64 columns represent exactly."""


_json = json.JSONEncoder(ensure_ascii=False).encode


class GrowingExtra:
    """Extra values during writing, kept as JSON with many rows in one text."""

    def __init__(self) -> None:
        self._rows, self._texts = array("q"), GrowingStrings()
        self._kinds: dict[str, set[str]] = {}
        self._waiting: list[Mapping[str, Any]] = []
        self._where: list[str] = []

    def add(self, row: int, values: Mapping[str, Any], where: str) -> None:
        """Keep the values of a row, in ascending order of rows.

        Args:
            row: the number of the row.
            values: {column: value}, JSON.
            where: the place of the row, for messages.

        Raises:
            UserError: if a text is not Unicode, naming its row; possibly some rows later.
        """
        self._rows.append(row)
        self._waiting.append(values)
        self._where.append(where)
        if len(self._waiting) == ENCODED_AT_ONCE:
            self._encode()

    def _encode(self) -> None:
        """Encode the pending rows in one call: starting an encoder costs more than a row."""
        try:
            self._texts.append(_json([dict(values) for values in self._waiting]))
        except UnicodeEncodeError:
            for values, where in zip(self._waiting, self._where, strict=True):
                require_unicode(_json(dict(values)), where)
            raise
        for values in self._waiting:
            for name, value in values.items():
                if name not in self._kinds:
                    self._kinds[name] = set()
                if value is not None:
                    self._kinds[name].add(_kind(value))
        self._waiting, self._where = [], []

    def save(self, folder: Path, rows: int) -> tuple[tuple[str, ...], int]:
        """Write the columns of ``rows`` rows, if there are any values.

        Returns:
            The names of the columns, and the number of columns left out beyond the limit.

        Raises:
            UserError: if a text is not Unicode, naming its row.
        """
        if self._waiting:
            self._encode()
        if not self._rows:
            return (), 0
        import pyarrow as pa

        kept = dict(list(self._kinds.items())[:MOST_COLUMNS])
        schema = pa.schema([pa.field(name, *_arrow_type(kinds)) for name, kinds in kept.items()])
        with pa.OSFile(str(folder / EXTRA), "wb") as file, pa.ipc.new_file(file, schema) as out:
            written = zip(self._rows, self._values(), strict=True)
            row, values = next(written)
            for start in range(0, rows, ROWS_AT_ONCE):
                batch: list[Mapping[str, Any]] = [{}] * min(ROWS_AT_ONCE, rows - start)
                while start <= row < start + len(batch):
                    batch[row - start] = values
                    row, values = next(written, (-1, {}))
                out.write_batch(_batch(batch, schema))
        return tuple(kept), len(self._kinds) - len(kept)

    def _values(self) -> Iterator[Mapping[str, Any]]:
        for text in self._texts.column():
            yield from json.loads(text)


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if value in EXACT else "large int" if value in WHOLE else "json"
    return "float" if isinstance(value, float) else "json"


def _arrow_type(kinds: set[str]) -> tuple[Any, bool, dict[bytes, bytes] | None]:
    """Return the Arrow type, nullability and metadata of a column."""
    import pyarrow as pa

    plain = {
        pa.bool_(): {"bool"}, pa.int64(): {"int", "large int"}, pa.float64(): {"int", "float"},
        pa.string(): {"text"},
    }  # fmt: skip
    found = next((kind for kind, taken in plain.items() if kinds <= taken), None)
    return (pa.string(), True, JSON) if found is None else (found, True, None)


def _batch(values: list[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns = []
    for field in schema:
        found = [one.get(field.name) for one in values]
        if field.metadata == JSON:
            found = [None if one is None else _json(one) for one in found]
        columns.append(pa.array(found, field.type))
    return pa.record_batch(columns, schema=schema)


class ExtraColumns:
    """The extra columns of an index, read-only and memory-mapped.

    Args:
        folder: the folder of the index.
        rows: the number of rows of the index.

    Raises:
        ValueError: if the file lacks such columns, is compressed, or has another number of rows.
        OSError: if it cannot be read.
    """

    def __init__(self, folder: Path, rows: int) -> None:
        import pyarrow as pa

        file = require_regular(folder / EXTRA)
        table = read_table(file, (pa.bool_(), pa.int64(), pa.float64(), pa.string()))
        if table.num_rows != rows or len(set(table.column_names)) != table.num_columns:
            raise ValueError(f"{EXTRA} holds other rows or columns than were written")
        self.table = table
        self._json = {field.name for field in table.schema if field.metadata == JSON}

    def row(self, row: int) -> dict[str, Any]:
        """Return the values of a row that are not null, with JSON decoded."""
        return self._decode(self.table.slice(row, 1).to_pylist()[0])

    def values(self, name: str, rows: np.ndarray) -> list[Any]:
        """Return the values of a column at some rows, with JSON decoded and ``None`` for null."""
        found: list[Any] = self.table.column(name).take(rows).to_pylist()
        if name not in self._json:
            return found
        return [None if one is None else _read_json(one, name) for one in found]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the result of ``row`` for every row, reading batch by batch."""
        for batch in self.table.to_batches(ROWS_AT_ONCE):
            yield from map(self._decode, batch.to_pylist())

    def _decode(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: _read_json(value, name) if name in self._json else value
            for name, value in found.items()
            if value is not None
        }


def _read_json(text: str, column: str) -> Any:
    """Decode one value, which may be anything in an index from elsewhere.

    Raises:
        UserError: if the value is invalid JSON, naming the column.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"the column {column!r} of {EXTRA} holds invalid JSON ({error}): make the index again"
        ) from error
