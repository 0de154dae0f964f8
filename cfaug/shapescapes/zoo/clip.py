"""Pre-train the tiny CLIP on clean, unbiased drawings: ``python -m cfaug zoo clip seed=0 out=DIR``.

The loss is CLIP's symmetric one (Radford et al., 2021, section 2.3). Captions sometimes leave out
the colour and the background, and in every other batch they name only the subject: without such
batches colour and background distinguish the scenes well enough, and shape was not learnt in 2,000
steps. Rebuilding with the seed, threads and versions in ``card.json`` gives the same metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import derive, generator
from cfaug.shapescapes.oracle import CHOICES
from cfaug.shapescapes.zoo.command import make_model, read, run
from cfaug.shapescapes.zoo.drawings import PROMPTS, draw_unbiased
from cfaug.shapescapes.zoo.fitting import DrawingSettings, fit
from cfaug.shapescapes.zoo.model import build_model, build_tokenizer, save

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import VisionTextDualEncoderModel


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(DrawingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`cfaug.shapescapes.zoo.fitting.DrawingSettings`, and
        subject_only_every: the period, in batches, at which captions name only the subject.
    """

    steps: int = 1_600
    lr: float = 1.5e-3
    weight_decay: float = 0.01
    subject_only_every: int = 2


def tokenize(texts: list[str]) -> dict[str, Tensor]:
    """Return the shipped tokenizer's input ids and attention mask, (n, longest)."""
    return dict(build_tokenizer()(texts, padding=True, return_tensors="pt"))


def normalise(pixels: NDArray[np.uint8]) -> Tensor:
    """Scale uint8 pixels to [-1, 1], like the shipped image processor."""
    import torch

    return torch.from_numpy(pixels).float() / 127.5 - 1


def train(settings: PretrainSettings) -> VisionTextDualEncoderModel:
    """Train from scratch with progress on stderr; return the model in evaluation mode."""
    import torch

    torch.manual_seed(derive(settings.seed, "zoo", "weights") % 2**63)
    model = build_model().train()
    drawings = draw_unbiased(settings.seed, "train", settings.scenes)
    tokens = tokenize(drawings.texts)
    names = tokenize([f"a {factors.subject}" for factors in drawings.factors])
    order = generator(settings.seed, "zoo", "order")

    def loss(step: int) -> Tensor:
        rows = order.choice(settings.scenes, settings.batch_size, replace=False)
        said = names if step % settings.subject_only_every == 0 else tokens
        output = model(
            pixel_values=normalise(drawings.pixels[rows]),
            **{key: value[rows] for key, value in said.items()},
            return_loss=True,
        )
        found: Tensor = output.loss
        return found

    fit(model, loss, settings)
    return model.eval()


def evaluate(model: VisionTextDualEncoderModel, seed: int, count: int) -> dict[str, float]:
    """Return the zero-shot accuracy of subject, colour and background on held-out drawings."""
    import torch

    drawings = draw_unbiased(seed, "held-out", count)
    metrics: dict[str, float] = {"n": count}
    for kind, texts in PROMPTS.items():
        with torch.inference_mode():
            output = model(pixel_values=normalise(drawings.pixels), **tokenize(list(texts)))
        truth = [CHOICES[kind].index(getattr(factors, kind)) for factors in drawings.factors]
        guess = output.logits_per_image.argmax(1).numpy()
        metrics[f"{kind}_acc1"] = float((guess == np.array(truth)).mean())
    return metrics


def main(argv: list[str]) -> int:
    """Pre-train, evaluate and write one checkpoint with its ``card.json``."""
    settings = read(PretrainSettings, argv)
    return make_model(
        "clip",
        settings,
        lambda: train(settings),
        save,
        lambda model, folder: evaluate(model, settings.seed, settings.held_out),
    )


if __name__ == "__main__":
    run(main)
