"""Processes of one machine: signals that ask them to stop, locks on files, ranks, threads."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Annotated

from cfaug.core.errors import UserError
from cfaug.core.validation import Means, Positive, check

# The reactions of processes to signals that ask them to stop.
#
# SIGTERM, which schedulers send, ends a command as Ctrl-C does (``interruptible``). Training
# records both and finishes its step first (``StopRequest``); a data worker continues until its
# parent ends it (``obey_parent``). Three modules do more than handle signals and are not part of
# this one: ``cfaug.train.engine`` unwraps Lightning's exceptions of an interruption,
# ``cfaug.run.ranks`` is a process of its own that stands in for torchrun and raises its exception,
# and ``cfaug.core.safety.chat_renderer`` is one that imports nothing but Jinja.

AGAIN_SECONDS = 1.0
"""A Ctrl-C within this time is the same one: a terminal and torchrun each pass it on."""
SAID = b"stopping after this step; Ctrl-C again stops at once and loses what is not saved\n"


@contextmanager
def keep_handlers() -> Iterator[None]:
    """Restore the handlers of SIGTERM and Ctrl-C when the block ends."""
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            if signal.getsignal(name) is not handler:
                signal.signal(name, handler)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM, as Python does on Ctrl-C, so that files are closed.

    Child processes of ``multiprocessing`` are terminated as well: a scheduler may have signalled
    only this process, and a pool waits for its children before it ends. Work that must not be
    interrupted, such as a training step, installs its own handlers meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may install handlers
        return
    owner = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:  # a forked child has this handler, but not these children
            pools = sys.modules.get("multiprocessing")  # without it there are no children
            for child in pools.active_children() if pools else ():
                child.terminate()
        raise KeyboardInterrupt

    with keep_handlers():
        signal.signal(signal.SIGTERM, stop)
        yield


def call(command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run a program and return its exit code; on an interruption, stop it and wait for its end.

    ``subprocess.call`` would kill it after a quarter of a second, before it could save.

    Args:
        env: its environment variables; ``None`` takes those of this process.
    """
    with subprocess.Popen(command, env=env) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise


class StopRequest:
    """A record of whether this process was asked to stop, by SIGTERM or by Ctrl-C.

    Lightning's own handler ends a run at its next check, which may come after the decision whether
    to save and before the next step. This one only records the request.
    """

    def __init__(self) -> None:
        self.asked = False
        self._interrupted: float | None = None

    def listen(self) -> None:
        """Record both signals from now on, replacing other handlers; needs the main thread.

        Lightning installs its handler at the start of ``fit``, so this is called again after that.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._note)
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # ignored in the background
                signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if number != signal.SIGINT:
            return
        now = time.monotonic()
        if self._interrupted is None:
            self._interrupted = now
            if os.environ.get("RANK", "0") == "0":
                with suppress(OSError):
                    os.write(2, SAID)  # the handler may have interrupted a print
        elif now - self._interrupted > AGAIN_SECONDS:
            raise KeyboardInterrupt


def obey_parent(worker: int) -> None:
    """Make SIGTERM end this process only if its parent sent it.

    A scheduler sends it to every process of a job at once, but a run first finishes its step and
    saves, which the death of a worker would prevent.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_when_told, args=(os.getppid(),), daemon=True).start()


def _end_when_told(parent: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)


# Locks that processes of one machine hold on files: ``flock``, in twenty lines of code.
#
# filelock is not used (version 4.2; we read its source). It cannot convert a shared lock into an
# exclusive one, which generation needs: its read-write lock is an SQLite file without conversion.
# Without ``flock`` it falls back, with a warning, to a file whose existence is the lock (pull
# request 480; opting out came with 622), and such a lock outlives a process that is killed. It
# refuses a lock file that is a link, polls every 50 ms instead of waiting (a lock changes hands in
# 34 ms instead of 0.2 ms) and takes 25 ms to import.
#
# The kernel releases a lock when its process ends, however it ends, so no lock is ever stale. The
# file itself is never removed or emptied: in a folder that was received it may be a link, and a
# process that removed it might remove one that another process has just locked.


def acquire(file: IO[str] | int, *, shared: bool = False, wait: bool = True) -> bool:
    """Lock an open file until it is closed; convert a lock that is already held.

    Args:
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
        refusal: the error's message if another process holds the lock; ``None`` waits for it.

    Raises:
        OSError: if the file cannot be opened.
    """
    with path.open("a", encoding="utf-8") as file:
        if not acquire(file, wait=refusal is None):
            assert refusal is not None
            raise UserError(refusal)
        yield


PLAN_PRINTED = "CFAUG_SAID"
"""Environment variable, set if the command that started this process has printed the plan."""


def rank() -> int:
    """Return the rank that torchrun or srun gave this process; 0 without either."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))


def has_launcher() -> bool:
    """Say whether torchrun or srun started several of this process."""
    return "WORLD_SIZE" in os.environ or int(os.environ.get("SLURM_NTASKS", "1")) > 1


def speaks() -> bool:
    """Say whether this process is the one of its run that prints the plan."""
    return rank() == 0 and PLAN_PRINTED not in os.environ


Threads = Positive | Annotated[None, Means("all cores")]
"""The number of torch's threads."""


SPINS = "2000"
"""Turns of a waiting thread before it sleeps. A step of the tiny CLIP on two cores, at 100,000,
2,000 and 0 turns: on an idle machine 45, 57 and 71 ms (one thread: 77); beside two busy processes
5.6 to 11, 1.2 to 1.4 and 0.7 to 1.6 times the step of a single thread."""


def wait_briefly() -> None:
    """Make waiting OpenMP threads sleep soon, unless the user chose otherwise.

    On a busy machine a spinning thread takes the core from the thread that it waits for. Must be
    called before torch is loaded. The number of threads, which changes the last digits of sums,
    stays the same, and so do all results.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
        os.environ.setdefault("KMP_BLOCKTIME", "0")  # of LLVM's and Intel's OpenMP


def use_threads(threads: Threads) -> None:
    """Set the number of torch's threads for this process and its children.

    Args:
        threads: the number, at least 1; ``None`` leaves it to OMP_NUM_THREADS or the number of
            cores.
    """
    check(threads, Threads, "threads")
    if threads is None:
        return
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
