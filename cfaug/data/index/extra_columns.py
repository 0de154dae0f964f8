"""Columns that only some sources have: attributes, kinds of edits, and other columns of a list.

They are in one Arrow file beside the other columns, memory-mapped on first use, and typed:
booleans, whole numbers, floats, texts; anything else (lists, objects, mixed types) is JSON in a
column of texts marked as such. They are not part of a source's hash. The columns of texts that
every index has (captions, keys, labels) are Arrow files, too.
"""

from __future__ import annotations

import json
import struct
import tempfile
from array import array
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.safety.json_text import load_json
from cfaug.core.text import require_unicode

if TYPE_CHECKING:
    import pyarrow as pa


EXTRA = "extra.arrow"
MOST_COLUMNS = 256
"""Maximum number of columns: a file with more is not a list of attributes."""
ROWS_AT_ONCE = 2**16
"""Number of rows of one batch, kept in memory until it is written."""
ENCODED_AT_ONCE = 2**10
"""Number of rows whose values are encoded together."""
SPOOLED = 2**24
"""Number of characters that are kept in memory before they become a file."""
JSON = {b"cfaug": b"json"}
"""Metadata of a field whose texts are JSON."""
WHOLE = range(-(2**63), 2**63)
EXACT = range(-(2**53), 2**53 + 1)
"""Whole numbers that both int64 and float64 columns represent exactly."""
_json = json.JSONEncoder(ensure_ascii=False).encode


class GrowingExtra:
    """Extra values during writing, kept in a temporary file as JSON with many rows in one line.

    Args:
        folder: the folder of that file, which has no name there; ``None`` is the system's.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._rows = array("q")
        self._texts = tempfile.SpooledTemporaryFile(  # noqa: SIM115  # closed once it is saved
            SPOOLED,
            "w+",
            encoding="utf-8",
            newline="\n",
            dir=None if folder is None else str(folder),
        )
        self._kinds: dict[str, set[str]] = {}
        self._waiting: list[Mapping[str, Any]] = []
        self._where: list[str] = []

    def add(self, row: int, values: Mapping[str, Any], where: str) -> None:
        """Keep the values of a row, in ascending order of rows.

        Args:
            values: {column: value}, JSON.
        """
        self._rows.append(row)
        self._waiting.append(values)
        self._where.append(where)
        if len(self._waiting) == ENCODED_AT_ONCE:
            self._encode()

    def _encode(self) -> None:
        """Encode the pending rows in one call: starting an encoder costs more than a row."""
        try:
            text = _json([dict(values) for values in self._waiting])
            text.encode()
            self._texts.write(f"{text}\n")
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
        """
        if self._waiting:
            self._encode()
        if not self._rows:
            return (), 0
        import pyarrow as pa

        kept = dict(list(self._kinds.items())[:MOST_COLUMNS])
        plain = {
            pa.bool_(): {"bool"}, pa.int64(): {"int", "large int"}, pa.float64(): {"int", "float"},
            pa.string(): {"text"},
        }  # fmt: skip
        fields = []
        for name, kinds in kept.items():
            arrow_type = next((kind for kind, taken in plain.items() if kinds <= taken), None)
            if arrow_type is None:  # mixed, or not plain
                fields.append(pa.field(name, pa.string(), metadata=JSON))
            else:
                fields.append(pa.field(name, arrow_type))
        schema = pa.schema(fields)
        with (
            self._texts,
            pa.OSFile(str(folder / EXTRA), "wb") as file,
            pa.ipc.new_file(file, schema) as out,
        ):
            self._texts.seek(0)
            every = chain.from_iterable(map(json.loads, self._texts))
            written = zip(self._rows, every, strict=True)
            row, values = next(written)
            for start in range(0, rows, ROWS_AT_ONCE):
                batch: list[Mapping[str, Any]] = [{}] * min(ROWS_AT_ONCE, rows - start)
                while start <= row < start + len(batch):
                    batch[row - start] = values
                    row, values = next(written, (-1, {}))
                columns = []
                for field in schema:
                    cells = [extra.get(field.name) for extra in batch]
                    if field.metadata == JSON:
                        cells = [None if cell is None else _json(cell) for cell in cells]
                    columns.append(pa.array(cells, field.type))
                out.write_batch(pa.record_batch(columns, schema=schema))
        return tuple(kept), len(self._kinds) - len(kept)


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if value in EXACT else "large int" if value in WHOLE else "json"
    return "float" if isinstance(value, float) else "json"


class ExtraColumns:
    """The extra columns of an index, read-only and memory-mapped.

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
        column: list[Any] = self.table.column(name).take(rows).to_pylist()
        if name not in self._json:
            return column
        return [None if value is None else _read_json(value, name) for value in column]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the result of ``row`` for every row, reading batch by batch."""
        for batch in self.table.to_batches(ROWS_AT_ONCE):
            yield from map(self._decode, batch.to_pylist())

    def _decode(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: _read_json(value, name) if name in self._json else value
            for name, value in row.items()
            if value is not None
        }


