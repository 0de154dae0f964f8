"""How a command is told to stop: SIGTERM, which schedulers send, ends it as Ctrl-C does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM, as Python does on Ctrl-C: files closed, locks released.

    Child processes of ``multiprocessing`` are told as well: a scheduler may have told only this
    one, and a pool waits for its children before it lets go. What must not be broken off, such as a
    training step, listens for itself in the meantime.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change what a signal does
        return
    owner = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:  # a forked child has this handler, but not these children
            pools = sys.modules.get("multiprocessing")  # without it there are no children
            for child in pools.active_children() if pools else ():
                child.terminate()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def call(command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run a program and return its exit code; on an interruption stop it, and wait until it has.

    ``subprocess.call`` would kill it after a quarter of a second, before it could save.

    Args:
        command: the program and its words.
        env: its environment; ``None`` is this process's.
    """
    with subprocess.Popen(command, env=env) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise
