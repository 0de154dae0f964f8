"""The one error a user is meant to read."""

from __future__ import annotations

from collections.abc import Iterable

USERS_MISTAKE = 2
"""The exit code of a command that ends with a ``UserError``."""


class UserError(Exception):
    """The user's mistake: shown as one message without a traceback; see ``USERS_MISTAKE``.

    The message names the culprit, the choices and, where there is one, the next command.
    """


class UnavailableError(UserError):
    """A resource that every item needs is gone, such as a server; items are not tried alone."""


class RejectedError(UserError):
    """One item that cannot be used, however often it is tried: a photo that cannot be decoded.

    A part of a recipe raises it for a batch or for an item alone. The item is counted among the
    rejected under its reason, and named; the others go on.

    Args:
        reason: a word or two, by which rejections are counted, such as ``broken photo``.
        message: what is wrong with which item.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def name_some(names: Iterable[object], most: int = 5) -> str:
    """Return the first of some names, for a message; ", ..." says that there are more.

    Args:
        names: in the order in which they should be named.
        most: how many are named.

    >>> name_some(["a", "b", "c"]), name_some(["a", "b", "c"], most=2)
    ('a, b, c', 'a, b, ...')
    """
    every = [str(name) for name in names]
    return ", ".join(every[:most]) + (", ..." if len(every) > most else "")
