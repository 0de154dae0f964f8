"""Teach the tiny CLIP the domains: ``python -m cfaug zoo clip_domains out=DIR``.

It continues from ``zoo:clip-0``, which knows only drawings: the tokenizer gets the words of the
domains, and both towers are trained on scenes in every domain, of the diffusion model's size.
Captions name in turn only the subject, everything, and the subject with its domain, since factors
that captions seldom name are not learnt (:mod:`cfaug.shapescapes.zoo.clip`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfaug.core.pixels import ImageTransform
from cfaug.core.rng import generator
from cfaug.shapescapes.oracle import FACTORS
from cfaug.shapescapes.settings import (
    DOMAINS,
    CaptionWording,
    Factors,
    caption,
    draw_wording,
    words_of_domains,
)
from cfaug.shapescapes.zoo.clip import PROMPTS, jitter, normalise
from cfaug.shapescapes.zoo.command import DrawingSettings, fit, make_model, read, run
from cfaug.shapescapes.zoo.diffusion.data import draw
from cfaug.shapescapes.zoo.model import IMAGE_SIZE, build_model, build_tokenizer, go_on_from, save

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import VisionTextDualEncoderModel

TRANSFORM = ImageTransform(IMAGE_SIZE, (0.5,) * 3, (0.5,) * 3)

ASKED = {**PROMPTS, "domain": tuple(f"a {domain} of a ball" for domain in DOMAINS)}
"""The prompts of zero-shot classification of a scene, by factor and in label order."""


@dataclass(frozen=True, kw_only=True)
class DomainSettings(DrawingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`cfaug.shapescapes.zoo.command.DrawingSettings`, and
        start: the initial model.
        processes: the number of processes that draw scenes; affects only the time.
    """

    start: str = "zoo:clip-0"
    scenes: int = 8_000
    steps: int = 800
    lr: float = 1e-3
    weight_decay: float = 0.01
    processes: int = 1


@dataclass(frozen=True)
class _LearntScenes:
    """Scenes for the model: their pixels, uint8 (n, 3, 32, 32), and their factors."""

    pixels: NDArray[np.uint8]
    factors: list[Factors]


def _draw(settings: DomainSettings, part: str, count: int) -> _LearntScenes:
    from PIL import Image

    scenes = draw(
        settings.seed, f"clip-domains-{part}", count, domains=DOMAINS, processes=settings.processes
    )
    images = (Image.fromarray(pixel.transpose(1, 2, 0)) for pixel in scenes.pixels)
    return _LearntScenes(np.stack([TRANSFORM(image) for image in images]), scenes.factors)


def load_start(name: str) -> VisionTextDualEncoderModel:
    """Return a tiny CLIP with the domains' words; tokens of the old model keep their embeddings.

    Args:
        name: the model whose tokens are the first of the new tokenizer's.
    """
    return go_on_from(name, build_model(words_of_domains()))


def _say(step: int, factors: list[Factors], rng: np.random.Generator) -> list[str]:
    """Return a batch's captions: only the subject, all or most factors, or subject and domain."""
    if step % 3 == 0:
        return [f"a {factor.subject}" for factor in factors]
    if step % 3 == 1:
        drawn = [draw_wording(rng, drop_colour=0.3, drop_background=0.4) for _ in factors]
        return [caption(one, wording) for one, wording in zip(factors, drawn, strict=True)]
    plain = CaptionWording(1, colour=False, background=False)
    return [caption(factor, plain) for factor in factors]


def train(settings: DomainSettings) -> VisionTextDualEncoderModel:
    """Train another model further with progress on stderr; return it in evaluation mode."""
    import torch

    torch.manual_seed(settings.seed)
    model = load_start(settings.start).train()
    scenes = _draw(settings, "train", settings.scenes)
    tokenizer = build_tokenizer(words_of_domains())
    order = generator(settings.seed, "zoo", "clip-domains", "order")

    def loss(step: int) -> Tensor:
        rows = order.choice(settings.scenes, settings.batch_size, replace=False)
        said = _say(step, [scenes.factors[row] for row in rows], order)
        found: Tensor = model(
            pixel_values=normalise(jitter(scenes.pixels[rows], order)),
            **tokenizer(said, padding=True, return_tensors="pt"),
            return_loss=True,
        ).loss
        return found

    fit(model, loss, settings, "CLIP in every domain")
    return model.eval()


def evaluate(model: VisionTextDualEncoderModel, settings: DomainSettings) -> dict[str, float]:
    """Return the zero-shot accuracy of every factor on held-out scenes of all domains."""
    import torch

    scenes = _draw(settings, "held-out", settings.held_out)
    tokenizer = build_tokenizer(words_of_domains())
    metrics: dict[str, float] = {"n": settings.held_out}
    for kind, texts in ASKED.items():
        with torch.inference_mode():
            output = model(
                pixel_values=normalise(scenes.pixels),
                **tokenizer(list(texts), padding=True, return_tensors="pt"),
            )
        truth = [FACTORS[kind].index(getattr(factors, kind)) for factors in scenes.factors]
        guess = output.logits_per_image.argmax(1).numpy()
        metrics[f"{kind}_acc1"] = float((guess == np.array(truth)).mean())
    return metrics


def main(argv: list[str]) -> int:
    """Train, evaluate and write one checkpoint with its ``card.json``."""
    settings = read(DomainSettings, argv)
    return make_model(
        "clip_domains",
        settings,
        lambda: train(settings),
        lambda model, folder: save(model, folder, words_of_domains()),
        lambda model, folder: evaluate(model, settings),
        leave_out=("processes",),
    )


if __name__ == "__main__":
    run(main)
