"""Files and folders written whole or not at all, and the removal of what killed processes left.

A process that is killed leaves what it was writing. The next one that writes into the same folder
removes it: the name says which process of which machine was at work. What a living process writes,
here or elsewhere, and files of any other name stay.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

LONGEST = 200
"""Bytes of a file's name that its temporary name repeats: systems end at 255."""
ABANDONED = 86_400.0
"""Seconds without a write after which another machine's process is taken for dead."""
NAME = re.compile(r".*\.cfaug-([0-9a-f]{8})-([0-9]{1,9})(?:-\w+)*\.tmp", re.DOTALL)


@contextmanager
def replace_file(path: Path, temporary: Path | None = None) -> Iterator[BinaryIO]:
    """Open a private file that replaces ``path`` when the block ends without an error.

    A reader, even after a power cut, sees all of it or the old file.

    Args:
        temporary: the temporary file, on the same disk, which a killed process leaves behind;
            ``None`` takes a name of this process, whose leftovers a later one removes.

    Raises:
        OSError: naming ``path``, if the disk is full; the old file is kept.
    """
    fresh = temporary or temporary_name(path)
    tidy(path.parent)
    try:
        with fresh.open("wb") as handle:
            yield handle
            sync(handle)
        os.replace(fresh, path)
    except OSError as error:
        if error.errno is None:  # an error of the network that the caller reads from
            raise
        raise with_path(error, path) from error
    finally:
        fresh.unlink(missing_ok=True)


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader, even after a power cut, sees all of it or the old one."""
    with replace_file(path) as handle:
        handle.write(content)


def write_json(
    path: Path, content: Mapping[str, Any], *, indent: int = 1, sort_keys: bool = True
) -> None:
    """Write JSON as ``write_file`` does.

    Args:
        sort_keys: whether keys are sorted or stay in their order.
    """
    write_file(path, to_json(content, indent=indent, sort_keys=sort_keys))


def to_json(content: Mapping[str, Any], *, indent: int = 1, sort_keys: bool = True) -> bytes:
    """Return JSON as files have it, with a newline at the end."""
    return f"{json.dumps(content, indent=indent, sort_keys=sort_keys)}\n".encode()


@contextmanager
def whole_folder(folder: Path, whole: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield a private folder to fill, which is renamed to ``folder`` when the block succeeds.

    A power cut leaves all of it or nothing. An existing folder, such as one that another process
    wrote first, is kept if it is whole and replaced if it is damaged.

    Args:
        folder: the final place; its parents are created.

    Raises:
        OSError: if the disk cannot be written; no temporary folder remains then.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    tidy(folder.parent)
    start = temporary_start(folder.with_name(f".{folder.name}")).name
    temporary = Path(tempfile.mkdtemp(prefix=f"{start}-", suffix=".tmp", dir=folder.parent))
    aside = temporary.with_name(f"{temporary.stem}-damaged.tmp")
    try:
        yield temporary
        temporary.chmod(0o755)  # readable for others: mkdtemp's is private to its owner
        sync_tree(temporary)
        try:
            temporary.rename(folder)
        except OSError:
            if not whole(folder):
                folder.rename(aside)
                temporary.rename(folder)
        _sync_one(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, which replaces ``folder`` when the block succeeds.

    The old folder is removed only then. A block that fails or is killed leaves ``folder`` as it
    was; its files are removed by the next call. Only one process may write ``folder`` at a time;
    ``whole_folder`` is for several.

    Raises:
        OSError: naming ``folder``, if the disk is full.
    """
    fresh, stale = (folder.with_name(f".{folder.name}.{tag}") for tag in ("new", "old"))
    for leftover in (fresh, stale):
        shutil.rmtree(leftover, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        sync_tree(fresh)
        if folder.exists():
            folder.rename(stale)
        fresh.rename(folder)
    except OSError as error:
        raise with_path(error, folder) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    _sync_one(folder.parent)
    shutil.rmtree(stale, ignore_errors=True)


def with_path(error: OSError, path: Path) -> OSError:
    """Return the disk's error with ``path``, since the error of a write does not name its file."""
    return OSError(error.errno, error.strerror, str(path))


def sync(handle: BinaryIO) -> None:
    """Flush an open file to the disk."""
    handle.flush()
    os.fsync(handle.fileno())


def sync_tree(folder: Path) -> None:
    """Flush a folder and everything in it to the disk."""
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


# Names of files while they are written.


def temporary_start(path: Path) -> Path:
    """Return the temporary name of ``path`` in this process, without the end ``.tmp``."""
    start = os.fsencode(path.name)[:LONGEST].decode(errors="ignore")
    return path.with_name(f"{start}.cfaug-{_machine()}-{os.getpid()}")


def temporary_name(path: Path) -> Path:
    """Return where this process writes a file that replaces ``path`` when it is whole."""
    start = temporary_start(path)
    return start.with_name(f"{start.name}.tmp")


def is_temporary(name: str) -> bool:
    """Say whether a file has the name of one that is being written, or was when a process died.

    >>> is_temporary("00000.tar.cfaug-0123abcd-77.tmp"), is_temporary("00000.tar.77.tmp")
    (True, False)
    """
    return NAME.fullmatch(name) is not None


@lru_cache(maxsize=1)
def _machine() -> str:
    """Return what distinguishes the machines that number their processes themselves."""
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
        return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:8]
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def remove_leftovers(folder: Path) -> None:
    """Remove what dead processes were writing into a folder, which may be missing."""
    try:
        names = [name for name in os.listdir(folder) if is_temporary(name)]
    except OSError:
        return
    for path in (folder / name for name in names):
        with suppress(OSError):  # another process may remove it at the same time
            if path.is_symlink() or not _is_left(path):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def tidy(folder: Path) -> None:
    """Remove a folder's leftovers, once in a process: a folder may have 100,000 files."""
    _tidy(os.path.realpath(folder))


@lru_cache(maxsize=4096)
def _tidy(folder: str) -> None:
    remove_leftovers(Path(folder))


def _is_left(path: Path) -> bool:
    match = NAME.fullmatch(path.name)
    assert match is not None
    if match[1] == _machine():
        return not _is_running(int(match[2]))
    files = [path, *(path.rglob("*") if path.is_dir() else ())]
    return time.time() - max(file.lstat().st_mtime for file in files) > ABANDONED


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    try:
        about = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return about.rpartition(")")[2].split()[:1] != ["Z"]  # killed, and its parent does not know
