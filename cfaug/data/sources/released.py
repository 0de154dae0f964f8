"""Shared code of importers of released data.

An image inside a zip or a parquet file is not a range of bytes that an index can refer to, so such
data is imported into shards once. Data that can be read in place has a ``Reader`` instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from cfaug.core.errors import UserError
from cfaug.core.pixels import check_image
from cfaug.core.types import CounterfactualSet
from cfaug.data.shards.codec import image_extension
from cfaug.data.sources.lists import require_unicode
from cfaug.data.sources.row import Description

MAX_BYTES = 64 * 2**20
"""Maximum size of an encoded image in bytes: far above any photo, far below a bomb."""


class Importer(Protocol):
    """An importer of one form of released data; the attributes are those of ``Reader``."""

    kind: str
    form: str
    description: str

    def recognises(self, path: Path) -> bool:
        """Return whether a folder has this form, by names of files and columns alone."""
        ...

    def describe(self, path: Path) -> Description:
        """Return what is read from a folder and what is not; called once, at the import."""
        ...

    def identity(self, path: Path) -> Any:
        """Return JSON that changes whenever the content may have changed."""
        ...

    def sets(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield every set, or raise UserError naming the invalid file and row."""
        ...


def require_image(data: bytes, where: str) -> bytes:
    """Return an encoded image after checking its size, header and end."""
    if len(data) > MAX_BYTES:
        raise UserError(f"{where}: {len(data)} bytes are too many; at most {MAX_BYTES} are read")
    check_image(lambda at, n: data[at : at + n], len(data), where)
    image_extension(data, where)
    return data


def text_field(record: dict[str, Any], name: str, where: str) -> str:
    """Return a text or whole number of a record, as text."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        found = ", ".join(map(str, record))
        raise UserError(
            f"{where}: {name!r} should be a text, not {value!r}; the columns are {found}"
        )
    return require_unicode(str(value), where)
