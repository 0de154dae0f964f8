"""The end of a command: the interpreter is not taken apart, which takes 1.5 s once torch is there.

Import this before other modules: exit handlers run in the reverse order of their registration, so
those of all later imports (loggers, pools of processes) have run when this one ends the process.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn

UNWRITTEN = 120
"""The exit code of Python itself if it cannot write what was printed."""

_codes: list[int] = []


@atexit.register
def _leave() -> None:
    if not _codes:
        return
    try:
        if sys.stdout is not None:  # it was closed when the process began
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        _codes[0] = UNWRITTEN
        from cfaug.core.errors import say

        say(f"error: the output could not be written: {error}")
    os._exit(_codes[0])


def exit_with(code: int) -> NoReturn:
    """End this process with an exit code as ``sys.exit`` does, exit handlers included."""
    _codes.append(code)
    sys.exit(code)
