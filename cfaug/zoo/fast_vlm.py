"""The architecture of the tiny captioner and vision-language model: a FastVLM of whole words.

A LLaVA whose vision tower is a convolutional network (Vasu et al., 2025), here a ConvNeXt, and
whose language model is a Llama, both of stock transformers classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cfaug.zoo.tokenizers import END, build_word_tokenizer

if TYPE_CHECKING:
    from transformers import FastVlmForConditionalGeneration, PreTrainedTokenizerFast

IMAGE = "<image>"
SPECIAL = ("[PAD]", "[UNK]", END)


def build_image_tokenizer(known: Sequence[str], max_length: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words, and of one token that stands for a cell of the image.

    Args:
        known: the words.
        max_length: the most tokens of a text.
    """
    tokenizer = build_word_tokenizer(SPECIAL, known, max_length, causal=True)
    tokenizer.add_special_tokens({"additional_special_tokens": [IMAGE]})
    return tokenizer


def build_fast_vlm(
    tokenizer: PreTrainedTokenizerFast,
    vision: Mapping[str, Any],
    text: Mapping[str, Any],
    image_tokens: int,
) -> FastVlmForConditionalGeneration:
    """Return the model with fresh weights, drawn from torch's current generator.

    Args:
        tokenizer: as ``build_image_tokenizer`` returns it.
        vision: the settings of the ConvNeXt.
        text: the settings of the Llama, but for those that the tokenizer decides.
        image_tokens: how many tokens stand for an image.
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
            # The usual 1e-6 makes every block start as the identity: too slow for 2,000 steps.
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
