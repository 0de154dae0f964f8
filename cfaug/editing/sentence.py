"""A caption as words with their places, so that an edit replaces characters in place.

NLTK's ``span_tokenize`` takes a second to import and is 11 times as slow (78 us for a caption). It
keeps a full stop within a caption with its word, and splits "cannot" and "gonna": other words, and
thus other edits, than in the generated data.

>>> split("The man's dog can't sit.").words
('The', 'man', "'s", 'dog', 'ca', "n't", 'sit', '.')
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cfaug.core.articles import copy_article_case, indefinite_article

_WORD = re.compile(
    r"""
      \w+?(?=n['’]t\b) | n['’]t\b       # do n't
    | ['’](?:s|re|ve|ll|d|m)\b          # man 's
    | \d+(?:[.,:]\d+)+                  # 2.5
    | \w+(?:-\w+)*                      # close-up
    | [^\w\s]
    """,
    re.VERBOSE | re.IGNORECASE,
)


def normalise(text: str) -> str:
    """Return a text without outer white space, and with a single space for every inner run of it.

    >>> normalise("  a   cat ")
    'a cat'
    """
    return " ".join(text.split())


@dataclass(frozen=True)
class Sentence:
    """A text and its words: word ``i`` is ``text[spans[i][0]:spans[i][1]]``."""

    text: str
    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]


def split(text: str) -> Sentence:
    """Return a text with its words, split like the Treebank tokeniser with separate clitics.

    Each sign is a word. Unlike in the Treebank, a full stop within a caption ends a word, because
    the paper splits sentences first.
    """
    found = list(_WORD.finditer(text))
    return Sentence(text, tuple(m.group() for m in found), tuple(m.span() for m in found))


@dataclass(frozen=True)
class Slot:
    """Words ``first`` to ``last``, both included, that an edit may replace."""

    first: int
    last: int

    def span(self, sentence: Sentence) -> tuple[int, int]:
        """Return the characters (start, end) of the words."""
        return sentence.spans[self.first][0], sentence.spans[self.last][1]


def replace_slot(sentence: Sentence, slot: Slot, word: str, *, article: bool = False) -> Sentence:
    """Replace a slot's words by one word; the rest keeps its characters.

    Args:
        sentence: the sentence to edit.
        slot: the words to replace.
        word: the new word, in its final case.
        article: whether "a" or "an" right before the slot is adapted to the new word.

    >>> replace(split("a red ball"), Slot(1, 1), "orange", article=True).text
    'an orange ball'
    """
    start, end = slot.span(sentence)
    words, spans = list(sentence.words), list(sentence.spans)
    words[slot.first : slot.last + 1] = [word]
    spans[slot.first : slot.last + 1] = [(start, start + len(word))]
    _shift(spans, slot.first + 1, len(word) - (end - start))
    text = sentence.text[:start] + word + sentence.text[end:]
    before = slot.first - 1
    if article and before >= 0 and words[before].lower() in ("a", "an"):
        right = indefinite_article(word)
        if words[before].lower() != right:
            right = copy_article_case(right, words[before])
            start, end = spans[before]
            text = text[:start] + right + text[end:]
            words[before], spans[before] = right, (start, start + len(right))
            _shift(spans, slot.first, len(right) - (end - start))
    return Sentence(text, tuple(words), tuple(spans))


def _shift(spans: list[tuple[int, int]], first: int, by: int) -> None:
    if by:
        spans[first:] = [(start + by, end + by) for start, end in spans[first:]]


def copy_case(word: str, like: str) -> str:
    """Return a word in lower, Title or UPPER case like another word; mixed case is kept.

    >>> copy_case("Paris", "cat"), copy_case("dog", "Cat"), copy_case("dog", "TV")
    ('paris', 'Dog', 'DOG')
    """
    if like.islower():
        return word.lower()
    if like.isupper() and len(like) > 1:
        return word.upper()
    if like[:1].isupper():
        return word[:1].upper() + word[1:]
    return word
