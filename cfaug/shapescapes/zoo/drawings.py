"""The pre-training data of the tiny models: clean, unbiased drawings with captions."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import derive, generator
from cfaug.shapescapes.oracle import CHOICES
from cfaug.shapescapes.scene import Scene, render
from cfaug.shapescapes.styles import STYLES
from cfaug.shapescapes.vocabulary import (
    COLOURS,
    PLACES,
    SUBJECTS,
    CaptionWording,
    Factors,
    caption,
    draw_wording,
)
from cfaug.shapescapes.zoo.model import IMAGE_SIZE

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
        factors: the factors of each scene.
        texts: a caption of each scene, which may omit the colour and the background.
        wordings: the wording of each caption.
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
