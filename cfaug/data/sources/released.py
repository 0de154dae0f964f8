"""Images and texts of released data, checked."""

from __future__ import annotations

from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.pixels import check_image
from cfaug.data.shards.codec import image_extension
from cfaug.data.sources.lists import require_unicode

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
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        found = ", ".join(map(str, record))
        raise UserError(
            f"{where}: {name!r} should be a text, not {value!r}; the columns are {found}"
        )
    return require_unicode(str(value), where)
