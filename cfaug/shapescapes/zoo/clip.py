"""Pre-train the tiny CLIP on clean, unbiased drawings: ``python -m cfaug zoo clip seed=0 out=DIR``.

The loss is CLIP's symmetric one (Radford et al., 2021, section 2.3). Captions sometimes leave out
the colour and the background, and in every other batch they name only the subject: without such
batches colour and background distinguish the scenes well enough, and shape was not learnt in 2,000
steps. Rebuilding with the seed, threads and versions in ``card.json`` gives the same metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.rng import derive, generator
from cfaug.shapescapes.settings import Factors
from cfaug.shapescapes.zoo.command import DrawingSettings, fit, make_model
from cfaug.shapescapes.zoo.model import build_model, build_tokenizer, load, save
from cfaug.shapescapes.zoo.scenes import PROMPTS, Pixels, draw_unbiased, label, normalise

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import VisionTextDualEncoderModel


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(DrawingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`cfaug.shapescapes.zoo.command.DrawingSettings`, and
        subject_only_every: the period, in batches, at which captions name only the subject.
    """

    steps: int = 1_600
    lr: float = 1.5e-3
    weight_decay: float = 0.01
    subject_only_every: int = 2


def compare(
    model: VisionTextDualEncoderModel, tokens: Mapping[str, Any], pixels: Pixels, **options: Any
) -> Any:
    """Return the model's output for tokens and pixels, which are scaled like by the processor."""
    return model(pixel_values=normalise(pixels), **tokens, **options)


def train(settings: PretrainSettings) -> VisionTextDualEncoderModel:
    """Train from scratch with progress on stderr; return the model in evaluation mode."""
    import torch

    torch.manual_seed(derive(settings.seed, "zoo", "weights") % 2**63)
    model = build_model().train()
    drawings = draw_unbiased(settings.seed, "train", settings.scenes)
    tokenize = partial(build_tokenizer(), padding=True, return_tensors="pt")
    tokens = tokenize(drawings.texts)
    names = tokenize([f"a {factors.subject}" for factors in drawings.factors])
    order = generator(settings.seed, "zoo", "order")

    def loss(step: int) -> Tensor:
        rows = order.choice(settings.scenes, settings.batch_size, replace=False)
        inputs = names if step % settings.subject_only_every == 0 else tokens
        batch = {key: value[rows] for key, value in inputs.items()}
        value: Tensor = compare(model, batch, drawings.pixels[rows], return_loss=True).loss
        return value

    fit(model, loss, settings, settings.steps)
    return model.eval()


def zero_shot(
    model: VisionTextDualEncoderModel,
    pixels: Pixels,
    factors: Sequence[Factors],
    known: Sequence[str] | None = None,
    prompts: Mapping[str, Sequence[str]] = PROMPTS,
) -> dict[str, float]:
    """Return the zero-shot accuracy of the prompted factors.

    Args:
        known: the words of the tokenizer; ``None`` is those of captions of photos.
        prompts: the prompts by factor, in label order.
    """
    import torch

    tokenizer = build_tokenizer() if known is None else build_tokenizer(known)
    metrics: dict[str, float] = {"n": len(pixels)}
    for kind, texts in prompts.items():
        with torch.inference_mode():
            tokens = tokenizer(list(texts), padding=True, return_tensors="pt")
            logits = compare(model, tokens, pixels).logits_per_image
        guess = logits.argmax(1).numpy()
        metrics[f"{kind}_acc1"] = float(np.mean(guess == label(factors, kind)))
    return metrics


def evaluate(folder: Path, settings: DrawingSettings) -> dict[str, float]:
    """Return the zero-shot accuracy of subject, colour and background on held-out drawings."""
    drawings = draw_unbiased(settings.seed, "held-out", settings.held_out)
    return zero_shot(load(folder), drawings.pixels, drawings.factors)


main = partial(make_model, "clip", PretrainSettings, train, save, evaluate)
