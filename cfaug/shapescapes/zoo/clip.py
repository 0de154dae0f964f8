"""Pre-train the tiny CLIP on clean, unbiased drawings: ``python -m cfaug zoo clip seed=0 out=DIR``.

The loss is CLIP's symmetric one (Radford et al., 2021, section 2.3). Captions sometimes leave out
the colour and the background, and in every other batch they name only the subject: without such
batches colour and background distinguish the scenes well enough, and shape was not learnt in 2,000
steps. Rebuilding with the seed, threads and versions in ``card.json`` gives the same metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import derive, generator
from cfaug.shapescapes.drawing import Scene, render
from cfaug.shapescapes.oracle import CHOICES
from cfaug.shapescapes.settings import (
    COLOURS,
    PLACES,
    STYLES,
    SUBJECTS,
    CaptionWording,
    Factors,
    caption,
    draw_wording,
)
from cfaug.shapescapes.zoo.command import DrawingSettings, fit, make_model, read, run
from cfaug.shapescapes.zoo.model import IMAGE_SIZE, build_model, build_tokenizer, save

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


# The pre-training data of the tiny models: clean, unbiased drawings with captions.

PROMPTS = MappingProxyType(
    {
        "subject": tuple(f"a {name}" for name in SUBJECTS),
        "colour": tuple(
            caption(Factors("ball", name, "beach"), CaptionWording(background=False))
            for name in COLOURS
        ),
        "background": tuple(f"a ball {phrase}" for phrase in PLACES.values()),
    }
)
"""The prompts of zero-shot classification of a drawing, by kind and in label order."""


@dataclass(frozen=True)
class Drawings:
    """Unbiased scenes.

    Attributes:
        pixels: the pictures, uint8 (n, 3, 32, 32).
        texts: a caption of each scene, which may omit the colour and the background.
    """

    pixels: NDArray[np.uint8]
    factors: list[Factors]
    texts: list[str]
    wordings: list[CaptionWording]

    def labels(self) -> NDArray[np.int64]:
        """Return the labels of each scene's subject, colour and background, (n, 3)."""
        kinds = CHOICES.items()
        return np.array([[names.index(getattr(f, k)) for k, names in kinds] for f in self.factors])

    def stated(self) -> NDArray[np.bool_]:
        """Return whether each caption names the subject, the colour and the background, (n, 3)."""
        return np.array([[True, wording.colour, wording.background] for wording in self.wordings])


def draw_unbiased(seed: int, part: str, count: int) -> Drawings:
    """Draw ``count`` clean scenes with independent and uniform factors."""
    pixels = np.empty((count, 3, IMAGE_SIZE, IMAGE_SIZE), dtype=np.uint8)
    every, texts, wordings = [], [], []
    for i in range(count):
        rng = generator(seed, "zoo", part, i)
        chosen = {kind: names[int(rng.integers(len(names)))] for kind, names in CHOICES.items()}
        factors = Factors(**chosen)
        scene = Scene(factors, derive(seed, "zoo", part, i, "scene"))
        pixels[i] = render(scene, IMAGE_SIZE, STYLES["drawing"]).pixels.transpose(2, 0, 1)
        wording = draw_wording(rng, drop_colour=0.4, drop_background=0.6)
        every.append(factors)
        texts.append(caption(factors, wording))
        wordings.append(wording)
    return Drawings(pixels, every, texts, wordings)


def truth(labels: NDArray[np.int64], stated: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether caption j is true for image i, (n, n).

    Args:
        labels: the labels of the images, (n, 3).
        stated: whether the captions of those images name each factor, (n, 3).
    """
    return ((labels[:, None] == labels[None]) | ~stated[None]).all(axis=-1)


def jitter(
    pixels: NDArray[np.uint8], rng: np.random.Generator, reach: int = 2
) -> NDArray[np.uint8]:
    """Shift a batch by up to ``reach`` pixels, and mirror each image with probability one half."""
    moved = shift(pixels, rng, reach)
    mirrored = rng.random(len(moved)) < 0.5
    return np.where(mirrored[:, None, None, None], moved[..., ::-1], moved)


def shift(pixels: NDArray[np.uint8], rng: np.random.Generator, reach: int = 2) -> NDArray[np.uint8]:
    """Shift a batch at random by up to ``reach`` pixels, without mirroring."""
    size = pixels.shape[-1]
    padded = np.pad(pixels, ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="edge")
    top, left = rng.integers(0, 2 * reach + 1, 2)
    return padded[:, :, top : top + size, left : left + size]
