"""A caption during insertion: its characters, or tokens as in the released code."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cfaug.core.words import copy_article_case, indefinite_article
from cfaug.editing.sentence import split
from cfaug.xmai.insertions.mentions import Mention
from cfaug.xmai.insertions.switches import Switches

NEAR = 3
"""Number of words or tokens next to a mask that are not candidates: the "3-hop neighborhood"
(section 3)."""

PIECE = "##"
"""WordPiece's prefix of the continuation of a word."""

_LAST_ARTICLE = re.compile(r"(?<![\w'’-])(an?) $", re.IGNORECASE)
_TOKEN = re.compile(r"[^\W_]+|[^\w\s]|_")
"""The units into which BERT splits texts before it finds word pieces."""


@dataclass(frozen=True)
class Surroundings:
    """The context of a mask for the language model: texts or tokens before and after it."""

    before: str | tuple[str, ...]
    after: str | tuple[str, ...]


class Canvas(Protocol):
    """A caption whose masks are filled from left to right."""

    def surroundings(self, i: int) -> Surroundings:
        """Return the context of mask ``i`` for the language model."""
        ...

    def unwanted(self, i: int) -> frozenset[str]:
        """Return the words in and near the mention, which are not candidates for mask ``i``.

        They are in lower case if candidates are words.
        """
        ...

    def next_token(self, i: int) -> str:
        """Return the token after mask ``i``, with the word pieces of one word joined."""
        ...

    def candidate(self, i: int, word: str) -> str:
        """Return the caption with mask ``i`` replaced by a word."""
        ...

    def fill(self, i: int, word: str | None) -> None:
        """Replace mask ``i`` by a word, or remove it."""
        ...

    def result(self) -> tuple[str, list[int | None]]:
        """Return the caption, and the place of the first character of each mask's word."""
        ...


class Characters:
    """A caption that keeps its characters.

    Args:
        text: the caption with normalised white space.
        mentions: the mentions, from left to right, each with a mask before it.
        switches: resolved switches, without ``None``.
        mask: the language model's mask token.
    """

    def __init__(
        self, text: str, mentions: Sequence[Mention], switches: Switches, mask: str
    ) -> None:
        self._text = text
        self._mentions = mentions
        self._switches = switches
        self._mask = mask
        self._words: list[str | None] = [None] * len(mentions)

    def surroundings(self, i: int) -> Surroundings:
        """Return the text before the mention, with its insertions, and the text from there on."""
        hidden = self._switches.context == "masks"
        words = [self._mask] * i if hidden else self._earlier(i)
        start = self._mentions[i].start
        before, _ = self._compose([*words, *[None] * (len(self._mentions) - i)], start)
        return Surroundings(before, self._text[start:])

    def unwanted(self, i: int) -> frozenset[str]:
        """Return the mention's words and those near it, in lower case."""
        around = self.surroundings(i)
        words = split(f"{around.before}").words[-NEAR:]
        noun = self._mentions[i]
        own = split(self._text[noun.start : noun.end]).words
        if self._switches.neighbours == "both":
            words += split(self._text[noun.end :]).words[:NEAR]
        return frozenset(word.lower() for word in (*words, *own))

    def next_token(self, i: int) -> str:
        """Return the token at the mention."""
        match = _TOKEN.match(self._text, self._mentions[i].start)
        return match.group() if match else ""

    def candidate(self, i: int, word: str) -> str:
        """Return the caption with mask ``i`` replaced by a word."""
        keep = self._switches.later_masks == "keep"
        rest = len(self._words) - i - 1
        later: list[str | None] = [self._mask if keep else None] * rest
        return self._compose([*self._earlier(i), word, *later])[0]

    def fill(self, i: int, word: str | None) -> None:
        """Replace mask ``i`` by a word, or remove it."""
        self._words[i] = word

    def result(self) -> tuple[str, list[int | None]]:
        """Return the caption, and the place of the first character of each mask's word."""
        return self._compose(self._words)

    def _earlier(self, i: int) -> list[str | None]:
        """Return the replacements of the masks before mask ``i`` while it is filled."""
        return [None] * i if self._switches.context == "alone" else self._words[:i]

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
        if self._switches.spelling == "right" and word != self._mask:
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


