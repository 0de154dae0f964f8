"""Locks that processes of one machine hold on files: ``flock``, in twenty lines of code.

filelock is not used (version 4.2; we read its source). It cannot convert a shared lock into an
exclusive one, which generation needs: its read-write lock is an SQLite file without conversion.
Without ``flock`` it falls back, with a warning, to a file whose existence is the lock (pull request
480; opting out came with 622), and such a lock outlives a process that is killed. It refuses a lock
file that is a link, polls every 50 ms instead of waiting (a lock changes hands in 34 ms instead of
0.2 ms) and takes 25 ms to import.

The kernel releases a lock when its process ends, however it ends, so no lock is ever stale. The
file itself is never removed or emptied: in a folder that was received it may be a link, and a
process that removed it might remove one that another process has just locked.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cfaug.core.errors import UserError


def acquire(file: IO[str] | int, *, shared: bool = False, wait: bool = True) -> bool:
    """Lock an open file until it is closed; convert a lock that is already held.

    Args:
        file: an open file, or its descriptor.
        shared: whether other shared locks are admitted; an exclusive one never is.
        wait: whether to block until other processes release the file; otherwise return at once.

    Returns:
        Whether the lock is held now; always true with ``wait``.
    """
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, operation if wait else operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def hold_lock(path: Path, refusal: str | None = None) -> Iterator[None]:
    """Hold an exclusive lock on a file while the block runs; the file is created if missing.

    Args:
        path: the file to lock.
        refusal: the error's message if another process holds the lock; ``None`` waits for it.

    Raises:
        UserError: with ``refusal``, if another process holds the lock.
        OSError: if the file cannot be opened.
    """
    with path.open("a", encoding="utf-8") as file:
        if not acquire(file, wait=refusal is None):
            assert refusal is not None
            raise UserError(refusal)
        yield
