"""A caption whose masks are filled one after the other by a language model's guesses."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cfaug.core.words import copy_article_case, indefinite_article
from cfaug.editing.language_models import MaskedLM
from cfaug.editing.protocols import Blank, MaskFiller, round_digits
from cfaug.editing.sentence import split
from cfaug.editing.word_lists import NLTK_STOP_WORDS
from cfaug.xmai.insertions.answer_cache import AnswerCache
from cfaug.xmai.insertions.mentions import Mention


@dataclass(frozen=True)
class Guess:
    """One of a language model's guesses.

    Attributes:
        probability: the probability over the whole vocabulary, rounded.
        rank: the rank among the guesses, from 0.
    """

    word: str
    probability: float
    rank: int


@dataclass(frozen=True)
class Guesser:
    """Returns a language model's guesses for masks, with all masks of a step in batches.

    Args:
        count: the number of its guesses; the first k candidates among them are taken.
    """

    filler: MaskFiller
    count: int
    cache: AnswerCache

    @property
    def mask(self) -> str:
        """The language model's mask token, or a replacement if it has none."""
        if isinstance(self.filler, MaskedLM):
            return str(self.filler.tokenizer.mask_token)
        return "[MASK]"

    def ask(self, masks: Sequence[Surroundings]) -> list[list[Guess]]:
        """Return the guesses for each mask, the best first; none beyond the length limit."""
        questions: list[Any] = [[mask.before, mask.after] for mask in masks]
        found = self.cache.ask(questions, lambda rows: self._fill([questions[r] for r in rows]))
        return [
            [Guess(word, probability, rank) for word, probability, rank in guesses]
            for guesses in found
        ]

    def candidates(self, guesses: Sequence[Guess], unwanted: frozenset[str]) -> list[Guess]:
        """Return the guesses that are neither stop words nor words in or near the mention."""
        return [
            guess
            for guess in guesses
            if (word := guess.word.lower()) not in NLTK_STOP_WORDS and word not in unwanted
        ]

    def _fill(self, texts: Sequence[Sequence[str]]) -> list[Any]:
        """Return the guesses for blanks: a space on either side, except at the beginning."""
        blanks = [Blank(f"{before} {after}", len(before), len(before)) for before, after in texts]
        return [
            [
                [fill.word, round_digits(fill.probability), rank]
                for rank, fill in enumerate(fills)
                if fill.word is not None
            ]
            for fills in self.filler.fill(blanks, self.count)
        ]


# A caption whose masks are filled one after the other.

Context = Literal["sequential", "alone"]
NEAR = 3
"""Number of words next to a mask that are not candidates: the "3-hop neighborhood"
(section 3)."""
PIECE = "##"
"""WordPiece's prefix of the continuation of a word."""
_LAST_ARTICLE = re.compile(r"(?<![\w'’-])(an?) $", re.IGNORECASE)


@dataclass(frozen=True)
class Surroundings:
    """The context of a mask for the language model: the texts before and after it."""

    before: str
    after: str


class Canvas:
    """A caption whose masks are filled from left to right; the rest keeps its characters.

    Args:
        text: the caption with normalised white space.
        mentions: the mentions, from left to right, each with a mask before it.
        context: the text that the language model reads to the left of a mask.
        mask: the language model's mask token.
    """

    def __init__(self, text: str, mentions: Sequence[Mention], context: Context, mask: str) -> None:
        self._text = text
        self._mentions = mentions
        self._context = context
        self._mask = mask
        self._words: list[str | None] = [None] * len(mentions)

    def surroundings(self, i: int) -> Surroundings:
        """Return the text before the mention, with its insertions, and the text from there on."""
        start = self._mentions[i].start
        before, _ = self._compose([*self._earlier(i), *[None] * (len(self._mentions) - i)], start)
        return Surroundings(before, self._text[start:])

    def unwanted(self, i: int) -> frozenset[str]:
        """Return the mention's words and those near it, in lower case."""
        around = self.surroundings(i)
        words = split(around.before).words[-NEAR:]
        noun = self._mentions[i]
        own = split(self._text[noun.start : noun.end]).words
        words += split(self._text[noun.end :]).words[:NEAR]
        return frozenset(word.lower() for word in (*words, *own))

    def candidate(self, i: int, word: str) -> str:
        """Return the caption with mask ``i`` replaced by a word."""
        later = [None] * (len(self._words) - i - 1)
        return self._compose([*self._earlier(i), word, *later])[0]

    def fill(self, i: int, word: str | None) -> None:
        """Replace mask ``i`` by a word, or remove it."""
        self._words[i] = word

    def result(self) -> tuple[str, list[int | None]]:
        """Return the caption, and the place of the first character of each mask's word."""
        return self._compose(self._words)

    def _earlier(self, i: int) -> list[str | None]:
        """Return the replacements of the masks before mask ``i`` while it is filled."""
        return [None] * i if self._context == "alone" else self._words[:i]

    def _compose(
        self, words: Sequence[str | None], end: int | None = None
    ) -> tuple[str, list[int | None]]:
        """Return the text up to ``end`` with words before their mentions, and the words' starts."""
        text, at = "", 0
        starts: list[int | None] = []
        for mention, word in zip(self._mentions, words, strict=True):
            if word is None:
                starts.append(None)
                continue
            text += self._text[at : mention.start]
            at = mention.start
            text, written = self._join(text, word, mention)
            starts.append(len(text) - len(written))
            text += " "
        return text + self._text[at:end], starts

    def _join(self, text: str, word: str, mention: Mention) -> tuple[str, str]:
        """Return the text with a word appended, and the word as spelt there."""
        if word.startswith(PIECE) and len(word) > len(PIECE):
            word = word[len(PIECE) :]
            return text.rstrip(" ") + word, word
        if word in string.punctuation:
            return text.rstrip(" ") + word, word
        text = _right_article(text, word)
        if not text.strip() and mention.noun[:1].isupper():
            word = word[:1].upper() + word[1:]
        return text + word, word


def _right_article(text: str, word: str) -> str:
    """Return a text with the "a" or "an" at its end adapted to the next word."""
    match = _LAST_ARTICLE.search(text)
    if match is None or indefinite_article(word) == match[1].lower():
        return text
    return f"{text[: match.start()]}{copy_article_case(indefinite_article(word), match[1])} "
