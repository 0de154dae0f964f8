"""Cache files: each has its checksum in its name and is never changed.

So processes can share a folder of them without locks: any file may be deleted at any time. A
damaged file is deleted, and its content is computed again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cfaug.core.files import checksum, write_file


def write_kept(folder: Path, name: str, suffix: str, content: bytes) -> Path:
    """Write a file atomically; its folder is created if missing.

    Args:
        folder: the folder to write into.
        name: the file's name, without its checksum.
        suffix: the end of the file's name, such as ``.npy``.
        content: the file's bytes.

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
    """Read the intact files in the order of their names, and delete damaged ones.

    Args:
        folder: the folder; it may be missing.
        pattern: the glob of the files' names.
        read: a function that is called with each file; it raises ``ValueError``, ``KeyError``,
            ``TypeError`` or ``EOFError`` for invalid content.

    Returns:
        The number of damaged files, not counting files that another process deleted meanwhile.
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
