"""Tokenizers of whole words, as the tiny models have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END = "<|endoftext|>"


def build_word_tokenizer(
    special: Sequence[str], words: Sequence[str], max_length: int, *, causal: bool = False
) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole lower-cased words: "[CLS] a cat [SEP]", bare for ``causal``.

    Args:
        special: special tokens, which have the first numbers.
        words: all others, in the order of their numbers.
        max_length: the most tokens of a text.
        causal: for a causal model, whose texts begin and end with ``<|endoftext|>``.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    numbers = {word: i for i, word in enumerate((*special, *words))}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
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


def split_words(texts: Sequence[str]) -> Iterator[str]:
    """Yield the words of texts, lower-cased, as those tokenizers split them."""
    from tokenizers import normalizers, pre_tokenizers

    lower, split = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    for text in texts:
        for word, _ in split.pre_tokenize_str(lower.normalize_str(text)):
            yield word
