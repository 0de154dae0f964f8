"""Stopping a run: a signal is noted at once, and obeyed when a step is saved.

SIGTERM and Ctrl-C mean the same; a second Ctrl-C ends the run at once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from lightning.pytorch.utilities.exceptions import SIGTERMException

AGAIN_SECONDS = 1.0
"""A Ctrl-C that comes sooner is the same one: a terminal and torchrun each pass it on."""

SAID = b"stopping after this step; Ctrl-C again stops at once and loses what is not saved\n"


class StopRequest:
    """Whether this process was asked to end: by SIGTERM from a scheduler or by Ctrl-C.

    Lightning's own handler ends a run at its next check, which may come after the decision whether
    to save and before the next step. This one only records the request.
    """

    def __init__(self) -> None:
        self.asked = False
        self._interrupted: float | None = None

    def listen(self) -> None:
        """Record both signals from now on, replacing other handlers; only the main thread can.

        Lightning installs its handler at the start of ``fit``, so this is called again after that.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._note)
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a shell's background
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
                    os.write(2, SAID)  # print may be at work below this handler
        elif now - self._interrupted > AGAIN_SECONDS:
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[StopRequest]:
    """Listen for SIGTERM and Ctrl-C; raise KeyboardInterrupt once one was obeyed.

    Lightning turns Ctrl-C into ``exit(1)`` and ignores further ones. The former handlers are
    restored at the end.
    """
    handlers = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    request = StopRequest()
    request.listen()
    try:
        yield request
    except SystemExit as stop:
        cause: BaseException | None = stop
        while cause is not None:
            if isinstance(cause, SIGTERMException | KeyboardInterrupt):
                raise KeyboardInterrupt from None
            cause = cause.__context__
        raise
    finally:
        for name, handler in handlers.items():
            if signal.getsignal(name) is not handler:
                signal.signal(name, handler)
