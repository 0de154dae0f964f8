"""Train the tiny captioner: ``python -m cfaug zoo captioner out=FOLDER seed=0``.

It describes the whole content of a photo, a sketch or any other picture of the world: "a sketch of
a red ball on the beach". It is a stock FastVLM (Vasu et al., 2025) of transformers, a LLaVA with a
convolutional vision tower: here a ConvNeXt, which learns shape at this size, unlike a plain ViT. It
never sees the oracle's words for a picture that it describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import derive, generator
from cfaug.shapescapes.language import describe, parse
from cfaug.shapescapes.oracle import FACTORS
from cfaug.shapescapes.settings import DOMAINS, Factors, words_of_domains
from cfaug.shapescapes.zoo.classifier import SIDE, TRANSFORM, build_processor
from cfaug.shapescapes.zoo.clip import jitter
from cfaug.shapescapes.zoo.command import DrawingSettings, fit, make_model, read, run, save_half
from cfaug.shapescapes.zoo.diffusion.data import draw
from cfaug.shapescapes.zoo.model import END
from cfaug.shapescapes.zoo.vlm_model import IMAGE, build_fast_vlm, build_image_tokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import (
        FastVlmForConditionalGeneration,
        LlavaProcessor,
        PreTrainedTokenizerFast,
    )

MAX_LENGTH = 48
PATCH = 2
STAGES = 3
TOKENS = (SIDE // (PATCH * 2 ** (STAGES - 1))) ** 2
"""The number of tokens of a picture."""

WIDTH = 64
BATCH = 100

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class CaptionerSettings(DrawingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`cfaug.shapescapes.zoo.command.DrawingSettings`, and
        processes: the number of processes that draw scenes; affects only the time.
        factors_weight: the weight of a second loss, the classification of every factor by linear
            heads on the vision tower, which are discarded: with captions alone it hardly learnt
            shape.
    """

    scenes: int = 8_000
    steps: int = 3_000
    batch_size: int = 48
    lr: float = 4e-3
    factors_weight: float = 1.0
    held_out: int = 500
    processes: int = 1


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words, with one token for the image."""
    return build_image_tokenizer(words_of_domains(), MAX_LENGTH)


def build_llava_processor() -> LlavaProcessor:
    """Return the processor of pictures and texts; a picture has 16 tokens."""
    from transformers import LlavaProcessor

    return LlavaProcessor(
        build_processor(),
        build_tokenizer(),
        patch_size=PATCH * 2 ** (STAGES - 1),
        vision_feature_select_strategy="full",
    )


def build_model() -> FastVlmForConditionalGeneration:
    """Return the model with initial weights, drawn from torch's current generator."""
    vision = {
        "image_size": SIDE,
        "patch_size": PATCH,
        "num_stages": STAGES,
        "hidden_sizes": [24, 64, 96],
        "depths": [0, 2, 1],
        "hidden_size": 96,
    }
    text = {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    return build_fast_vlm(build_tokenizer(), vision, text, TOKENS)


def scenes(seed: int, part: str, count: int, processes: int) -> tuple[Pixels, list[Factors]]:
    """Return unbiased pictures in every domain for the model, uint8 (n, 3, 32, 32)."""
    from PIL import Image

    drawn = draw(seed, part, count, domains=DOMAINS, processes=processes)
    images = (Image.fromarray(pixel.transpose(1, 2, 0)) for pixel in drawn.pixels)
    return np.stack([TRANSFORM(image) for image in images]), drawn.factors


def tokenize(factors: list[Factors]) -> dict[str, Tensor]:
    """Return the tokens of pictures followed by their captions, and the captions' labels."""
    tokenizer = build_tokenizer()
    texts = [f"{IMAGE * TOKENS} {describe(factor)} {END}" for factor in factors]
    made = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
    labels = made["input_ids"].clone()
    labels[:, :TOKENS] = -100
    labels[made["attention_mask"] == 0] = -100
    return {**made, "labels": labels}


def train(settings: CaptionerSettings) -> FastVlmForConditionalGeneration:
    """Train from scratch with progress on stderr; return the model in evaluation mode."""
    import torch
    from torch.nn.functional import cross_entropy

    torch.manual_seed(derive(settings.seed, "zoo", "captioner") % 2**63)
    model = build_model().train()
    width = model.config.vision_config.hidden_size
    heads = torch.nn.ModuleDict({k: torch.nn.Linear(width, len(v)) for k, v in FACTORS.items()})
    pixels, factors = scenes(settings.seed, "captioner", settings.scenes, settings.processes)
    tokens = tokenize(factors)
    values = {
        kind: torch.tensor([names.index(getattr(factor, kind)) for factor in factors])
        for kind, names in FACTORS.items()
    }
    rng = generator(settings.seed, "zoo", "captioner", "order")
    seen: list[Tensor] = []
    watched = model.model.vision_tower.register_forward_hook(
        lambda module, inputs, output: seen.append(output.last_hidden_state)
    )

    def loss(step: int) -> Tensor:
        rows = rng.choice(len(pixels), settings.batch_size, replace=False)
        images = TRANSFORM.normalize(torch.from_numpy(jitter(pixels[rows], rng)))
        said = {name: value[rows] for name, value in tokens.items()}
        found: Tensor = model(pixel_values=images, **said).loss
        pooled = seen.pop().mean(dim=(2, 3))
        for kind, head in heads.items():
            found = found + settings.factors_weight * cross_entropy(
                head(pooled), values[kind][rows]
            )
        return found

    fit(torch.nn.ModuleList([model, heads]), loss, settings, "captioner")
    watched.remove()
    return model.eval()


def evaluate(folder: Path, seed: int, count: int, part: str = "held-out") -> dict[str, float]:
    """Return the accuracy of the captioner in a folder on held-out pictures.

    ``caption_acc1`` is the share of captions that are right in every word, ``subject_acc1`` and the
    others that of captions with the right factor, and ``caption_acc1_DOMAIN`` that in one domain.
    """
    import torch

    from cfaug.models.image_text import HFCaptioner

    captioner = HFCaptioner.load(folder, max_new_tokens=24)
    pixels, factors = scenes(seed, part, count, 1)
    texts: list[str] = []
    for start in range(0, count, BATCH):
        texts += captioner.caption(torch.from_numpy(pixels[start : start + BATCH]))
    exact = np.array([text == describe(one) for text, one in zip(texts, factors, strict=True)])
    metrics = {"n": count, "caption_acc1": float(exact.mean())}
    said = [parse(text) for text in texts]
    for name in FACTORS:
        right = [
            getattr(s, name, None) == getattr(f, name) for s, f in zip(said, factors, strict=True)
        ]
        metrics[f"{name}_acc1"] = float(np.mean(right))
    for domain in DOMAINS:
        rows = [i for i, one in enumerate(factors) if one.domain == domain]
        if rows:
            metrics[f"caption_acc1_{domain}"] = float(exact[rows].mean())
    return metrics


def save(model: FastVlmForConditionalGeneration, folder: Path) -> None:
    """Write weights (float16 safetensors), configuration and processor."""
    save_half(model, build_llava_processor(), folder)


def main(argv: list[str]) -> int:
    """Train, evaluate and write one captioner with its ``card.json``."""
    settings = read(CaptionerSettings, argv)
    return make_model(
        "captioner",
        settings,
        lambda: train(settings),
        save,
        lambda model, folder: evaluate(folder, settings.seed, settings.held_out),
        leave_out=("processes",),
    )


if __name__ == "__main__":
    run(main)
