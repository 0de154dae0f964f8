"""The tiny vision-language model: stock transformers classes at a size that two cores can train.

It is a FastVLM (Vasu et al., 2025), a LLaVA with a convolutional vision tower: here a ConvNeXt,
which learns shape at this size, unlike a plain ViT. The tower's last map has three columns and
three rows, so that each token represents a cell of a ShapeScapes gathering: tokens that straddle
cells would have to be separated by the language model, which is smaller than the tower. The
language model is a Llama of whole words.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.core.pixels import ImageTransform
from cfaug.core.safety.safe_loading import from_folder
from cfaug.core.weights import resolve
from cfaug.models.checkpoints import quiet
from cfaug.shapescapes.gathering import SHAPES, SIDE, SIZES
from cfaug.shapescapes.settings import COLOURS
from cfaug.shapescapes.zoo.command import save_half
from cfaug.shapescapes.zoo.model import (
    build_fast_vlm,
    build_image_processor,
    build_image_tokenizer,
)

if TYPE_CHECKING:
    from transformers import (
        FastVlmForConditionalGeneration,
        LlavaProcessor,
        PreTrainedTokenizerFast,
    )

PATCH = 3
CELL = PATCH * 2**3
"""The side of a cell in pixels: the last of four stages sees one patch in 8 by 8."""
IMAGE_SIZE = SIDE * CELL
CELLS = SIDE**2
"""The number of tokens of a picture."""
TRANSFORM = ImageTransform(IMAGE_SIZE, (0.5,) * 3, (0.5,) * 3)
WIDTH = 96
MAX_LENGTH = 192
"""The largest number of tokens: a question of ShapeScapes-VQA has at most 48 with its picture and
answer, and another may precede it as an example."""
WEIGHT_SPREAD = 0.06
"""The spread of initial weights; with the usual 0.02, for widths of thousands, basic questions took
twice the steps."""
FUNCTION_WORDS = """
a above added all and another answer are as be below by can color colors could did every
given half heavier how if in into is left many mirror moved not of ones or other others
picture places removed right roll rotated round seen shape shapes side size sizes swapped
than the then there thing things to traded turn turned twice two were what which would
"""
"""All words except those that name attributes of things."""
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %} Answer"
    "{% else %}{% for part in message['content'] %} {{ part['text'] }}{% endfor %}"
    "<|endoftext|>{% endif %}{% endfor %}"
)
"""The chat template, as in ``<image>What color is the ball? Answer red<|endoftext|>``."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of all words and signs of questions, with a token for a cell."""
    plurals = (f"{shape}s" for shape in SHAPES)
    numbers = map(str, range(10))
    known = (",", "?", *numbers, *FUNCTION_WORDS.split(), *COLOURS, *SIZES, *SHAPES, *plurals)
    return build_image_tokenizer(known, MAX_LENGTH)


def build_processor() -> LlavaProcessor:
    """Return the processor of pictures and questions; a picture has nine tokens."""
    from transformers import LlavaProcessor

    return LlavaProcessor(
        build_image_processor(IMAGE_SIZE),
        build_tokenizer(),
        patch_size=CELL,
        vision_feature_select_strategy="full",
        chat_template=TEMPLATE,
    )


def build_model() -> FastVlmForConditionalGeneration:
    """Return the model with initial weights, drawn from torch's current generator."""
    vision = {
        "image_size": IMAGE_SIZE,
        "patch_size": PATCH,
        "num_stages": 4,
        "hidden_sizes": [24, 48, 96, 96],
        # No block at 24 x 24: it would take the most time.
        "depths": [0, 2, 2, 1],
        "hidden_size": 96,
    }
    text = {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "initializer_range": WEIGHT_SPREAD,
        "tie_word_embeddings": True,
    }
    return build_fast_vlm(build_tokenizer(), vision, text, CELLS)


def load(name: str) -> FastVlmForConditionalGeneration:
    """Return a trained model, a folder or ``zoo:NAME``, in float32."""
    import torch
    from transformers import FastVlmForConditionalGeneration

    with quiet():
        return from_folder(FastVlmForConditionalGeneration, resolve(name), dtype=torch.float32)


def save(model: FastVlmForConditionalGeneration, folder: Path) -> None:
    """Write weights (float16 safetensors), configuration and processor."""
    save_half(model, build_processor(), folder)
