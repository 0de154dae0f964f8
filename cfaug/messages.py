"""What a terminal is given: text from files, folders and people, without what it would obey."""

from __future__ import annotations

import re
import sys
from typing import TextIO

OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and newline, what turns the reading direction, and half characters."""


def visible(text: str) -> str:
    r"""Return text with control characters spelled out, as ``repr`` does.

    A caption, a folder or a damaged file may hold those that rename a terminal's window or clear
    what was printed before.

    >>> print(visible("\x1b[2Jhöhe"))
    \x1b[2Jhöhe
    """
    return OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def say(text: str, to: TextIO | None = None) -> None:
    """Print a line at once, safe for a terminal.

    Args:
        text: any.
        to: a stream; ``None`` is stderr.
    """
    print(visible(text), file=sys.stderr if to is None else to, flush=True)
