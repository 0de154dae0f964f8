"""Tokenizers of whole words for the tiny models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import PreTrainedTokenizerFast

END = "<|endoftext|>"


LINES = r"\n|\d+\.|\w+|[^\w\s]+"
"""The tokens of texts with lines: a line's end, a number with its period, a word, or signs."""


def build_word_tokenizer(
    special: Sequence[str],
    words: Sequence[str],
    max_length: int,
    *,
    causal: bool = False,
    lines: bool = False,
) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole lower-cased words: "[CLS] a cat [SEP]", or "a cat" if causal.

    Args:
        special: the special tokens, which have the first ids.
        words: all other words, in the order of their ids.
        max_length: the largest number of tokens of a text.
        causal: whether the model is causal; its texts begin and end with ``<|endoftext|>``.
        lines: whether ends of lines, and line numbers with their periods, are tokens.
    """
    from tokenizers import Tokenizer, models, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    numbers = {word: i for i, word in enumerate((*special, *words))}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = _splitter(lines)
    roles = {"bos_token": END, "eos_token": END}
    if not causal:
        roles = {"cls_token": "[CLS]", "sep_token": "[SEP]"}
        roles |= {"mask_token": "[MASK]"} if "[MASK]" in special else {}
        tokenizer.post_processor = processors.BertProcessing(
            ("[SEP]", numbers["[SEP]"]), ("[CLS]", numbers["[CLS]"])
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        **roles,
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
    )


def _splitter(lines: bool) -> PreTokenizer:
    from tokenizers import Regex, pre_tokenizers

    if not lines:
        return pre_tokenizers.Whitespace()
    return pre_tokenizers.Split(Regex(LINES), "removed", invert=True)


def split_words(texts: Sequence[str], *, lines: bool = False) -> Iterator[str]:
    """Yield the lower-cased words of texts, split like in the tokenizers.

    Args:
        texts: the texts to split.
        lines: whether ends of lines, and line numbers with their periods, are tokens.
    """
    from tokenizers import normalizers

    lower, split = normalizers.Lowercase(), _splitter(lines)
    for text in texts:
        for word, _ in split.pre_tokenize_str(lower.normalize_str(text)):
            yield word
