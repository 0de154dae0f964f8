"""What others released, as it lies on a disk: what its importers share.

An image inside a zip or a parquet file is not a stretch of bytes that an index could point at, so
such data is imported into shards, once. What can be read where it lies has a ``Reader`` instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from cfaug.data.sources.image_check import check_image
from cfaug.data.sources.lists import require_unicode
from cfaug.data.sources.row import Description
from cfaug.data.storage.codec import image_extension
from cfaug.errors import UserError
from cfaug.types import CounterfactualSet

MAX_BYTES = 64 * 2**20
"""Of one encoded image: far above any photograph, far below what a bomb would claim."""


class Importer(Protocol):
    """One form of released counterfactual data; the attributes are those of ``Reader``."""

    kind: str
    form: str
    description: str

    def recognises(self, path: Path) -> bool:
        """Say whether a folder has this form, from names and column names alone."""
        ...

    def describe(self, path: Path) -> Description:
        """Return what is read of a folder and what is not; asked once, when it is imported."""
        ...

    def identity(self, path: Path) -> Any:
        """Return JSON that changes when the content may have changed."""
        ...

    def sets(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield every set, or raise UserError naming file and row of what is wrong."""
        ...


def require_image(data: bytes, where: str) -> bytes:
    """Return an encoded image after a look at its size, header and end.

    Raises:
        UserError: naming ``where``, if it is too large, truncated, or no PNG, JPEG or WebP.
    """
    if len(data) > MAX_BYTES:
        raise UserError(f"{where}: {len(data)} bytes is no image; at most {MAX_BYTES} are read")
    check_image(lambda at, n: data[at : at + n], len(data), where)
    image_extension(data, where)
    return data


def text_field(record: dict[str, Any], name: str, where: str) -> str:
    """Return a text or whole number of a record, as text.

    Raises:
        UserError: naming ``where`` and what is there, if it is missing or something else.
    """
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        found = ", ".join(map(str, record))
        raise UserError(
            f"{where}: {name!r} should be a text, not {value!r}; the columns are {found}"
        )
    return require_unicode(str(value), where)
