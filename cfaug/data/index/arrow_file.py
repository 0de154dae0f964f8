"""Reading of untrusted Arrow files: memory-mapped, without decompression."""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC = b"ARROW1\0\0"
"""The beginning of an Arrow file; a stream of messages and a footer follow."""

HEADER, COMPRESSION = 2, 3
"""Numbers of fields: a Message's header, a RecordBatch's compression (Arrow's ``format/*.fbs``)."""


def read_table(file: Path, types: Collection[Any]) -> pa.Table:
    """Return the table of an uncompressed Arrow file, with its buffers memory-mapped.

    A compressed buffer of some kilobytes can become gigabytes before any row is seen.

    Args:
        file: the Arrow file.
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
    """Return whether a record batch is compressed: it then has a field that says how."""
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