def _read_json(text: str, column: str) -> Any:
    """Decode one value, which may be anything in an index from elsewhere."""
    try:
        return load_json(text)
    except ValueError as error:
        raise UserError(
            f"the column {column!r} of {EXTRA} holds invalid JSON ({error}): make the index again"
        ) from error


# A column of texts in an Arrow file: a text becomes a Python object when it is read.


class Strings:
    """A read-only column; ``column[i]`` decodes one text.

    Args:
        texts: the texts, large_string, without null.
    """

    def __init__(self, texts: pa.ChunkedArray) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), ENCODED_AT_ONCE):
            yield from self._texts.slice(start, ENCODED_AT_ONCE).to_pylist()

    def __getitem__(self, row: int) -> str:
        text: str = self._texts[row].as_py()
        return text

    def take(self, rows: np.ndarray) -> list[str]:
        """Return the texts of some rows, integers (rows,)."""
        import pyarrow as pa

        # pa.array would import pandas where that is installed.
        parts = None, pa.py_buffer(np.ascontiguousarray(rows, np.int64))
        numbers = pa.Array.from_buffers(pa.int64(), len(rows), parts)
        texts: list[str] = self._texts.take(numbers).to_pylist()
        return texts

    def has_any(self, words: pa.Array) -> bool:
        """Return whether any text is one of some words in lower case, large_string."""
        import pyarrow.compute as pc

        lower = pc.utf8_lower(self._texts)
        return bool(pc.any(pc.is_in(lower, value_set=words)).as_py())

    @classmethod
    def load(cls, folder: Path, name: str) -> Strings:
        """Map ``name.arrow`` into memory.

        Raises:
            ValueError: if the file holds anything but texts in UTF-8.
            OSError: if it cannot be read.
        """
        import pyarrow as pa

        file = require_regular(folder / f"{name}.arrow")
        table = read_table(file, (pa.large_string(),))
        if table.num_columns != 1 or table.column(0).null_count:
            raise ValueError(f"{file.name} holds other columns than one of texts")
        return cls(table.column(0))


def map_column(file: Path) -> np.ndarray:
    """Map a column into memory; nothing in it is ever unpickled."""
    # A plain view: indexing a memmap object costs ten times as much.
    return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))


# Reading of untrusted Arrow files: memory-mapped, without decompression.

MAGIC = b"ARROW1\0\0"
"""The beginning of an Arrow file; a stream of messages and a footer follow."""
HEADER, COMPRESSION = 2, 3
"""Numbers of fields: a Message's header, a RecordBatch's compression (Arrow's ``format/*.fbs``)."""


def read_table(file: Path, types: Collection[Any]) -> pa.Table:
    """Return the table of an uncompressed Arrow file, with its buffers memory-mapped.

    A compressed buffer of some kilobytes can become gigabytes before any row is seen.

    Args:
        types: the types that a column may have.

    Raises:
        ValueError: if it is not an Arrow file, has a column of another type, or has anything but
            uncompressed rows.
        OSError: if it cannot be read.
    """
    import pyarrow as pa

    with pa.memory_map(str(file)) as source:
        content = source.read_buffer()
    if content.size < len(MAGIC) or content[: len(MAGIC)].to_pybytes() != MAGIC:
        raise ValueError(f"{file.name} is not an Arrow file")
    stream = content.slice(len(MAGIC))
    try:
        for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(stream)):
            if message.type not in ("schema", "record batch"):
                raise ValueError(f"{file.name} holds a {message.type}, not rows alone")
            if message.type == "record batch" and _is_compressed(message.metadata):
                raise ValueError(f"{file.name} is compressed, and what is written here never is")
        reader = pa.ipc.open_stream(pa.BufferReader(stream))
        odd = [field.name for field in reader.schema if field.type not in types]
        if odd:
            raise ValueError(f"{file.name} holds other columns than were written ({odd})")
        table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, struct.error) as error:
        raise ValueError(f"{file.name} is not a readable Arrow file: {error}") from error
    return table


def _is_compressed(message: pa.Buffer) -> bool:
    (root,) = struct.unpack_from("<I", message)
    header = _field(message, root, HEADER)
    if header is None:
        return False
    (offset,) = struct.unpack_from("<I", message, header)
    return _field(message, header + offset, COMPRESSION) is not None


def _field(content: pa.Buffer, table: int, number: int) -> int | None:
    """Return the place of a field in a flatbuffer's table, ``None`` if the table lacks it."""
    (back,) = struct.unpack_from("<i", content, table)
    (size,) = struct.unpack_from("<H", content, table - back)
    if 4 + 2 * number + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", content, table - back + 4 + 2 * number)
    return table + offset if offset else None
