"""Texts of figures: broken into lines, without what cannot be printed."""

from __future__ import annotations

import re
import unicodedata

MARKS = 3
"""The largest number of marks on a letter of a figure's label; Thai and Hebrew need as many."""


def wrap_text(text: str, width: int) -> list[str]:
    """Break a text into lines of at most ``width`` cells: at spaces, after commas, or anywhere.

    >>> wrap_text("cf_ratio=0.6,real=PHOTOS or more", 14)
    ['cf_ratio=0.6,', 'real=PHOTOS or', 'more']
    """
    from rich.cells import cell_len, chop_cells

    lines = [""]
    for word in re.findall(r"[^\s,]*(?:,+|\s|$)", printable(text)):
        whole = lines[-1] + word
        if cell_len(whole.rstrip()) <= width:
            lines[-1] = whole
            continue
        first, *more = chop_cells(word.rstrip(), width) or [""]
        lines += [first, *more]
        lines[-1] += " " * word.endswith(" ")
    return [line.rstrip() for line in lines if line.strip()] or [""]


def elide_text(text: str, width: int, most: int) -> list[str]:
    """Return the first lines of a wrapped text, the last of them with an ellipsis if more follow.

    Marks beyond ``MARKS`` on one letter are omitted: they take no cell, but pile up above it.

    Args:
        text: text to break, as by ``wrap_text``.

    >>> elide_text("one two three", 4, 2)
    ['one', 'two…']
    """
    lines = wrap_text(limit_marks(text), width)
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], wrap_text(lines[most - 1], width - 1)[0] + "…"]


def limit_marks(text: str) -> str:
    """Return a text without the marks beyond ``MARKS`` on one letter."""
    kept, marks = [], 0
    for letter in text:
        marks = marks + 1 if unicodedata.category(letter) in {"Mn", "Me"} else 0
        if marks <= MARKS:
            kept.append(letter)
    return "".join(kept)


def printable(text: str) -> str:
    """Return text without control characters: a name on disk may contain terminal codes."""
    return "".join(c if c.isprintable() else " " for c in text)
