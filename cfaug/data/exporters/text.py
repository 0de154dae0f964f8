"""Markdown that text from data cannot break out of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

TODO = "**To be written:**"


def code(text: object) -> str:
    r"""Return a text of unknown content as code on one line of a table.

    >>> code("a | b `c`")
    "`a \\| b 'c'`"
    """
    line = " ".join(str(text).split()).replace("`", "'").replace("|", "\\|")
    return f"`{line}`" if line else ""


def number(value: int) -> str:
    """Return a count as people read it.

    >>> number(17410)
    '17,410'
    """
    return f"{value:,}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
