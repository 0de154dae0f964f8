"""How a run is told to stop: SIGTERM is noted at any instant, and obeyed once a step is saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from lightning.pytorch.utilities.exceptions import SIGTERMException


class StopRequest:
    """Whether somebody asked this process to end, as a scheduler does that takes the machine back.

    Lightning's own handler ends a run where Lightning happens to look next, which may be after the
    question whether to save and before the next step. This one only takes note.
    """

    def __init__(self) -> None:
        self.asked = False

    def listen(self) -> None:
        """Take note of SIGTERM from here on, in place of whoever listens: only the main thread can.

        Lightning sets up its handler when ``fit`` has begun, so this is called again after that.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


@contextmanager
def interruptible() -> Iterator[StopRequest]:
    """Listen for SIGTERM; give an obeyed one, and Ctrl-C, to the caller as KeyboardInterrupt.

    Lightning turns Ctrl-C into ``exit(1)`` and goes deaf to it. Handlers are as before afterwards.
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
