"""The one error a user is meant to read, and messages on a terminal."""

from __future__ import annotations

import atexit
import errno
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import IO, Annotated, Any, NoReturn, TextIO

from cfaug.core.annotations import NO_RESULT

# The one error a user is meant to read.

USERS_MISTAKE = 2
"""The exit code of a command that ends with a ``UserError``."""


class UserError(Exception):
    """The user's mistake: shown as one message without a traceback; see ``USERS_MISTAKE``.

    The message names the culprit, the choices and, where there is one, the next command.
    """


class UnavailableError(UserError):
    """A resource that every item needs is gone, such as a server; items are not tried alone."""


class RejectedError(UserError):
    """An item that is invalid, however often it is tried, such as a photo that cannot be decoded.

    A part of a recipe raises it for a batch or for an item alone. The item is named and counted as
    rejected for this reason; the others are processed.

    Args:
        reason: the reason that rejections are counted by, a word or two such as ``broken photo``.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def name_some(names: Iterable[object], most: int = 5) -> str:
    """Return the first of some names, for a message; ", ..." says that there are more.

    Args:
        names: the names, in the order in which they should be listed.
        most: the largest number of names that are listed.

    >>> name_some(["a", "b", "c"]), name_some(["a", "b", "c"], most=2)
    ('a, b, c', 'a, b, ...')
    """
    every = [str(name) for name in names]
    return ", ".join(every[:most]) + (", ..." if len(every) > most else "")


# Messages on a terminal, with control characters of foreign text made visible.

OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and newline, marks of the reading direction, lone surrogates."""
CALLED_BY = "CFAUG_CALLED_BY"
"""Environment variable of the installed command: the word before ``train`` in its messages."""
SCRIPT = re.compile(r"(?<![\w/.])(?:python )?(train|generate|evaluate)\.py\b")
"""Pattern of a command in messages: a script of the repository."""


def command_of(name: str) -> str:
    """Return how messages name a command, before ``name_commands``.

    >>> command_of("train"), command_of("table")
    ('train.py', 'cfaug table')
    """
    return f"{name}.py" if SCRIPT.fullmatch(f"{name}.py") else f"cfaug {name}"


def visible(text: str) -> str:
    r"""Return text with control characters spelled out, as ``repr`` does.

    Control characters in a caption, a folder's name or a damaged file could rename a terminal's
    window or clear the screen.

    >>> print(visible("\x1b[2Jhöhe"))
    \x1b[2Jhöhe
    """
    return OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def name_commands(text: str) -> str:
    """Return a message with its commands as the user types them.

    That is ``cfaug train`` if installed, and ``python ../cfaug/train.py`` from another folder.

    Args:
        text: a message with the commands of the repository, ``python train.py ...``.
    """
    prefix, (folder, script) = os.environ.get(CALLED_BY), os.path.split(sys.argv[0])
    if prefix:
        return SCRIPT.sub(rf"{prefix} \1", text)
    elsewhere = os.path.isdir(folder) and not os.path.samefile(folder, ".")
    if elsewhere and SCRIPT.fullmatch(script):
        return SCRIPT.sub(lambda match: f"python {shlex.quote(folder)}/{match[1]}.py", text)
    return text


class Verbosity(IntEnum):
    """How much a command prints; a message is printed at its own level and those above."""

    QUIET = 0
    USUAL = 1
    VERBOSE = 2


LEVEL = "CFAUG_VERBOSITY"
"""Environment variable with the level of a command, for the processes that it starts."""
URGENT = re.compile(r"(error|warning|failed|interrupted)\b")
"""How messages begin that a quiet command prints, too."""


@dataclass(frozen=True, kw_only=True)
class OutputSettings:
    """How much a command prints."""

    quiet: Annotated[bool, NO_RESULT] = False
    """print only the sentence at the end, the paths of what was written, errors and warnings"""
    verbose: Annotated[bool, NO_RESULT] = False
    """print also what is otherwise only in the files: the numbers of each run, all metrics and
    tests, details of the sources"""


def choose_verbosity(quiet: object, verbose: object) -> Verbosity:
    """Return the level of the two settings.

    Raises:
        UserError: if both are chosen.
    """
    if quiet and verbose:
        raise UserError("quiet=true and verbose=true contradict each other: choose one")
    return Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.USUAL


def verbosity() -> Verbosity:
    """Return how much this process prints."""
    known = {str(level.value): level for level in Verbosity}
    return known.get(os.environ.get(LEVEL, ""), Verbosity.USUAL)


def set_verbosity(level: Verbosity) -> None:
    """Print at a level from now on, also in the processes that are started."""
    os.environ[LEVEL] = str(level.value)


