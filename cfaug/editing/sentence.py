"""A caption as words: their places, their parts of speech, and the words of a vocabulary."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from cfaug.core.errors import UserError
from cfaug.data.captions import copy_article_case, indefinite_article

if TYPE_CHECKING:
    from nltk.tag.perceptron import PerceptronTagger
    from transformers import PreTrainedTokenizerBase


# NLTK's ``span_tokenize`` takes a second to import and is 11 times as slow (78 us for a caption).
# It keeps a full stop within a caption with its word, and splits "cannot" and "gonna": other words,
# and thus other edits, than in the generated data.
#
# >>> split("The man's dog can't sit.").words
# ('The', 'man', "'s", 'dog', 'ca', "n't", 'sit', '.')

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

    Accents are part of their letters (NFC): an accent of its own would end a word.

    >>> normalise("  a   cat ")
    'a cat'
    """
    return unicodedata.normalize("NFC", " ".join(text.split()))


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
    matches = list(_WORD.finditer(text))
    return Sentence(text, tuple(m.group() for m in matches), tuple(m.span() for m in matches))


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
        word: the new word, in its final case.
        article: whether "a" or "an" right before the slot is adapted to the new word.

    >>> replace_slot(split("a red ball"), Slot(1, 1), "orange", article=True).text
    'an orange ball'
    """
    start, end = slot.span(sentence)
    first, behind = slot.first, slot.last + 1
    words, spans = sentence.words, sentence.spans
    by = len(word) - (end - start)
    replaced = Sentence(
        sentence.text[:start] + word + sentence.text[end:],
        (*words[:first], word, *words[behind:]),
        (
            *spans[:first],
            (start, start + len(word)),
            *((start + by, end + by) for start, end in spans[behind:]),
        ),
    )
    if article and first and words[first - 1].lower() in ("a", "an"):
        right = indefinite_article(word)
        if words[first - 1].lower() != right:
            right = copy_article_case(right, words[first - 1])
            return replace_slot(replaced, Slot(first - 1, first - 1), right)
    return replaced


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


# Part-of-speech taggers: one that needs no download, and NLTK's.


@dataclass(frozen=True)
class TextBlobTagger:
    """TextBlob's lexicon and rules (pattern; De Smedt and Daelemans, 2012).

    On 3,000 MS-COCO captions it agrees with NLTK's perceptron for 94.8% of the words on whether
    they are nouns. Its lemmatiser and inflector are not used: they turn "bus" into "bu".
    """

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return a Penn tag for each word; names of persons and places are NNP."""
        return [[_tag(word, i == 0) for i, word in enumerate(words)] for words in sentences]

    def describe(self) -> dict[str, str]:
        """Return TextBlob's version."""
        from importlib.metadata import version

        return {"tagger": f"textblob {version('textblob')}"}


@lru_cache(maxsize=100_000)
def _tag(word: str, first: bool) -> str:
    """Return the tag of a word from the word and whether it begins its sentence.

    TextBlob does not apply pattern's context rules, so that words can be cached, which matters for
    a thousand edits of one caption.
    """
    from textblob.en import parser

    return str(parser.find_tags([word] if first else [".", word])[-1][1]).split("-")[0]


@dataclass(frozen=True)
class NltkTagger:
    """NLTK's averaged perceptron, the paper's tagger (B.1.1): its JSON data, never its pickle."""

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        return [[tag for _, tag in self._tagger.tag(list(words))] for words in sentences]

    @cached_property
    def _tagger(self) -> PerceptronTagger:
        from nltk.tag.perceptron import PerceptronTagger

        try:
            return PerceptronTagger(lang="eng")
        except LookupError as error:
            raise UserError(
                "NLTK's tagger has no data (taggers/averaged_perceptron_tagger_eng, JSON files) on "
                "this machine. Where there is a network: python -m nltk.downloader "
                "averaged_perceptron_tagger_eng. Elsewhere put the files into a folder and set "
                "NLTK_DATA to it; or choose one that needs none: "
                "zoo.tagger._target_=cfaug.editing.sentence.TextBlobTagger"
            ) from error

    def describe(self) -> dict[str, str]:
        """Return NLTK's version."""
        from importlib.metadata import version

        return {"tagger": f"nltk {version('nltk')} averaged_perceptron_tagger_eng"}


# The entries of a subword vocabulary that are whole words, depending on their place.

BYTE_LEVEL, SENTENCE_PIECE, WORD_PIECE = "Ġ", "▁", "##"
"""The first two mark a word after a space, the last one a continuation."""


class Pieces:
    """Tells whole words from continuations, punctuation and special tokens.

    Byte-level BPE (RoBERTa, GPT-2) and SentencePiece mark a leading space: within a caption, an
    unmarked entry continues the word before it, but at the start, or after a quote, words have no
    mark. WordPiece (BERT) marks continuations. In a vocabulary without marks, each entry is a word.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids)
        entries = tokenizer.get_vocab()
        marks = (
            mark
            for mark in (BYTE_LEVEL, SENTENCE_PIECE, WORD_PIECE)
            if any(len(entry) > len(mark) and entry.startswith(mark) for entry in entries)
        )
        self._mark = next(marks, None)
        self._known: dict[int, tuple[str | None, bool]] = {}

    def word(self, token: int, before: str) -> str | None:
        """Return the whole word that a token is after the character ``before``, or ``None``.

        ``before`` is empty at the start of the text. Words consist only of letters.
        """
        if token not in self._known:
            entry = self._tokenizer.convert_ids_to_tokens(token)
            letters, marked = "", False
            # A vocabulary may be padded beyond its tokenizer's entries.
            if token not in self._special and entry is not None:
                marked = self._mark is not None and entry.startswith(self._mark)
                letters = entry.removeprefix(self._mark or "")
                if self._mark == BYTE_LEVEL:
                    letters = self._tokenizer.convert_tokens_to_string([entry]).strip()
            self._known[token] = letters if letters.isalpha() else None, marked
        text, marked = self._known[token]
        if self._mark is None:
            return text
        if self._mark == WORD_PIECE:
            return None if marked else text
        # At the start, both are words: tokenizers differ in whether they assume a space there.
        fits = before == "" or marked == (before == " ")
        return text if fits else None
