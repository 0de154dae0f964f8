"""A language model's guesses before a noun, and the candidates among them."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from cfaug.core.errors import UserError
from cfaug.editing.language_models import MaskedLM
from cfaug.editing.protocols import Blank, MaskFiller, round_digits
from cfaug.editing.word_lists import NLTK_STOP_WORDS
from cfaug.xmai.insertions.answer_cache import AnswerCache
from cfaug.xmai.insertions.canvas import PIECE, Surroundings
from cfaug.xmai.insertions.switches import Switches


@dataclass(frozen=True)
class Guess:
    """One of a language model's guesses.

    Attributes:
        word: the word as inserted, or a token with its marks.
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
        switches: resolved switches, without ``None``.
        count: the number of its guesses; the first k candidates among them are taken.
    """

    filler: MaskFiller
    switches: Switches
    count: int
    cache: AnswerCache

    def __post_init__(self) -> None:
        wanted = self.switches.needing_tokens
        if not wanted:
            return
        told = f"recipe.editor.switches: {', '.join(wanted)} (of recipe.editor.compat)"
        if not isinstance(self.filler, MaskedLM):
            raise UserError(
                f"{told} needs the word pieces of a masked language model, not the guesses of "
                f"{type(self.filler).__name__}: choose zoo=paper or another BERT as the filler, or "
                "compat=fixed"
            )

    @property
    def mask(self) -> str:
        """The language model's mask token, or a replacement if it has none."""
        if isinstance(self.filler, MaskedLM):
            return str(self.filler.tokenizer.mask_token)
        return "[MASK]"

    def tokenize(self, text: str) -> list[str]:
        """Return a text's tokens, without special tokens except those spelt out in it."""
        assert isinstance(self.filler, MaskedLM)
        return list(self.filler.tokenizer.tokenize(text))

    def ask(self, masks: Sequence[Surroundings]) -> list[list[Guess]]:
        """Return the guesses for each mask, the best first; none beyond the length limit."""
        tokens = bool(self.switches.needing_tokens)
        read = self._tokens if tokens else str
        questions: list[Any] = [[read(mask.before), read(mask.after)] for mask in masks]
        model = self._predict if tokens else self._fill
        found = self.cache.ask(questions, lambda rows: model([questions[row] for row in rows]))
        return [
            [Guess(word, probability, rank) for word, probability, rank in guesses]
            for guesses in found
        ]

    def candidates(self, guesses: Sequence[Guess], unwanted: frozenset[str]) -> list[Guess]:
        """Return the guesses that are neither stop words nor words in or near the mention."""
        return [one for one in guesses if one.word not in self._stops and self._fits(one, unwanted)]

    def _fits(self, guess: Guess, unwanted: frozenset[str]) -> bool:
        if self.switches.candidates == "tokens":
            if self.switches.stop_words == "any_case" and guess.word.lower() in self._stops:
                return False
            return guess.word not in unwanted
        lowered = guess.word.lower()
        if self.switches.stop_words == "any_case" and lowered in self._stops:
            return False
        return lowered not in unwanted

    @cached_property
    def _stops(self) -> frozenset[str]:
        """Return the excluded words: stop words, and in the released code also tokens and signs."""
        if self.switches.candidates == "words":
            return NLTK_STOP_WORDS
        tokens = {
            t for word in (*NLTK_STOP_WORDS, *string.punctuation) for t in self.tokenize(word)
        }
        return frozenset([*tokens, str(self._tokenizer.unk_token)])

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

    def _predict(self, rows: Sequence[Sequence[Sequence[str]]]) -> list[Any]:
        """Return the guesses between tokens, among them word pieces if the switches allow them."""
        model, tokenizer = cast(MaskedLM, self.filler), self._tokenizer
        usual = self.switches.special_tokens == "usual"
        first, last = (
            (tokenizer.cls_token_id, tokenizer.sep_token_id)
            if usual
            else (tokenizer.unk_token_id, tokenizer.unk_token_id)
        )
        ids, places = [], []
        for before, after in rows:
            left, right = (tokenizer.convert_tokens_to_ids(list(part)) for part in (before, after))
            ids.append([first, *left, tokenizer.mask_token_id, *right, last])
            places.append(1 + len(left))
        whole = self.switches.candidates == "words"
        found = []
        for entries in model.predict(ids, places, self.count):
            words = [
                (model.word(token, " ") if whole else tokenizer.convert_ids_to_tokens(token), p)
                for token, p in entries
            ]
            found.append(
                [[word, round_digits(p), rank] for rank, (word, p) in enumerate(words) if word]
            )
        return found

    def _tokens(self, part: str | Sequence[str]) -> list[str]:
        return self.tokenize(part) if isinstance(part, str) else list(part)

    @property
    def _tokenizer(self) -> Any:
        return cast(MaskedLM, self.filler).tokenizer

    def check_word_pieces(self) -> None:
        """Refuse a language model without BERT's word pieces if its tokens are needed."""
        if self.switches.needing_tokens and not any(
            token.startswith(PIECE) for token in self._tokenizer.get_vocab()
        ):
            raise UserError(
                f"recipe.editor.filler: {cast(MaskedLM, self.filler).name_or_path} has no word "
                f"pieces ({PIECE}...), which {', '.join(self.switches.needing_tokens)} needs: "
                "choose a BERT, such as bert-base-cased, or compat=fixed"
            )
