"""The one error a user is meant to read."""

from __future__ import annotations


class UserError(Exception):
    """The user's mistake: shown as one message without a traceback, exit code 2.

    The message names the culprit, the choices and, where there is one, the next command.
    """
