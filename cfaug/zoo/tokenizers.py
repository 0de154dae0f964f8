"""Tokenizers of whole words, as the tiny models have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import PreTrainedTokenizerFast

END = "<|endoftext|>"


LINES = r"\n|\d+\.|\w+|[^\w\s]+"
"""What is a token where lines count: a line's end, a number with its period, a word, signs."""


def build_word_tokenizer(
    special: Sequence[str],
    words: Sequence[str],
    max_length: int,
    *,
    causal: bool = False,
    lines: bool = False,
) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole lower-cased words: "[CLS] a cat [SEP]", bare for ``causal``.

    Args:
        special: special tokens, which have the first numbers.
        words: all others, in the order of their numbers.
        max_length: the most tokens of a text.
        causal: for a causal model, whose texts begin and end with ``<|endoftext|>``.
        lines: whether ends of lines are tokens, and a line's number with its period is one.
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
    """Yield the words of texts, lower-cased, as those tokenizers split them.

    Args:
        texts: any.
        lines: as for ``build_word_tokenizer``.
    """
    from tokenizers import normalizers

    lower, split = normalizers.Lowercase(), _splitter(lines)
    for text in texts:
        for word, _ in split.pre_tokenize_str(lower.normalize_str(text)):
            yield word
