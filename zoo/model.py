"""The tiny CLIP: stock transformers classes at a size that two cores can train.

The vision tower is a small ConvNeXt (Liu et al., 2022): convolutions learn shape at this size,
unlike a plain ViT, and it has no BatchNorm, so that features do not depend on the rest of a batch.
The text tower is CLIP's own (a post-norm BERT of this size learnt only backgrounds in 2,000 steps).
Everything loads with plain ``AutoModel.from_pretrained``. Also here: the tokenizers of whole words
of all tiny models, and the architecture of those that read a picture and write words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.pixels import ImageTransform
from cfaug.core.safety.safe_loading import from_folder
from cfaug.core.weights import resolve
from cfaug.worlds.shapescapes.settings import words
from zoo.command import save_half

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import (
        CLIPImageProcessor,
        FastVlmForConditionalGeneration,
        PreTrainedTokenizerFast,
        VisionTextDualEncoderModel,
        VisionTextDualEncoderProcessor,
    )

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
MAX_LENGTH = 16
IMAGE_SIZE = 32
TRANSFORM = ImageTransform(IMAGE_SIZE, (0.5,) * 3, (0.5,) * 3)
WIDTH = 128


def build_tokenizer(
    known: Sequence[str] = words(), max_length: int = MAX_LENGTH
) -> PreTrainedTokenizerFast:
    """Return a tokenizer of known words: lower-cased, "[CLS] a red ball [SEP]"."""
    return build_word_tokenizer(SPECIAL, known, max_length)


def build_image_processor(size: int = IMAGE_SIZE) -> CLIPImageProcessor:
    """Return the processor of pictures: short side, centre crop, mean and deviation 0.5."""
    from transformers import CLIPImageProcessor

    return CLIPImageProcessor(
        size={"shortest_edge": size},
        crop_size={"height": size, "width": size},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )


def build_processor(
    known: Sequence[str] = words(), max_length: int = MAX_LENGTH
) -> VisionTextDualEncoderProcessor:
    """Return the processor of pictures of 32 px and of texts."""
    from transformers import VisionTextDualEncoderProcessor

    return VisionTextDualEncoderProcessor(
        image_processor=build_image_processor(), tokenizer=build_tokenizer(known, max_length)
    )


def build_model(
    known: Sequence[str] = words(), *, max_length: int = MAX_LENGTH, text_layers: int = 1
) -> VisionTextDualEncoderModel:
    """Return the model with initial weights, drawn from torch's current generator."""
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
    text = CLIPTextConfig(
        vocab_size=len(SPECIAL) + len(known),
        hidden_size=64,
        num_hidden_layers=text_layers,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=max_length,
        projection_dim=64,
        pad_token_id=SPECIAL.index("[PAD]"),
        bos_token_id=SPECIAL.index("[CLS]"),
        eos_token_id=SPECIAL.index("[SEP]"),
    )
    config = VisionTextDualEncoderConfig.from_vision_text_configs(vision, text, projection_dim=64)
    return VisionTextDualEncoderModel(config)


def load(name: str | Path) -> VisionTextDualEncoderModel:
    """Return a trained model, a folder or ``zoo:NAME``, in float32 and in evaluation mode."""
    import torch
    from transformers import VisionTextDualEncoderModel

    return from_folder(VisionTextDualEncoderModel, resolve(str(name)), dtype=torch.float32).eval()


def go_on_from(name: str, model: VisionTextDualEncoderModel) -> VisionTextDualEncoderModel:
    """Copy a trained model's weights into one with more tokens, positions or layers; return it.

    Args:
        name: the trained model; its tokens and positions are the first of the new one's.
        model: the model with initial weights; those that the trained one lacks are kept.
    """
    new = model.state_dict()
    for key, value in load(name).state_dict().items():
        (new[key][: len(value)] if value.ndim else new[key]).copy_(value)
    return model


def save(model: VisionTextDualEncoderModel, folder: Path, known: Sequence[str] = words()) -> None:
    """Write weights (float16 safetensors), configuration, tokenizer and image processor."""
    max_length = model.config.text_config.max_position_embeddings
    save_half(model, build_processor(known, max_length), folder)


# Tokenizers of whole words.

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
    """Yield the lower-cased words of texts, split like in the tokenizers."""
    from tokenizers import normalizers

    lower, split = normalizers.Lowercase(), _splitter(lines)
    for text in texts:
        for word, _ in split.pre_tokenize_str(lower.normalize_str(text)):
            yield word


# The architecture of the tiny captioner and vision-language model: a FastVLM of whole words.
#
# It is a LLaVA with a convolutional vision tower (Vasu et al., 2025), here a ConvNeXt, and a Llama
# as its language model, both of stock transformers classes.

IMAGE = "<image>"


def build_image_tokenizer(known: Sequence[str], max_length: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words, with one token for a cell of the image."""
    tokenizer = build_word_tokenizer(("[PAD]", "[UNK]", END), known, max_length, causal=True)
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
        vision: the settings of the ConvNeXt.
        text: the settings of the Llama, except those that depend on the tokenizer.
    """
    from transformers import (
        ConvNextConfig,
        FastVlmConfig,
        FastVlmForConditionalGeneration,
        LlamaConfig,
    )

    end = tokenizer.convert_tokens_to_ids(END)
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
            **{key: value for key, value in text.items() if key == "tie_word_embeddings"},
        )
    )
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = model.generation_config.bos_token_id = end
    return model
