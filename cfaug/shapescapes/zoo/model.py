"""The tiny CLIP: stock transformers classes at a size that two cores can train.

The vision tower is a small ConvNeXt (Liu et al., 2022): convolutions learn shape at this size,
unlike a plain ViT, and it has no BatchNorm, so that features do not depend on the rest of a batch.
The text tower is CLIP's own (a post-norm BERT of this size learnt only backgrounds in 2,000 steps).
Everything loads with plain ``AutoModel.from_pretrained``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.shapescapes.settings import words
from cfaug.shapescapes.zoo.command import save_half

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer
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


# Tokenizers of whole words for the tiny models.

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
        lines: whether ends of lines, and line numbers with their periods, are tokens.
    """
    from tokenizers import normalizers

    lower, split = normalizers.Lowercase(), _splitter(lines)
    for text in texts:
        for word, _ in split.pre_tokenize_str(lower.normalize_str(text)):
            yield word
