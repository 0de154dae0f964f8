"""What a terminal is given: text from files, folders and people, without what it would obey."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from typing import TextIO

OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and newline, what turns the reading direction, and half characters."""


CALLED_BY = "CFAUG_CALLED_BY"
"""Set in the environment by the installed command: what stands before ``train`` in its messages."""

SCRIPT = re.compile(r"(?<![\w/.])(?:python )?(train|generate|evaluate)\.py\b")
"""A command as messages name it: the script of a clone."""


def visible(text: str) -> str:
    r"""Return text with control characters spelled out, as ``repr`` does.

    A caption, a folder or a damaged file may hold those that rename a terminal's window or clear
    what was printed before.

    >>> print(visible("\x1b[2Jhöhe"))
    \x1b[2Jhöhe
    """
    return OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def name_commands(text: str) -> str:
    """Return a message with its commands as the user types them, who may have installed ``cfaug``.

    Args:
        text: with commands as a clone has them, ``python train.py ...``.
    """
    prefix = os.environ.get(CALLED_BY)
    return SCRIPT.sub(rf"{prefix} \1", text) if prefix else text


def say(text: str, to: TextIO | None = None) -> None:
    """Print a line at once, safe for a terminal.

    Args:
        text: any.
        to: a stream; ``None`` is stderr.
    """
    print(visible(name_commands(text)), file=sys.stderr if to is None else to, flush=True)


@cache
def say_once(text: str, about: str = "") -> None:
    """Print a line as ``say`` does, once a process.

    Args:
        text: any.
        about: what it is about, where the same line about something else is said again.
    """
    say(text)
