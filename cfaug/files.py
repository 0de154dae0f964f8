"""Writing a file, or a folder, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

READ_AT_ONCE = 2**22


def write_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or the machine's next start, sees all of it or the old one."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def checksum(file: Path) -> int:
    """Return the CRC-32 of a file: enough to notice damage, and as fast as a disk."""
    check = 0
    with file.open("rb") as handle:
        while block := handle.read(READ_AT_ONCE):
            check = zlib.crc32(block, check)
    return check


@contextmanager
def whole_folder(folder: Path, whole: Callable[[Path], bool]) -> Iterator[Path]:
    """Give a private folder to fill, which takes its place when all went well.

    A power cut leaves all of it or nothing. What lies there already is kept if another process was
    first and it is whole, and replaced if it is damaged.

    Args:
        folder: where it is to stand; its parents are made.
        whole: says whether what lies there is what should.

    Raises:
        OSError: where the disk refuses; nothing is left then.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    aside = temporary.with_name(f"{temporary.name}.damaged")
    try:
        yield temporary
        temporary.chmod(0o755)  # others may read it: mkdtemp's is its owner's alone
        _sync(temporary)
        try:
            temporary.rename(folder)
        except OSError:
            if not whole(folder):
                folder.rename(aside)
                temporary.rename(folder)
        _sync_one(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        _remove(aside)


def _sync(folder: Path) -> None:
    """Have the disk hold a folder and everything in it."""
    for here, _, names in os.walk(folder):
        for name in names:
            _sync_one(Path(here, name))
        _sync_one(Path(here))


def _sync_one(path: Path) -> None:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
