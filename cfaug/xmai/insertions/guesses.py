"""A language model's guesses for the masks of a caption, and a cache of models' answers.

Ablations repeat no question. ``<cache>/insertion/<model>/`` holds the answers of one model with its
weights and settings. A file is written atomically, has its checksum in its name and is never
changed, so that processes share a cache without coordination, and any file may be deleted.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from cfaug.core.errors import UserError, say
from cfaug.core.files import KeptRecords
from cfaug.core.weights import sha256_text
from cfaug.core.words import copy_article_case, indefinite_article
from cfaug.editing.language_models import MaskedLM
from cfaug.editing.protocols import Blank, MaskFiller, round_digits
from cfaug.editing.sentence import split
from cfaug.xmai.insertions.mentions import Mention


class AnswerCache:
    """The answers of one model.

    Args:
        folder: the folder of all models' answers; ``None`` keeps no answers, neither on disk nor in
            memory.
        identity: the model's weights and every setting that changes an answer, as a text.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        name = sha256_text(identity)[:32]
        self._folder = None if folder is None else folder / "insertion" / name
        self._fresh: dict[str, str] = {}
        self.asked = 0

    @property
    def keeps(self) -> bool:
        """Whether answers are kept."""
        return self._folder is not None

    def ask(
        self, questions: Sequence[Any], answer: Callable[[list[int]], Sequence[Any]]
    ) -> list[Any]:
        """Return the answer to each question; the model answers equal questions once.

        Args:
            questions: the questions as JSON values.
            answer: a function that asks the model the questions at some places, and returns a JSON
                value for each; ``None`` stands for an unreadable image, and is not kept because it
                may differ next time.
        """
        keys = [sha256_text(json.dumps(question)) for question in questions]
        kept = self._kept if self.keeps else KeptRecords(None)
        first: dict[str, int] = {}
        for position, key in enumerate(keys):
            if key not in kept and key not in self._fresh:
                first.setdefault(key, position)
        self.asked += len(first)
        answers = answer(list(first.values())) if first else []
        # In the form that the next process will read: a tuple becomes a list.
        new = {key: json.dumps(value) for key, value in zip(first, answers, strict=True)}
        texts = self._fresh | new
        if self.keeps:
            self._fresh = {key: text for key, text in texts.items() if text != "null"}
        return [json.loads(texts[key]) if key in texts else kept[key] for key in keys]

    def write(self) -> None:
        """Write the new answers."""
        if not self._fresh:
            return
        try:
            self._kept.add({key: json.loads(text) for key, text in self._fresh.items()})
        except OSError as error:
            raise UserError(
                f"answers of models cannot be kept in {self._folder} ({error}): free some space, "
                "or set recipe.editor.cache=null"
            ) from error
        self._fresh = {}

    @cached_property
    def _kept(self) -> KeptRecords:
        kept = KeptRecords(self._folder)
        if kept.damaged:
            say(
                f"{kept.damaged} files in {self._folder} were damaged; "
                "their questions are asked again"
            )
        return kept


@dataclass(frozen=True)
class Guess:
    """One of a language model's guesses, and the scores of one that may be inserted.

    Attributes:
        probability: the probability over the whole vocabulary, rounded.
        rank: the rank among the guesses, from 0.
    """

    word: str
    probability: float
    rank: int
    similarity: float | None = None
    distance: float | None = None
    score: float = 0.0


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

    def ask(self, masks: Sequence[tuple[str, str]]) -> list[list[Guess]]:
        """Return the guesses for each mask, the best first; none beyond the length limit.

        Args:
            masks: the text before and the text after each mask.
        """

        def fill(rows: list[int]) -> list[Any]:
            """Return the guesses for blanks: a space on either side, except at the beginning."""
            blanks = []
            for before, after in (masks[row] for row in rows):
                blanks.append(Blank(f"{before} {after}", len(before), len(before)))
            return [
                [
                    [fill.word, round_digits(fill.probability), rank]
                    for rank, fill in enumerate(fills)
                    if fill.word is not None
                ]
                for fills in self.filler.fill(blanks, self.count)
            ]

        answers = self.cache.ask([list(mask) for mask in masks], fill)
        return [[Guess(*guess) for guess in guesses] for guesses in answers]


Context = Literal["sequential", "alone"]
NEAR = 3
"""Number of words next to a mask that are not candidates: the "3-hop neighborhood"
(section 3)."""
PIECE = "##"
"""WordPiece's prefix of the continuation of a word."""


class Canvas:
    """A caption whose masks are filled from left to right; the rest keeps its characters.

    Args:
        mentions: the mentions, from left to right, each with a mask before it.
        context: the text that the language model reads to the left of a mask.
    """

    def __init__(self, text: str, mentions: Sequence[Mention], context: Context) -> None:
        self._text, self._mentions, self._context = text, mentions, context
        self._words: list[str | None] = [None] * len(mentions)

    def surroundings(self, i: int) -> tuple[str, str]:
        """Return the text before the mention, with its insertions, and the text from there on."""
        start = self._mentions[i].start
        before, _ = self._compose([*self._earlier(i), *[None] * (len(self._mentions) - i)], start)
        return before, self._text[start:]

    def unwanted(self, i: int) -> frozenset[str]:
        """Return the mention's words and those near it, in lower case."""
        noun = self._mentions[i]
        words = (
            *split(self.surroundings(i)[0]).words[-NEAR:],
            *split(self._text[noun.start : noun.end]).words,
            *split(self._text[noun.end :]).words[:NEAR],
        )
        return frozenset(word.lower() for word in words)

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
            piece = word.startswith(PIECE) and len(word) > len(PIECE)
            if piece or word in string.punctuation:
                text = text.rstrip(" ")
                word = word.removeprefix(PIECE) if piece else word
            else:
                article = re.search(r"(?<![\w'’-])(an?) $", text, re.IGNORECASE)
                right = indefinite_article(word)
                if article is not None and article[1].lower() != right:
                    text = f"{text[: article.start()]}{copy_article_case(right, article[1])} "
                if not text.strip() and mention.noun[:1].isupper():
                    word = word[:1].upper() + word[1:]
            starts.append(len(text))
            text += f"{word} "
        return text + self._text[at:end], starts
