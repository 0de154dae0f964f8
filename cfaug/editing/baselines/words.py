r"""A text and its words, counted and changed as in TextAttack (Morris et al., 2020).

>>> text = Words.read("A man's T-shirt, 3:45.")
>>> text.words
('A', "man's", 'T-shirt', '3', '45')
>>> text.replace(2, "").text
"A man's, 3:45."
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_RUN = re.compile(r"[\w'*@`˗×-]+")
"""Letters, digits and the signs that TextAttack 0.3.8 allows within a word."""

_NOT_FIRST = "'-_*@"
"""Signs that no word begins with; in version 0.3.8 a word may end with them."""


def word_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return the characters (start, end) of every word; punctuation is not a word.

    >>> word_spans("'tis a dog's -")
    ((1, 4), (5, 6), (7, 12))
    """
    found = []
    for match in _RUN.finditer(text):
        start = match.end() - len(match.group().lstrip(_NOT_FIRST))
        if start < match.end():
            found.append((start, match.end()))
    return tuple(found)


@dataclass(frozen=True)
class Words:
    """A text, the places of its words, and the changed ones among them.

    Attributes:
        text: the text, with its punctuation and spaces.
        spans: the characters (start, end) of every word.
        modified: the indices of the words that were changed or added: rules do not change them
            again, and are applied until there are enough.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    modified: frozenset[int] = frozenset()

    @classmethod
    def read(cls, text: str) -> Words:
        """Return a text with its words, all unchanged."""
        return cls(text, word_spans(text))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words."""
        return tuple(self.text[start:end] for start, end in self.spans)

    @property
    def unmodified(self) -> list[int]:
        """The numbers of the words that were not changed, in order."""
        return [i for i in range(len(self.spans)) if i not in self.modified]

    def replace(self, index: int, words: str) -> Words:
        """Replace one word by a text: another word, several words, or none.

        With a deleted word, the space before it is deleted, or after it for the first word. Later
        words that were changed stay marked as changed under their new indices.

        Args:
            index: the index of the word.
            words: the new text; empty deletes the word.

        >>> Words.read("a dog sits").replace(1, "big dog").modified
        frozenset({1, 2})
        """
        start, end = self.spans[index]
        before, after = self.text[:start], self.text[end:]
        new = len(word_spans(words))
        if new == 0 and after:
            if index == 0:
                after = after.removeprefix(" ")
            else:
                before = before.removesuffix(" ")
        shift = new - 1
        kept = {
            i if i < index else i + shift
            for i in self.modified
            if i != index or shift == 0
        }  # fmt: skip
        same = words == self.text[start:end]
        came = () if same else range(index, index + new)
        return Words(text := f"{before}{words}{after}", word_spans(text), frozenset((*kept, *came)))

    def insert(self, index: int, word: str) -> Words:
        """Insert a word before another; both then count as changed, as in TextAttack."""
        start, end = self.spans[index]
        return self.replace(index, f"{word} {self.text[start:end]}")


def count_changes(share: float, words: int) -> int:
    """Return the number of a text's words to change: a share of them, at least one.

    >>> count_changes(0.1, 9), count_changes(0.2, 15)
    (1, 3)
    """
    return max(int(share * words), 1)
