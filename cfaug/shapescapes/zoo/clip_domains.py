"""Teach the tiny CLIP the domains: ``python -m cfaug zoo clip_domains out=DIR``.

It continues from ``zoo:clip-0``, which knows only drawings: the tokenizer gets the words of the
domains, and both towers are trained on scenes in every domain, of the diffusion model's size.
Captions name in turn only the subject, everything, and the subject with its domain, since factors
that captions seldom name are not learnt (:mod:`cfaug.shapescapes.zoo.clip`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.core.rng import generator
from cfaug.shapescapes.settings import (
    DOMAINS,
    CaptionWording,
    caption,
    draw_wording,
    words_of_domains,
)
from cfaug.shapescapes.zoo.clip import compare, zero_shot
from cfaug.shapescapes.zoo.command import DrawingSettings, fit, make_model
from cfaug.shapescapes.zoo.model import (
    TRANSFORM,
    build_model,
    build_tokenizer,
    go_on_from,
    load,
    save,
)
from cfaug.shapescapes.zoo.scenes import PROMPTS, Scenes, draw, jitter

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import VisionTextDualEncoderModel

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


def _draw(settings: DomainSettings, part: str, count: int) -> Scenes:
    part, processes = f"clip-domains-{part}", settings.processes
    drawn = draw(settings.seed, part, count, domains=DOMAINS, processes=processes)
    return drawn.shrunk(TRANSFORM)


def load_start(name: str) -> VisionTextDualEncoderModel:
    """Return a tiny CLIP with the domains' words; tokens of the old model keep their embeddings.

    Args:
        name: the model whose tokens are the first of the new tokenizer's.
    """
    return go_on_from(name, build_model(words_of_domains()))


def train(settings: DomainSettings) -> VisionTextDualEncoderModel:
    """Train another model further with progress on stderr; return it in evaluation mode."""
    import torch

    torch.manual_seed(settings.seed)
    model = load_start(settings.start).train()
    scenes = _draw(settings, "train", settings.scenes)
    tokenizer = build_tokenizer(words_of_domains())
    order = generator(settings.seed, "zoo", "clip-domains", "order")
    with_domain = CaptionWording(1, colour=False, background=False)

    def loss(step: int) -> Tensor:
        rows = order.choice(settings.scenes, settings.batch_size, replace=False)
        factors = [scenes.factors[row] for row in rows]
        if step % 3 == 0:
            texts = [f"a {scene.subject}" for scene in factors]
        elif step % 3 == 1:
            drawn = [draw_wording(order, drop_colour=0.3, drop_background=0.4) for _ in factors]
            texts = [caption(scene, wording) for scene, wording in zip(factors, drawn, strict=True)]
        else:
            texts = [caption(scene, with_domain) for scene in factors]
        tokens = tokenizer(texts, padding=True, return_tensors="pt")
        pixels = jitter(scenes.pixels[rows], order)
        value: Tensor = compare(model, tokens, pixels, return_loss=True).loss
        return value

    fit(model, loss, settings, settings.steps, "CLIP in every domain")
    return model.eval()


def evaluate(folder: Path, settings: DomainSettings) -> dict[str, float]:
    """Return the zero-shot accuracy of every factor on held-out scenes of all domains."""
    scenes = _draw(settings, "held-out", settings.held_out)
    return zero_shot(load(folder), scenes.pixels, scenes.factors, words_of_domains(), ASKED)


main = partial(
    make_model,
    "clip_domains",
    DomainSettings,
    train,
    partial(save, known=words_of_domains()),
    evaluate,
    leave_out=("processes",),
)
