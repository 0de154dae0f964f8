"""Lightning's exceptions of a request to stop, turned back into a KeyboardInterrupt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lightning.pytorch.utilities.exceptions import SIGTERMException

from cfaug.core.signals import StopRequest, keep_handlers


@contextmanager
def stoppable() -> Iterator[StopRequest]:
    """Listen for SIGTERM and Ctrl-C; raise KeyboardInterrupt once the run has stopped.

    Lightning turns Ctrl-C into ``exit(1)`` and ignores further ones. The former handlers are
    restored at the end.
    """
    with keep_handlers():
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
