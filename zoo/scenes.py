"""The training data of the tiny models: clean or clear unbiased scenes, drawn once, as uint8.

A generator that was trained without the bias of the tested world can break that bias even if a
caption does not mention it. That is why generated pairs can score above the oracle's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cfaug.core.pixels import ImageTransform
from cfaug.core.processes import end_with_parent
from cfaug.core.rng import derive, generator
from cfaug.worlds.shapescapes.drawing import Scene, render
from cfaug.worlds.shapescapes.judge import Pixels
from cfaug.worlds.shapescapes.settings import (
    CHOICES,
    COLOURS,
    FACTORS,
    PHOTO,
    PLACES,
    STYLES,
    SUBJECTS,
    CaptionWording,
    Factors,
    caption,
    draw_wording,
)
from zoo.model import IMAGE_SIZE

SCENE_SIDE = 64
"""The side of scenes in pixels, that of the diffusion model's pictures."""
CHUNK = 500

PROMPTS = {
    "subject": tuple(f"a {name}" for name in SUBJECTS),
    "colour": tuple(
        caption(Factors("ball", name, "beach"), CaptionWording(background=False))
        for name in COLOURS
    ),
    "background": tuple(f"a ball {phrase}" for phrase in PLACES.values()),
}
"""The prompts of zero-shot classification of a drawing, by kind and in label order."""


def label(factors: Sequence[Factors], kind: str) -> NDArray[np.int64]:
    """Return the label of each scene's value of a factor, (n,)."""
    return np.array([FACTORS[kind].index(getattr(scene, kind)) for scene in factors])


def compare_factors(
    predicted: Sequence[object], factors: Sequence[Factors], kinds: Iterable[str]
) -> dict[str, NDArray[np.bool_]]:
    """Return whether each factor of scenes was found, (n,) for each kind of factor."""
    pairs = list(zip(predicted, factors, strict=True))
    return {
        kind: np.array([getattr(a, kind, None) == getattr(b, kind) for a, b in pairs])
        for kind in kinds
    }


def _draw_factors(rng: np.random.Generator) -> dict[str, str]:
    return {kind: names[int(rng.integers(len(names)))] for kind, names in CHOICES.items()}


@dataclass(frozen=True)
class Drawings:
    """Clean drawings with captions.

    Attributes:
        pixels: the pictures, uint8 (n, 3, 32, 32).
        texts: a caption of each scene, which may omit the colour and the background.
    """

    pixels: Pixels
    factors: list[Factors]
    texts: list[str]
    wordings: list[CaptionWording]

    def labels(self) -> NDArray[np.int64]:
        """Return the labels of each scene's subject, colour and background, (n, 3)."""
        return np.stack([label(self.factors, kind) for kind in CHOICES], axis=1)

    def stated(self) -> NDArray[np.bool_]:
        """Return whether each caption names the subject, the colour and the background, (n, 3)."""
        return np.array([[True, wording.colour, wording.background] for wording in self.wordings])


def draw_unbiased(seed: int, part: str, count: int) -> Drawings:
    """Draw ``count`` clean scenes with independent and uniform factors."""
    pixels = np.empty((count, 3, IMAGE_SIZE, IMAGE_SIZE), dtype=np.uint8)
    every, texts, wordings = [], [], []
    for i in range(count):
        rng = generator(seed, "zoo", part, i)
        factors = Factors(**_draw_factors(rng))
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


def jitter(pixels: Pixels, rng: np.random.Generator, reach: int = 2) -> Pixels:
    """Shift a batch by up to ``reach`` pixels, and mirror each image with probability one half."""
    moved = shift(pixels, rng, reach)
    mirrored = rng.random(len(moved)) < 0.5
    return np.where(mirrored[:, None, None, None], moved[..., ::-1], moved)


def shift(pixels: Pixels, rng: np.random.Generator, reach: int = 2) -> Pixels:
    """Shift a batch at random by up to ``reach`` pixels, without mirroring."""
    size = pixels.shape[-1]
    padded = np.pad(pixels, ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="edge")
    top, left = rng.integers(0, 2 * reach + 1, 2)
    return padded[:, :, top : top + size, left : left + size]


@dataclass(frozen=True)
class Scenes:
    """Unbiased scenes: pixels uint8 (n, 3, side, side) and their factors."""

    pixels: Pixels
    factors: list[Factors]

    def shrunk(self, transform: ImageTransform) -> Scenes:
        """Return the scenes with the pixels that a model with this transform sees."""
        images = (Image.fromarray(pixel.transpose(1, 2, 0)) for pixel in self.pixels)
        return Scenes(np.stack([transform(image) for image in images]), self.factors)


def scene_at(seed: int, part: str, index: int, domains: Sequence[str] = (PHOTO,)) -> Scene:
    """Return scene ``index`` of ``part``, with independent and uniform factors."""
    rng = generator(seed, "zoo", part, index)
    chosen = _draw_factors(rng)
    domain = domains[int(rng.integers(len(domains)))]
    return Scene(Factors(**chosen, domain=domain), derive(seed, "zoo", part, index, "scene"))


def draw_chunks(
    draw: Callable[..., Any], count: int, size: int, processes: int, *given: object
) -> list[Any]:
    """Return ``draw(*given, start, stop)`` of chunks of ``size`` from 0 to ``count``, in order.

    Args:
        draw: a function of a module, so that other processes can import it.
    """
    starts = range(0, count, size)
    stops = [min(start + size, count) for start in starts]
    columns = (*map(repeat, given), starts, stops)
    if processes <= 1:
        return list(map(draw, *columns))
    server = get_context("forkserver")
    with ProcessPoolExecutor(processes, server, initializer=end_with_parent) as pool:
        return list(pool.map(draw, *columns))


def _render(
    seed: int, part: str, style: str, domains: Sequence[str], start: int, stop: int
) -> Pixels:
    scenes = (scene_at(seed, part, i, domains) for i in range(start, stop))
    drawn = (render(scene, SCENE_SIDE, STYLES[style]) for scene in scenes)
    return np.stack([picture.pixels.transpose(2, 0, 1) for picture in drawn])


def draw(
    seed: int,
    part: str,
    count: int,
    style: str = "clear",
    *,
    domains: Sequence[str] = (PHOTO,),
    processes: int = 1,
) -> Scenes:
    """Draw ``count`` scenes of 64 px, the same for any number of processes.

    Args:
        part: the name of their purpose; parts have no scene in common.
        domains: the domains of the scenes, drawn uniformly.
    """
    pixels = draw_chunks(_render, count, CHUNK, processes, seed, part, style, domains)
    factors = [scene_at(seed, part, i, domains).factors for i in range(count)]
    return Scenes(np.concatenate(pixels), factors)
