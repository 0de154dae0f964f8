"""The tiny CLIP: stock transformers classes at a size that two cores can train.

The vision tower is a small ConvNeXt (Liu et al., 2022): convolutions learn shape at this size,
unlike a plain ViT, and it has no BatchNorm, so that features do not depend on the rest of a batch.
The text tower is CLIP's own (a post-norm BERT of this size learnt only backgrounds in 2,000 steps).
Everything loads with plain ``AutoModel.from_pretrained``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.shapescapes.vocabulary import words
from cfaug.shapescapes.zoo.command import save_half
from cfaug.shapescapes.zoo.tokenizers import build_word_tokenizer

if TYPE_CHECKING:
    from transformers import (
        PreTrainedTokenizerFast,
        VisionTextDualEncoderModel,
        VisionTextDualEncoderProcessor,
    )

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
MAX_LENGTH = 16
IMAGE_SIZE = 32
WIDTH = 128


def build_tokenizer(
    known: Sequence[str] = words(), max_length: int = MAX_LENGTH
) -> PreTrainedTokenizerFast:
    """Return a tokenizer of known words: lower-cased, "[CLS] a red ball [SEP]"."""
    return build_word_tokenizer(SPECIAL, known, max_length)


def build_processor(
    known: Sequence[str] = words(), max_length: int = MAX_LENGTH
) -> VisionTextDualEncoderProcessor:
    """Return the processor: 32 px, centre crop, mean and deviation 0.5; and the tokenizer."""
    from transformers import CLIPImageProcessor, VisionTextDualEncoderProcessor

    images = CLIPImageProcessor(
        size={"shortest_edge": IMAGE_SIZE},
        crop_size={"height": IMAGE_SIZE, "width": IMAGE_SIZE},
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    )
    tokenizer = build_tokenizer(known, max_length)
    return VisionTextDualEncoderProcessor(image_processor=images, tokenizer=tokenizer)


def build_model(
    known: Sequence[str] = words(), *, max_length: int = MAX_LENGTH, text_layers: int = 1
) -> VisionTextDualEncoderModel:
    """Return the model with initial weights, drawn from torch's current generator.

    Args:
        known: the words of the tokenizer.
        max_length: the largest number of tokens of a text.
        text_layers: the number of layers of the text tower.
    """
    from transformers import (
        CLIPTextConfig,
        ConvNextConfig,
        VisionTextDualEncoderConfig,
        VisionTextDualEncoderModel,
    )

    vision = ConvNextConfig(
        image_size=IMAGE_SIZE,
        patch_size=2,
        num_stages=3,
        hidden_sizes=[24, 64, WIDTH],
        # No block at 16 x 16: it would take the most time and did not clearly learn shape sooner.
        depths=[0, 2, 1],
        # With the usual 1e-6 every block starts as the identity: too slow for 2,000 steps.
        layer_scale_init_value=1.0,
        hidden_size=WIDTH,
    )
    special = {token: i for i, token in enumerate(SPECIAL)}
    text = CLIPTextConfig(
        vocab_size=len(SPECIAL) + len(known),
        hidden_size=64,
        num_hidden_layers=text_layers,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=max_length,
        projection_dim=64,
        pad_token_id=special["[PAD]"],
        bos_token_id=special["[CLS]"],
        eos_token_id=special["[SEP]"],
    )
    config = VisionTextDualEncoderConfig.from_vision_text_configs(vision, text, projection_dim=64)
    return VisionTextDualEncoderModel(config)


def go_on_from(name: str, model: VisionTextDualEncoderModel) -> VisionTextDualEncoderModel:
    """Copy a trained model's weights into one with more tokens, positions or layers; return it.

    Args:
        name: the trained model; its tokens and positions are the first of the new one's.
        model: the model with initial weights; those that the trained one lacks are kept.
    """
    import torch
    from transformers import VisionTextDualEncoderModel

    from cfaug.core.safety.safe_loading import from_folder
    from cfaug.core.weights import resolve

    old = from_folder(VisionTextDualEncoderModel, resolve(name), dtype=torch.float32).state_dict()
    new = model.state_dict()
    for key, value in old.items():
        (new[key][: len(value)] if value.ndim else new[key]).copy_(value)
    return model


def save(model: VisionTextDualEncoderModel, folder: Path, known: Sequence[str] = words()) -> None:
    """Write weights (float16 safetensors), configuration, tokenizer and image processor."""
    max_length = model.config.text_config.max_position_embeddings
    save_half(model, build_processor(known, max_length), folder)
