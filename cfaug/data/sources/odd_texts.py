"""Texts that are read as they are and may not be meant: broken letters, joined classes."""

from __future__ import annotations

import re
from collections import Counter

from cfaug.core.errors import name_some
from cfaug.data.sources.row import Row

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
