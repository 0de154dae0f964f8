"""Input that is broken or means harm, and what must come of it."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index


def refused(folder: Path, *named: str) -> str:
    """Check that a folder is refused, the message names the culprits, and nothing is cached."""
    cache = folder.parent / "cache"
    with pytest.raises(UserError) as caught:
        open_index(folder, cache)
    message = str(caught.value)
    assert [name for name in named if name not in message] == []
    assert not cache.exists() or not list(cache.iterdir())
    return message


def assert_refused(source: Path | str, cache: Path, said: str) -> None:
    """Check that a source is refused by a message that matches a pattern."""
    with pytest.raises(UserError, match=said):
        open_index(source, cache)


def huge_png(side: int = 30_000) -> bytes:
    """Return a PNG whose header claims 900 million pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )
