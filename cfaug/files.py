"""Writing a file, or a folder, whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cfaug.errors import UserError

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
    except OSError as error:
        raise with_path(error, path) from error
    finally:
        temporary.unlink(missing_ok=True)


def with_path(error: OSError, path: Path) -> OSError:
    """Return what the disk refused, told of ``path``: a write itself does not know its file."""
    return OSError(error.errno, error.strerror, str(path))


def require_regular(file: Path) -> Path:
    """Return a file that may be opened; what is not there is for the opener to tell.

    A pipe would be waited for for ever, and a device may have no end.

    Raises:
        UserError: if it is a pipe, a socket or a device, or a link to one.
        OSError: if nothing can be known of it, but for its not being there.
    """
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return file
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a folder cannot be opened, which is told
        kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        found = kinds.get(stat.S_IFMT(mode), "a device")
        raise UserError(
            f"{file} is no regular file but {found}; it is not opened: remove or rename it"
        )
    return file


def checksum(file: Path) -> int:
    """Return the CRC-32 of a file: enough to notice damage, and as fast as a disk."""
    check = 0
    with require_regular(file).open("rb") as handle:
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
