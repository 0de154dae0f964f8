"""Names of files and folders while they are written, and the removal of those that nobody ends.

A process that is killed leaves what it was writing. The next one that writes into the same folder
removes it: the name says which process of which machine was at work. What a living process writes,
here or elsewhere, and files of any other name stay.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

LONGEST = 200
"""Bytes of a file's name that its temporary name repeats: systems end at 255."""
ABANDONED = 86_400.0
"""Seconds without a write after which another machine's process is taken for dead."""
NAME = re.compile(r".*\.cfaug-([0-9a-f]{8})-([0-9]{1,9})(?:-\w+)*\.tmp", re.DOTALL)


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
