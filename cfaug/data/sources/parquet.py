"""Parquet of the Hugging Face Hub: rows checked and assembled into sets.

Images are structs of bytes and path. Files are read in batches of a few rows, so that the memory
needed is that of the sets being assembled, whatever the folder's size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular, visible_files
from cfaug.core.pixels import check_image
from cfaug.core.text import require_unicode
from cfaug.data.shards.codec import image_extension
from cfaug.data.sources.fields import field_names
from cfaug.data.sources.row import whole

ROWS_AT_ONCE = 16
FEW_ROWS = 4096
"""Number of rows read at once from columns without images."""
DAMAGE = (OSError, ValueError, KeyError, OverflowError)
"""Errors that Arrow raises for a damaged file, besides its own."""
ParquetRecord = tuple[str, dict[str, Any]]


def parquet_files(path: Path) -> list[Path]:
    """Return the parquet files of a folder or its ``data/``, unless shards are beside them."""
    for folder in (path, path / "data"):
        files = visible_files(folder.glob("*.parquet"))
        if files:
            return [] if visible_files(folder.glob("*.tar")) else files
    return []


def open_parquet(file: Path) -> Any:
    """Open a parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(require_regular(file))
        table.schema_arrow  # noqa: B018  # read here, so that its errors are reported here
        return table
    except (pa.ArrowException, *DAMAGE) as error:
        raise UserError(f"{file} is not readable parquet ({error}); fetch it again") from error


def column_names(file: Path) -> list[str]:
    """Return the columns of a parquet file, in order."""
    if field_names():
        return list(column_kinds(file))
    with open_parquet(file) as table:
        return list(table.schema_arrow.names)


def column_kinds(file: Path) -> dict[str, Any]:
    """Return the Arrow type of each column of a parquet file, of a struct {part: its type}."""
    with open_parquet(file) as table:
        return field_names().apply(_kinds_of(table.schema_arrow), file)


def _kinds_of(parts: Any) -> dict[str, Any]:
    import pyarrow as pa

    nested = pa.types.is_struct
    return {p.name: _kinds_of(p.type) if nested(p.type) else p.type for p in parts}


def records(
    files: Sequence[Path],
    columns: Sequence[str] | None = None,
    needed: Collection[str] = (),
) -> Iterator[ParquetRecord]:
    """Yield (place, row) of every file, in order.

    Args:
        columns: columns of a row, all of which must exist, or ``COLUMN.PART`` for a part, if the
            column has it; ``None`` is all columns.
        needed: further columns that must exist.
    """
    import pyarrow as pa

    for file in files:
        number = 0
        names = field_names()
        there = set(column_kinds(file))
        wanted = {c if c in there else c.partition(".")[0] for c in columns or ()}
        missing = {*wanted, *needed} - there
        if missing:
            raise UserError(f"{file} has no column {', '.join(sorted(missing))}")
        rows = ROWS_AT_ONCE if columns is None else FEW_ROWS
        origins = None if columns is None else [_origin(column, there) for column in columns]
        table = open_parquet(file)
        try:
            for batch in table.iter_batches(batch_size=rows, columns=origins):
                for record in batch.to_pylist():
                    number += 1
                    yield f"{file}, row {number}", names.apply(record, file)
        except (pa.ArrowException, *DAMAGE) as error:
            raise UserError(
                f"{file} cannot be read after row {number} ({error}); fetch it again"
            ) from error
        finally:
            table.close()


def _origin(column: str, there: Collection[str]) -> str:
    """Return the own name of a column or of ``COLUMN.PART``."""
    head, dot, part = (column, "", "") if column in there else column.partition(".")
    return f"{field_names().origin(head)}{dot}{part}"


def holds_images(kind: Any) -> bool:
    """Return whether a type is that of images: encoded, or a struct of bytes and path.

    Args:
        kind: an Arrow type, or the parts of a struct from ``column_kinds``.
    """
    import pyarrow as pa

    types = pa.types
    if isinstance(kind, dict):
        return True
    return bool(types.is_struct(kind) or types.is_binary(kind) or types.is_large_binary(kind))


def cell_bytes(image: object) -> Any:
    """Return the content of a cell with an image: encoded, or a struct of bytes and path."""
    return image.get("bytes") if isinstance(image, dict) else image


def image_of(record: dict[str, Any], name: str, where: str) -> bytes:
    """Return the encoded image in a column, after checking it."""
    data = cell_bytes(record.get(name))
    if not isinstance(data, bytes):
        raise UserError(f"{where}: {name!r} holds no image bytes; download the files with them")
    return require_image(data, f"{where}: {name}")


MAX_BYTES = 64 * 2**20
"""Maximum size of an encoded image in bytes: far above any photo, far below a bomb."""


def require_image(data: bytes, where: str) -> bytes:
    """Return an encoded image after checking its size, header and end."""
    if len(data) > MAX_BYTES:
        raise UserError(f"{where}: {len(data)} bytes are too many; at most {MAX_BYTES} are read")
    check_image(lambda at, n: data[at : at + n], len(data), where)
    image_extension(data, where)
    return data


def text_field(record: dict[str, Any], name: str, where: str) -> str:
    """Return a text or whole number of a record, as text."""
    value = whole(record.get(name))
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        columns = ", ".join(map(str, record))
        raise UserError(
            f"{where}: {name!r} should be a text, not {value!r}; the columns are {columns}"
        )
    return require_unicode(str(value), where)