@contextmanager
def printing_at(level: Verbosity) -> Iterator[None]:
    """Print at a level meanwhile, also in the processes that are started."""
    before = os.environ.get(LEVEL)
    set_verbosity(level)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(LEVEL, None)
        else:
            os.environ[LEVEL] = before


def say(text: str, to: TextIO | None = None, level: Verbosity | None = None) -> None:
    """Print a line without buffering, with control characters made visible.

    A command whose reader has left, as in ``... | head``, or whose log is on a full disk, goes on
    without printing: what it makes does not depend on being watched. The exit code says that what
    was printed is lost.

    Args:
        to: the stream; ``None`` is stderr.
        level: the lowest verbosity at which the line is printed. ``None``: a result, on stdout, and
            an error or a warning always, other messages unless the command is quiet.
    """
    stream = sys.stderr if to is None else to
    if level is None:
        urgent = stream is sys.stdout or URGENT.match(text)
        level = Verbosity.QUIET if urgent else Verbosity.USUAL
    if verbosity() >= level:
        write_out(paint(visible(name_commands(text)), stream) + "\n", stream)


PAINTED = {"error:": "bold red", "warning:": "yellow", "failed:": "red", "next:": "cyan"}
"""{first word of a message: its style on a terminal with colours}."""


def paint(text: str, stream: TextIO) -> str:
    """Return a message with its first word in colour, if it goes to a terminal that has colours."""
    word = text.partition(" ")[0]
    if word not in PAINTED or not (stream and stream.isatty()):
        return text
    from rich.console import Console

    # It knows NO_COLOR, and TERM without colours.
    console = Console(file=stream, highlight=False, force_jupyter=False)
    with console.capture() as painted:
        console.print(word, style=PAINTED[word], end="")
    return painted.get() + text[len(word) :]


def write_out(text: str, stream: TextIO | IO[str]) -> None:
    """Write text whose control characters are ours, as ``say`` prints a line."""
    try:
        print(text, end="", file=stream, flush=True)
    except BrokenPipeError:
        discard_output(stream)
    except OSError as error:
        if error.errno not in FULL:
            raise
        discard_output(stream)
        _lost.append(f"{getattr(stream, 'name', 'the log')}: {error.strerror}")


def discard_output(stream: TextIO | IO[str]) -> None:
    """Discard a stream's buffered and further output.

    Args:
        stream: stdout or stderr after its reader has left.
    """
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


@cache
def say_once(text: str, about: str = "", level: Verbosity | None = None) -> None:
    """Print a line as ``say`` does, but only once for a command, with all runs of a sweep.

    A command, and a call from Python, begin with ``say_once.cache_clear()``.

    Args:
        about: its subject; the same line about another subject is printed again.
        level: the lowest verbosity at which the line is printed, as for ``say``.
    """
    say(text, level=level)


def say_record(
    about: Mapping[str, Any], hidden: Sequence[str] = (), as_json: bool | None = None
) -> None:
    """Print a command's results on stdout, as lines for a person or as JSON for a program.

    Args:
        hidden: the names that are left out of the lines, because other lines show them.
        as_json: ``None`` for lines on a terminal and JSON elsewhere.
    """
    if as_json is None:
        as_json = not sys.stdout.isatty()
    if as_json:
        say(json.dumps(about), sys.stdout)
        return
    for name, value in about.items():
        if name not in hidden:
            say(f"  {name:16} {in_words(value)}", sys.stdout)


def in_words(value: Any) -> str:
    """Return a JSON value in words.

    >>> in_words({"real": 1200, "of": [1, "x"]})
    'real 1,200, of 1; x'
    >>> in_words([None, {}])
    'none; none'
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_words(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "; ".join(map(in_words, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:,}" if isinstance(value, int | float) else str(value)


UNWRITTEN = 120
"""The exit code of Python itself if it cannot write what was printed."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a disk that takes no more of a log."""
_codes: list[int] = []
_lost: list[str] = []
"""The streams that were given up, each with its error."""


@atexit.register
def _leave() -> None:
    """End the process without taking the interpreter apart, which takes 1.5 s once torch is there.

    Exit handlers run in the reverse order of their registration: those of all later imports
    (loggers, pools of processes) have run when this one ends the process.
    """
    if not _codes:
        return
    try:
        if sys.stdout is not None:  # it was closed when the process began
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        _codes[0] = UNWRITTEN
        say(f"error: the output could not be written: {error}")
    if _lost:
        _codes[0] = _codes[0] or UNWRITTEN
        say(f"error: the output could not be written: {'; '.join(_lost)}")
    os._exit(_codes[0])


def exit_with(code: int) -> NoReturn:
    """End this process with an exit code as ``sys.exit`` does, exit handlers included."""
    _codes.append(code)
    sys.exit(code)
