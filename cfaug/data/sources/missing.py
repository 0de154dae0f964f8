"""Captions and classes that are what programs write for a missing value: ``nan``, ``NULL``."""

from __future__ import annotations

from collections import Counter

from cfaug.core.errors import UserError, name_some
from cfaug.data.sources.row import Row

MISSING = {
    "#n/a", "#n/a n/a", "#na", "(null)", "-", "--", "-1.#ind", "-1.#qnan", "-nan", "1.#ind",
    "1.#qnan", "<na>", "[null]", "\\n", "?", "n/a", "n.a.", "na", "nan", "nat", "nil", "none",
    "null", "undefined",
}  # fmt: skip
"""What programs write for a missing value, in lower case; pandas' list among them."""
MISSING_SHARE = 0.01
"""The largest share of captions that may be such texts, besides one; more are refused."""


def is_missing(text: str) -> bool:
    """Return whether a text is what programs write for a missing value.

    >>> [is_missing(text) for text in ("nan", " NULL ", "<NA>", "None.", "none of them")]
    [True, True, True, False, False]
    """
    return text.strip().casefold() in MISSING


class MissingTexts:
    """Counts captions and classes of a source that are texts of missing values."""

    def __init__(self) -> None:
        self._rows = self._missing = 0
        self._captions, self._classes = Counter[str](), Counter[str]()
        self._where = ""

    def count(self, row: Row) -> None:
        """Count a row: its caption and its negatives, and its class."""
        self._rows += 1
        if row.label is not None and is_missing(row.label):
            self._classes[row.label] += 1
        texts = [text for text in (row.text, *row.negatives) if is_missing(text)]
        if texts:
            self._where = self._where or row.where
            self._missing += 1
            self._captions.update(texts)

    def check(self, source: str) -> None:
        """Refuse a source of which more than ``MISSING_SHARE`` of the captions are missing.

        One is never too many: in SNLI a text is "None".
        """
        if self._missing > max(1, MISSING_SHARE * self._rows):
            raise UserError(
                f"{source}: {self._missing:,} of {self._rows:,} rows have a caption that is what "
                f"programs write for a missing value ({self._named(self._captions)}), first that "
                f"of {self._where}; up to {MISSING_SHARE:.0%} are read. Write their captions or "
                "remove these rows; one that really is a caption is read with a full stop, as in "
                f"{next(iter(self._captions)) + '.'!r}"
            )

    def notes(self) -> list[str]:
        """Return a sentence about captions and one about classes, if there are any."""
        notes = []
        if self._missing:
            notes.append(
                f"{self._missing:,} of {self._rows:,} rows have a caption that is what programs "
                f"write for a missing value ({self._named(self._captions)}), and are read as they "
                "are: remove them if they mean nothing"
            )
        if self._classes:
            notes.append(
                f"{sum(self._classes.values()):,} rows are of a class that is called as programs "
                f"write a missing value ({self._named(self._classes)}), and is read as a name: "
                "remove these rows if their class is not known"
            )
        return notes

    @staticmethod
    def _named(counts: Counter[str]) -> str:
        return name_some(f"{text!r} {count:,} times" for text, count in counts.most_common())
