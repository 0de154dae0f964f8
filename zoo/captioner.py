"""Train the tiny captioner: ``python -m zoo captioner out=FOLDER seed=0``.

It describes the whole content of a photo, a sketch or any other picture of the world: "a sketch of
a red ball on the beach". It is a stock FastVLM (Vasu et al., 2025) of transformers, a LLaVA with a
convolutional vision tower: here a ConvNeXt, which learns shape at this size, unlike a plain ViT. It
never sees the oracle's words for a picture that it describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.rng import derive, generator
from cfaug.worlds.shapescapes.language import describe, parse
from cfaug.worlds.shapescapes.settings import DOMAINS, FACTORS, Factors, words_of_domains
from zoo.command import DrawingSettings, fit, make_model, save_half
from zoo.model import (
    END,
    IMAGE,
    IMAGE_SIZE,
    TRANSFORM,
    build_fast_vlm,
    build_image_processor,
    build_image_tokenizer,
)
from zoo.scenes import Scenes, compare_factors, draw, jitter, label

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import FastVlmForConditionalGeneration, PreTrainedTokenizerFast

PATCH = 2
STAGES = 3
CELL = PATCH * 2 ** (STAGES - 1)
"""The side of what a token shows, in pixels."""
TOKENS = (IMAGE_SIZE // CELL) ** 2
"""The number of tokens of a picture."""
WIDTH = 64
BATCH = 100


@dataclass(frozen=True, kw_only=True)
class CaptionerSettings(DrawingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`zoo.command.DrawingSettings`, and
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
    return build_image_tokenizer(words_of_domains(), 48)


def build_model() -> FastVlmForConditionalGeneration:
    """Return the model with initial weights, drawn from torch's current generator."""
    vision = {
        "image_size": IMAGE_SIZE,
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


def scenes(seed: int, part: str, count: int, processes: int = 1) -> Scenes:
    """Return unbiased scenes in every domain as the model sees them, in 32 px."""
    return draw(seed, part, count, domains=DOMAINS, processes=processes).shrunk(TRANSFORM)


def tokenize(factors: list[Factors]) -> dict[str, Tensor]:
    """Return the tokens of pictures followed by their captions, and the captions' labels."""
    texts = [f"{IMAGE * TOKENS} {describe(factor)} {END}" for factor in factors]
    tokens = build_tokenizer()(texts, padding=True, padding_side="right", return_tensors="pt")
    labels = tokens["input_ids"].clone()
    labels[:, :TOKENS] = -100
    labels[tokens["attention_mask"] == 0] = -100
    return {**tokens, "labels": labels}


def train(settings: CaptionerSettings) -> FastVlmForConditionalGeneration:
    """Train from scratch with progress on stderr; return the model in evaluation mode."""
    import torch
    from torch.nn.functional import cross_entropy

    torch.manual_seed(derive(settings.seed, "zoo", "captioner") % 2**63)
    model = build_model().train()
    width = model.config.vision_config.hidden_size
    heads = torch.nn.ModuleDict({k: torch.nn.Linear(width, len(v)) for k, v in FACTORS.items()})
    drawn = scenes(settings.seed, "captioner", settings.scenes, settings.processes)
    tokens = tokenize(drawn.factors)
    values = {kind: torch.from_numpy(label(drawn.factors, kind)) for kind in FACTORS}
    rng = generator(settings.seed, "zoo", "captioner", "order")
    seen: list[Tensor] = []
    watched = model.model.vision_tower.register_forward_hook(
        lambda module, inputs, output: seen.append(output.last_hidden_state)
    )

    def loss(step: int) -> Tensor:
        rows = rng.choice(settings.scenes, settings.batch_size, replace=False)
        images = TRANSFORM.normalize(torch.from_numpy(jitter(drawn.pixels[rows], rng)))
        batch = {name: value[rows] for name, value in tokens.items()}
        value: Tensor = model(pixel_values=images, **batch).loss
        pooled = seen.pop().mean(dim=(2, 3))
        for kind, head in heads.items():
            right = values[kind][rows]
            value = value + settings.factors_weight * cross_entropy(head(pooled), right)
        return value

    fit(torch.nn.ModuleList([model, heads]), loss, settings, settings.steps, "captioner")
    watched.remove()
    return model.eval()


def evaluate(folder: Path, settings: CaptionerSettings) -> dict[str, float]:
    """Return the accuracy of the captioner in a folder on held-out pictures.

    ``caption_acc1`` is the share of captions that are right in every word, ``subject_acc1`` and the
    others that of captions with the right factor, and ``caption_acc1_DOMAIN`` that in one domain.
    """
    import torch

    from cfaug.models.image_text import HFCaptioner

    captioner = HFCaptioner.load(folder, max_new_tokens=24)
    drawn = scenes(settings.seed, "held-out", settings.held_out)
    texts: list[str] = []
    for start in range(0, settings.held_out, BATCH):
        texts += captioner.caption(torch.from_numpy(drawn.pixels[start : start + BATCH]))
    exact = np.array(texts) == [describe(factors) for factors in drawn.factors]
    metrics = {"n": settings.held_out, "caption_acc1": float(exact.mean())}
    for kind, right in compare_factors(list(map(parse, texts)), drawn.factors, FACTORS).items():
        metrics[f"{kind}_acc1"] = float(right.mean())
    for domain in DOMAINS:
        rows = [i for i, factors in enumerate(drawn.factors) if factors.domain == domain]
        if rows:
            metrics[f"caption_acc1_{domain}"] = float(exact[rows].mean())
    return metrics


def save(model: FastVlmForConditionalGeneration, folder: Path) -> None:
    """Write weights (float16 safetensors), configuration and processor of pictures and texts."""
    from transformers import LlavaProcessor

    processor = LlavaProcessor(
        build_image_processor(),
        build_tokenizer(),
        patch_size=CELL,
        vision_feature_select_strategy="full",
    )
    save_half(model, processor, folder)


main = partial(
    make_model, "captioner", CaptionerSettings, train, save, evaluate, leave_out=("processes",)
)
