"""The architecture of the tiny captioner and vision-language model: a FastVLM of whole words.

It is a LLaVA with a convolutional vision tower (Vasu et al., 2025), here a ConvNeXt, and a Llama as
its language model, both of stock transformers classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cfaug.shapescapes.zoo.tokenizers import END, build_word_tokenizer

if TYPE_CHECKING:
    from transformers import FastVlmForConditionalGeneration, PreTrainedTokenizerFast

IMAGE = "<image>"
VLM_SPECIAL = ("[PAD]", "[UNK]", END)


def build_image_tokenizer(known: Sequence[str], max_length: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words, with one token for a cell of the image.

    Args:
        known: the words.
        max_length: the largest number of tokens of a text.
    """
    tokenizer = build_word_tokenizer(VLM_SPECIAL, known, max_length, causal=True)
    tokenizer.add_special_tokens({"additional_special_tokens": [IMAGE]})
    return tokenizer


def build_fast_vlm(
    tokenizer: PreTrainedTokenizerFast,
    vision: Mapping[str, Any],
    text: Mapping[str, Any],
    image_tokens: int,
) -> FastVlmForConditionalGeneration:
    """Return the model with initial weights, drawn from torch's current generator.

    Args:
        tokenizer: a tokenizer of ``build_image_tokenizer``.
        vision: the settings of the ConvNeXt.
        text: the settings of the Llama, except those that depend on the tokenizer.
        image_tokens: the number of tokens of an image.
    """
    from transformers import (
        ConvNextConfig,
        FastVlmConfig,
        FastVlmForConditionalGeneration,
        LlamaConfig,
    )

    end = tokenizer.convert_tokens_to_ids(END)
    tied = {key: value for key, value in text.items() if key == "tie_word_embeddings"}
    language = LlamaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=tokenizer.model_max_length,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=end,
        eos_token_id=end,
        **text,
    )
    model = FastVlmForConditionalGeneration(
        FastVlmConfig(
            # With the usual 1e-6 every block starts as the identity: too slow for 2,000 steps.
            vision_config=ConvNextConfig(layer_scale_init_value=1.0, **vision),
            text_config=language,
            image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
            image_seq_length=image_tokens,
            **tied,
        )
    )
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = model.generation_config.bos_token_id = end
    return model
