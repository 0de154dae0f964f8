"""Texts that may not be meant: missing values as ``nan``, broken letters, joined classes."""

from __future__ import annotations

import re
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

BROKEN = re.compile("Ã[\x80-\xbf\u0152-\u2122]|â€|Â[\xa0-\xbf]")
"""UTF-8 that was read as Latin-1 or Windows-1252: Ã© for é."""
ENTITY = re.compile(r"&(?:amp|apos|gt|lt|nbsp|quot|#\d{1,6});")
MARKS = re.compile(r"\[/EN#|</?(?:br|end|p|s|start|unk)>|###", re.IGNORECASE)
"""Marks of Flickr30k Entities, of tokenisers and of HTML, and what joins several captions."""
JOINED = re.compile(r"\s*[|;]\s*")
"""What separates several classes in one cell, as in ChestX-ray14."""
WORD = re.compile(
    r"[^\s\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff]+"
)
"""A text without a space, in a script that writes them between words."""
WORDS = re.compile(r"[\w-]+(?: [\w-]+)?(?:\s*[,;|]\s*[\w-]+(?: [\w-]+)?){2,}")
"""Names of what is there, separated, as tags and objects are listed."""

KINDS = {
    "letters as they look if UTF-8 is read as another encoding": BROKEN,
    "HTML's names of characters": ENTITY,
    "marks between the words": MARKS,
    "no letter": re.compile(r"[\W\d_]+"),
}
"""What a caption holds, and how it is found; no letter by its whole text, as in YOLO's boxes."""
SHORT = {"lists of words": WORDS, "single words": WORD}
"""What most captions of a source should not be."""


class OddTexts:
    """Counts texts and classes of a source that may be meant otherwise."""

    def __init__(self) -> None:
        self._counts, self._first = Counter[str](), dict[str, str]()
        self._first_short = dict[str, str]()
        self._labels = set[str]()
        self._captions = 0

    def count(self, row: Row) -> None:
        """Count a row."""
        if row.label is not None:
            self._labels.add(row.label)
            return
        self._captions += 1
        for short, form in SHORT.items():
            if form.fullmatch(row.text):
                self._counts[short] += 1
                self._first_short.setdefault(short, row.text)
                break
        for kind, form in KINDS.items():
            if (form.fullmatch if kind == "no letter" else form.search)(row.text):
                self._counts[kind] += 1
                self._first.setdefault(kind, row.text)

    def notes(self) -> list[str]:
        """Return a sentence about each kind that there is."""
        notes = [
            f"{_captions(self._counts[kind])} {kind} (first {first[:60]!r}), read as they stand"
            for kind, first in self._first.items()
        ]
        notes += [
            f"{self._counts[short]:,} of {self._captions:,} captions are {short} (first "
            f"{first[:60]!r}), read as they stand: if they are classes, call the column label, "
            "from which 'a photo of a ...' is made"
            for short, first in self._first_short.items()
            if 2 * self._counts[short] > self._captions > 1
        ]
        joined = [
            label
            for label in sorted(self._labels)
            if len(parts := JOINED.split(label)) > 1 and not self._labels.isdisjoint(parts)
        ]
        if joined:
            notes.append(
                f"classes that are several others joined ({name_some(joined)}) are read as classes "
                "of their own: an image of several classes has no single right one"
            )
        return notes


def _captions(count: int) -> str:
    return "1 caption holds" if count == 1 else f"{count:,} captions hold"


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
