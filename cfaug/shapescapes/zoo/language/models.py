"""The three models: stock transformers classes over one vocabulary of whole words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cfaug.shapescapes.zoo.tokenizers import END, build_word_tokenizer

if TYPE_CHECKING:
    from transformers import (
        BertForMaskedLM,
        BertModel,
        GPT2LMHeadModel,
        PreTrainedTokenizerFast,
    )

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", END)
MAX_LENGTH = 64
WIDTH = 128


def build_tokenizer(words: Sequence[str], *, causal: bool = False) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole lower-cased words: "[CLS] a cat [SEP]", or "a cat" if causal."""
    return build_word_tokenizer(SPECIAL, words, MAX_LENGTH, causal=causal)


def build_masked(words: int) -> BertForMaskedLM:
    """Return a BERT of two layers with initial weights, drawn from torch's current generator."""
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(num_hidden_layers=2, **_bert(words)))


def build_sentence(words: int) -> BertModel:
    """Return a BERT of one narrow layer without a pooler; a sentence is the mean of its tokens.

    It reads every candidate for every caption and so takes the most time: a feed-forward layer of a
    quarter of the usual width halves that, and is as good at recognising captions of one image.
    """
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=1, **{**_bert(words), "intermediate_size": WIDTH})
    return BertModel(config, add_pooling_layer=False)


def _bert(words: int) -> dict[str, int]:
    return {
        "vocab_size": len(SPECIAL) + words,
        "hidden_size": WIDTH,
        "num_attention_heads": 4,
        "intermediate_size": 4 * WIDTH,
        "max_position_embeddings": MAX_LENGTH,
        "type_vocab_size": 1,
        "pad_token_id": SPECIAL.index("[PAD]"),
    }


def build_causal(words: int) -> GPT2LMHeadModel:
    """Return a GPT-2 of two layers with initial weights, drawn from torch's current generator."""
    from transformers import GPT2Config, GPT2LMHeadModel

    end = SPECIAL.index(END)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(SPECIAL) + words,
            n_positions=MAX_LENGTH,
            n_embd=WIDTH,
            n_layer=2,
            n_head=4,
            # GPT-2's own GELU, in one kernel instead of seven.
            activation_function="gelu_pytorch_tanh",
            bos_token_id=end,
            eos_token_id=end,
            pad_token_id=SPECIAL.index("[PAD]"),
        )
    )
