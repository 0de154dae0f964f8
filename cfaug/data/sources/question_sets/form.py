"""The definition of a form of question sets: its columns, and the reader of its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cfaug.core.errors import UserError
from cfaug.core.question_sets import AskedImage
from cfaug.data.sources.question_sets.rows import SetRow
from cfaug.data.sources.row import ErrorCollector

YES_NO = ("yes", "no")
"""Options of yes-or-no questions, in this order."""


@dataclass(frozen=True)
class QuestionForm:
    """One form of question sets.

    Attributes:
        name: the name of the form in messages.
        columns: the columns, all of which must exist.
        read: a function that makes the images of all rows; errors of single rows go to the
            collector.
        folders: folders beside the list in which its images may be after unpacking.
    """

    name: str
    columns: tuple[str, ...]
    read: Callable[[Iterable[SetRow], ErrorCollector], list[AskedImage]]
    folders: tuple[str, ...] = ()


def read_each(
    read: Callable[[SetRow], Iterable[AskedImage]],
) -> Callable[[Iterable[SetRow], ErrorCollector], list[AskedImage]]:
    """Return a reader of rows for a form in which rows are independent."""

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
        UserError: if the value is neither, naming the place.
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
        text: the text of the options alone.
        letters: the letters of all possible options; the text has the first ones, at least two.
        mark: the format of a letter, with ``{}`` for the letter.

    Returns:
        The options; empty if the text is not such a list.
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