class TokenCanvas:
    """A caption as word pieces that are joined at the end, as in the released code.

    Args:
        text: the caption with normalised white space.
        mentions: the mentions, from left to right, each with a mask before it.
        switches: resolved switches, without ``None``.
        mask: the language model's mask token.
        tokenize: the language model's function that splits texts into tokens.
    """

    def __init__(
        self,
        text: str,
        mentions: Sequence[Mention],
        switches: Switches,
        mask: str,
        tokenize: Tokenize,
    ) -> None:
        self._switches = switches
        self._mask = mask
        masked, at = "", 0
        for mention in mentions:
            masked += text[at : mention.start] + f"{mask} "
            at = mention.start
        # An empty string at either end, as in the released code.
        self._tokens = ["", *tokenize(masked + text[at:]), ""]
        self._places = [i for i, token in enumerate(self._tokens) if token == mask]
        self._whole = join_pieces(self._tokens)

    def surroundings(self, i: int) -> Surroundings:
        """Return the tokens before and after mask ``i``, without later masks."""
        place, context = self._places[i], self._switches.context
        earlier = set(self._places[:i])
        before = (
            self._mask if context == "masks" and at in earlier else token
            for at, token in enumerate(self._tokens[1:place], 1)
            if at not in earlier or context == "masks" or (token and context == "sequential")
        )
        after = (token for token in self._tokens[place + 1 : -1] if token != self._mask)
        return Surroundings(tuple(before), tuple(after))

    def unwanted(self, i: int) -> frozenset[str]:
        """Return the token after the mask, and the tokens near it."""
        around = self.surroundings(i)
        # The released code counts the empty string at the start, and finds no words near the
        # beginning.
        before, after = ("", *around.before), (*around.after, "")
        if self._switches.neighbours == "both":
            near = {*before[-NEAR:], *after[: NEAR + 1]}
        else:
            near = {*(before[-NEAR:] if len(before) >= NEAR else ()), *after[:1]}
        if self._switches.candidates == "words":
            near = {token.lower() for token in near}
        return frozenset(near)

    def next_token(self, i: int) -> str:
        """Return the word after mask ``i``, with its pieces joined."""
        return self._whole[self._places[i] + 1]

    def candidate(self, i: int, word: str) -> str:
        """Return the caption with mask ``i`` replaced by a word."""
        tokens = list(self._tokens)
        tokens[self._places[i]] = word
        if self._switches.context == "alone":
            for place in self._places[:i]:
                tokens[place] = ""
        if self._switches.later_masks == "remove":
            for place in self._places[i + 1 :]:
                tokens[place] = ""
        return join_tokens(tokens)[0]

    def fill(self, i: int, word: str | None) -> None:
        """Replace mask ``i`` by a word, or remove it."""
        self._tokens[self._places[i]] = word or ""

    def result(self) -> tuple[str, list[int | None]]:
        """Return the caption, and the place of the first character of each mask's word."""
        text, starts = join_tokens(self._tokens)
        # If the character that was cut off was not a space, the next one may be.
        cut = len(text) - len(text.lstrip())
        return text.lstrip(), [
            max(starts[place] - cut, 0) if self._tokens[place] else None for place in self._places
        ]


class Tokenize(Protocol):
    """Splits a text into the tokens of a language model."""

    def __call__(self, text: str) -> list[str]:
        """Return the tokens of a text, without special tokens except those spelt out in it."""
        ...


def join_tokens(tokens: Sequence[str]) -> tuple[str, list[int]]:
    """Return the text of tokens and the start of each, as in the code (``tokens_to_text``).

    The first and the last token, empty strings, are left out. Signs, and tokens after an
    apostrophe, follow without a space. The first character is always cut off.

    >>> join_tokens(["", "the", "man", "'", "s", "t", "-", "shirt", "##s", ""])[0]
    "the man's t- shirts"
    """
    text, starts = "", []
    apostrophe = False
    for token in tokens[1:-1]:
        piece = token
        if token.startswith(PIECE):
            piece = token[len(PIECE) :]
        elif not token:
            pass
        elif token in string.punctuation:
            apostrophe = apostrophe or token == "'"
        elif apostrophe:
            apostrophe = False
        else:
            text += " "
        starts.append(max(len(text) - 1, 0))
        text += piece
    return text[1:], [0, *starts, max(len(text) - 1, 0)]


def join_pieces(tokens: Sequence[str]) -> list[str]:
    """Return, for every token, the whole word of which it is a piece (``combine_token_pieces``).

    >>> join_pieces(["", "t", "##shirt", "red", ""])
    ['', 'tshirt', 'tshirt', 'red', '']
    """
    words: list[str] = []
    starts: list[int] = []
    for i, token in enumerate(tokens):
        if token.startswith(PIECE) and starts:
            words[starts[-1]] += token[len(PIECE) :]
            starts.append(starts[-1])
            words.append("")
        else:
            starts.append(i)
            words.append(token)
    return [words[start] for start in starts]
