"""English stop words, which published edits of captions do not change."""

from __future__ import annotations

from cfaug.editing.word_lists import SHIPPED, list_lines

NLTK_STOP_WORDS = frozenset(
    word
    for line in list_lines((SHIPPED / "stop_words.txt").read_text(encoding="utf-8"))
    for word in line.split()
)
"""NLTK's 179 English stop words of 2022, in lower case, as used by TextAttack 0.3.8 and XMAI.

The "A" at the beginning of a caption is not one of them: both compare words with their case.
"""
