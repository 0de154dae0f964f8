"""What every form of question sets shares: which columns it has, and what is made of its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cfaug.data.sources.question_sets.rows import SetRow
from cfaug.data.sources.row import ErrorCollector
from cfaug.errors import UserError
from cfaug.question_sets import AskedImage

YES_NO = ("yes", "no")
"""Options of questions that are answered so, in this order."""


@dataclass(frozen=True)
class QuestionForm:
    """One form.

    Attributes:
        name: in messages.
        columns: all of them must be there.
        read: makes the images of all rows; what is wrong with a row goes to the collector.
        folders: beside the list, in which its images may lie, as the set is unpacked.
    """

    name: str
    columns: tuple[str, ...]
    read: Callable[[Iterable[SetRow], ErrorCollector], list[AskedImage]]
    folders: tuple[str, ...] = ()


def read_each(
    read: Callable[[SetRow], Iterable[AskedImage]],
) -> Callable[[Iterable[SetRow], ErrorCollector], list[AskedImage]]:
    """Return what reads the rows of a form in which each row stands for itself."""

    def read_all(rows: Iterable[SetRow], errors: ErrorCollector) -> list[AskedImage]:
        found: list[AskedImage] = []
        for row in rows:
            with errors.collect():
                found += read(row)
        return found

    return read_all


def yes_or_no(row: SetRow, name: str) -> int:
    """Return the number of a column's ``yes`` or ``no`` among ``YES_NO``.

    Raises:
        UserError: naming the place, if it is another.
    """
    said = row.text(name).lower().rstrip(".")
    if said not in YES_NO:
        raise UserError(f"{row.where}: {name}={said!r} is invalid: choose from {', '.join(YES_NO)}")
    return YES_NO.index(said)


def split_options(text: str, letters: Sequence[str], mark: str) -> list[str]:
    """Return the options that follow their letters in a text, in the letters' order.

    >>> split_options("(a) Open (b) Not open", "ab", "({})")
    ['Open', 'Not open']

    Args:
        text: of the options alone.
        letters: of all options there may be; the text has the first of them, at least two.
        mark: how a letter is written, ``{}`` for itself.

    Returns:
        No option where the text is not such a list.
    """
    places = []
    at = 0
    for letter in letters:
        found = re.compile(rf"(?<!\w){re.escape(mark.format(letter))}").search(text, at)
        if found is None:
            break
        places.append(found.span())
        at = found.end()
    if len(places) < 2 or text[: places[0][0]].strip():
        return []
    ends = [start for start, _ in places[1:]] + [len(text)]
    return [text[s:e].strip(" ;,") for (_, s), e in zip(places, ends, strict=True)]
