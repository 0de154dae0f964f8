"""Deadlines for answers of other machines and programs, which may come by single bytes, or never.

The timeouts of most libraries hold for one packet. Here the whole of a request has one deadline,
its retries and pauses included: some patience, and more for every byte that is known to come.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from cfaug.core.errors import UserError

Answer = TypeVar("Answer")

PATIENCE = "CFAUG_REMOTE_SECONDS"
"""The environment variable with the patience for a request in seconds."""
USUAL_S = 600.0
SLOWEST = 2**14
"""Bytes in a second below which a transfer does not make its deadline."""


class OverdueError(TimeoutError):
    """A request whose deadline has passed."""


class Deadline:
    """The deadline of a request, which begins now.

    Args:
        seconds: the patience; ``None`` is that of the environment.
    """

    def __init__(self, seconds: float | None = None) -> None:
        if seconds is None:
            given = os.environ.get(PATIENCE, str(USUAL_S))
            try:
                seconds = float(given)
            except ValueError:
                seconds = 0.0
            if not 0 < seconds <= threading.TIMEOUT_MAX:
                raise UserError(f"{PATIENCE}={given} should be a number of seconds above 0")
        self._seconds = seconds
        self._began = time.monotonic()
        self._bytes = 0

    def extend(self, size: int) -> None:
        """Allow the time that this many more bytes may take."""
        self._bytes += size

    @property
    def left(self) -> float:
        """The seconds that are left; 0 after the deadline."""
        ends = self._began + self._seconds + self._bytes / SLOWEST
        return max(0.0, ends - time.monotonic())

    def call(self, work: Callable[[], Answer]) -> Answer:
        """Return what a function returns that waits for others.

        It runs in a thread of its own, which is left alone after the deadline: most libraries have
        no way to end a call.

        Raises:
            OverdueError: if it does not return in time.
            BaseException: what the function raises.
        """
        answers: list[Any] = []
        errors: list[BaseException] = []
        ended = threading.Event()

        def run() -> None:
            try:
                answers.append(work())
            except BaseException as error:
                errors.append(error)
            finally:
                ended.set()

        name = threading.current_thread().name  # of whom it works for
        threading.Thread(target=run, name=name, daemon=True).start()
        if not ended.wait(self.left):
            raise OverdueError(
                f"no whole answer within {self._seconds + self._bytes / SLOWEST:,.3g} seconds; "
                f"{PATIENCE}=SECONDS waits longer"
            )
        if errors:
            raise errors[0]
        answer: Answer = answers[0]
        return answer
