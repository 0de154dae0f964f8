"""Texts compared by their 64-bit codes, so that millions of keys take some bytes each."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from cfaug.data.index.disk_format import group_code

LEAST_SLOTS = 2**10


class TextCounts:
    """Counts equal texts as they come, in 16 to 32 bytes for each different one.

    Texts count as equal if their codes are: among ten million, the probability that any two others
    share one is 3e-6. A dictionary would take some 200 bytes for each.
    """

    def __init__(self) -> None:
        self._resize(LEAST_SLOTS)
        self._distinct = 0

    def add(self, text: str) -> int:
        """Count a text, and return how often it came before."""
        slot = self._find(group_code(text) or 1)  # 0 marks a free slot
        earlier = self._counts[slot]
        self._counts[slot] = earlier + 1
        if not earlier:
            self._codes[slot] = group_code(text) or 1
            self._distinct += 1
            if 4 * self._distinct > 3 * len(self._codes):
                self._grow()
        return earlier

    def _find(self, code: int) -> int:
        """Return the slot of a code, or the free one for it."""
        codes, last = self._codes, len(self._codes) - 1
        slot = code & last
        while codes[slot] and codes[slot] != code:
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        codes, counts = self._codes, self._counts
        self._resize(2 * len(codes))
        for code, count in zip(codes, counts, strict=True):
            if code:
                slot = self._find(code)
                self._codes[slot], self._counts[slot] = code, count

    def _resize(self, slots: int) -> None:
        self._codes = array("Q", bytes(8 * slots))
        self._counts = array("I", bytes(4 * slots))


def find_repeated(texts: Callable[[], Iterable[str]]) -> list[str]:
    """Return the texts that come more than once, each once, by their first appearance.

    Args:
        texts: a function that returns the texts, the same at each call. It is called again only if
            codes repeat, so that the result is exact.
    """
    codes = code_texts(texts())
    codes.sort()
    again = set(codes[1:][codes[1:] == codes[:-1]].tolist())
    if not again:
        return []
    counts = Counter(text for text in texts() if group_code(text) in again)
    return [text for text, count in counts.items() if count > 1]


def code_texts(texts: Iterable[str]) -> np.ndarray:
    """Return the code of each text, uint64 (texts,)."""
    return np.fromiter(map(group_code, texts), np.uint64)
