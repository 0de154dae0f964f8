"""English stop words, which published edits of captions leave alone."""

from __future__ import annotations

from cfaug.text.word_lists import SHIPPED, list_lines

STOP_WORDS = frozenset(
    word
    for line in list_lines((SHIPPED / "stop_words.txt").read_text(encoding="utf-8"))
    for word in line.split()
)
"""NLTK's 179 English stop words of 2022, in lower case: those of TextAttack 0.3.8 and of XMAI.

A caption's first "A" is not one of them: both compare words with their case.
"""
