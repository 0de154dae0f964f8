"""Texts as Unicode: which are equal, and which can be written."""

from __future__ import annotations

import unicodedata

from cfaug.core.errors import UserError


def normalise_caption(text: str) -> str:
    """Return the words of a caption, without case, punctuation, spaces and encoding of accents.

    >>> normalise_caption(" A cat, on the mat . ") == normalise_caption("a cat on the mat")
    True
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in folded).split())


def require_unicode(text: str, where: str) -> str:
    r"""Return a text that can be encoded: JSON's ``\ud800`` is a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: a text that is not Unicode ({error.reason})") from error
    return text
