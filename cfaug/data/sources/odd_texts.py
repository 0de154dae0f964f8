"""Texts that are read as they are and may not be meant: broken letters, joined classes."""

from __future__ import annotations

import re

from cfaug.core.errors import name_some
from cfaug.data.sources.row import Row

BROKEN = re.compile("Ã[\x80-\xbf\u0152-\u2122]|â€|Â[\xa0-\xbf]")
"""UTF-8 that was read as Latin-1 or Windows-1252: Ã© for é."""
ENTITY = re.compile(r"&(?:amp|apos|gt|lt|nbsp|quot|#\d{1,6});")
JOINED = re.compile(r"\s*[|;]\s*")
"""What separates several classes in one cell, as in ChestX-ray14."""


class OddTexts:
    """Counts texts and classes of a source that may be meant otherwise."""

    def __init__(self) -> None:
        self._broken = self._entities = 0
        self._first_broken = self._first_entity = ""
        self._labels = set[str]()

    def count(self, row: Row) -> None:
        """Count a row."""
        if row.label is not None:
            self._labels.add(row.label)
        if ("Ã" in row.text or "â" in row.text or "Â" in row.text) and BROKEN.search(row.text):
            self._broken += 1
            self._first_broken = self._first_broken or row.text
        if "&" in row.text and ENTITY.search(row.text):
            self._entities += 1
            self._first_entity = self._first_entity or row.text

    def notes(self) -> list[str]:
        """Return a sentence about each kind that there is."""
        notes = []
        if self._broken:
            notes.append(
                f"{_captions(self._broken)} letters as they look if UTF-8 is read as another "
                f"encoding (first {self._first_broken[:60]!r}), which are read as they are"
            )
        if self._entities:
            notes.append(
                f"{_captions(self._entities)} HTML's names of characters (first "
                f"{self._first_entity[:60]!r}), which are read as they are"
            )
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
