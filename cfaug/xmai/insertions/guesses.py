"""A language model's guesses before a noun, and the candidates among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cfaug.editing.language_models import MaskedLM
from cfaug.editing.protocols import Blank, MaskFiller, round_digits
from cfaug.editing.word_lists import NLTK_STOP_WORDS
from cfaug.xmai.insertions.answer_cache import AnswerCache
from cfaug.xmai.insertions.canvas import Surroundings


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
