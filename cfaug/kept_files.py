"""Files that may be lost: each has its checksum in its name and is never changed.

So processes share a folder of them without talking: any file may be deleted at any time, and one
that is damaged is deleted, for what it held is made again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cfaug.files import checksum, write_file


def write_kept(folder: Path, name: str, suffix: str, content: bytes) -> Path:
    """Write a file whole, in a folder that is made for it.

    Args:
        folder: where.
        name: of the file, without its checksum.
        suffix: such as ``.npy``.
        content: all of it.

    Returns:
        The file.

    Raises:
        OSError: if it cannot be written.
    """
    file = folder / f"{name}-{zlib.crc32(content):08x}{suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    write_file(file, content)
    return file


def read_kept(folder: Path, pattern: str, read: Callable[[Path], None]) -> int:
    """Read the files that are whole, in the order of their names, and delete those that are not.

    Args:
        folder: where; may be missing.
        pattern: of their names.
        read: takes in one file; raises ``ValueError``, ``KeyError``, ``TypeError`` or ``EOFError``
            for one that does not hold what it should.

    Returns:
        How many were damaged. One that another process deleted meanwhile is not.
    """
    damaged = 0
    for file in sorted(folder.glob(pattern)):
        try:
            if f"{checksum(file):08x}" != file.stem.rpartition("-")[2]:
                raise ValueError(f"{file}: its checksum is not that of its name")
            read(file)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, EOFError):
            damaged += 1
            with suppress(OSError):
                file.unlink()
    return damaged
