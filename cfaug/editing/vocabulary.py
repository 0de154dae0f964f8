"""The entries of a subword vocabulary that are whole words, depending on their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BYTE_LEVEL, SENTENCE_PIECE, WORD_PIECE = "Ġ", "▁", "##"
"""The first two mark a word after a space, the last one a continuation."""


class Pieces:
    """Tells whole words from continuations, punctuation and special tokens.

    Byte-level BPE (RoBERTa, GPT-2) and SentencePiece mark a leading space: within a caption, an
    unmarked entry continues the word before it, but at the start, or after a quote, words have no
    mark. WordPiece (BERT) marks continuations. In a vocabulary without marks, each entry is a word.

    Args:
        tokenizer: the tokenizer with the vocabulary.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids)
        entries = tokenizer.get_vocab()
        self._mark = next(
            (
                mark
                for mark in (BYTE_LEVEL, SENTENCE_PIECE, WORD_PIECE)
                if any(len(entry) > len(mark) and entry.startswith(mark) for entry in entries)
            ),
            None,
        )
        self._known: dict[int, tuple[str | None, bool]] = {}

    def word(self, token: int, before: str) -> str | None:
        """Return the whole word that a token is after the character ``before``, or ``None``.

        ``before`` is empty at the start of the text. Words consist only of letters.
        """
        if token not in self._known:
            self._known[token] = self._read(token)
        text, marked = self._known[token]
        if self._mark is None:
            return text
        if self._mark == WORD_PIECE:
            return None if marked else text
        # At the start, both are words: tokenizers differ in whether they assume a space there.
        fits = before == "" or marked == (before == " ")
        return text if fits else None

    def _read(self, token: int) -> tuple[str | None, bool]:
        """Return the entry's text if it consists of letters, and whether it has the mark."""
        if token in self._special:
            return None, False
        entry = self._tokenizer.convert_ids_to_tokens(token)
        # A vocabulary may be padded beyond its tokenizer's entries.
        if entry is None:
            return None, False
        marked = self._mark is not None and entry.startswith(self._mark)
        if self._mark == BYTE_LEVEL:
            text = self._tokenizer.convert_tokens_to_string([entry]).strip()
        else:
            text = entry.removeprefix(self._mark or "")
        return (text if text.isalpha() else None), marked
