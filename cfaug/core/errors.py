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
    """An item that is invalid, however often it is tried, such as a photo that cannot be decoded.

    A part of a recipe raises it for a batch or for an item alone. The item is named and counted as
    rejected for this reason; the others are processed.

    Args:
        reason: the reason that rejections are counted by, a word or two such as ``broken photo``.
        message: the message, which names the item and its defect.
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
