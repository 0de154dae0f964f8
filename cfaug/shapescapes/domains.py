"""The domains: a photo, or the same scene in another medium (LANCE's fifth kind of edit).

A domain redraws the finished composition before the camera sees it, so a scene has the same pose,
colours and background in every domain. Its effect at a pixel depends on the scene's seed and on
pixels at most ``reach`` away, never on the factors: outside the mask of an edit, widened by
``reach``, not a bit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Maker = Callable[[Floats, np.random.Generator], Floats]
GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)


@dataclass(frozen=True)
class Domain:
    """The rendering of a domain.

    Attributes:
        make: a function that maps a picture (size, size, 3), with values in [0, 1], and a random
            generator to another such picture.
        reach: a function that maps a picture's side in pixels to the distance, in rows or columns,
            at which a pixel has influence.
    """

    make: Maker
    reach: Callable[[int], int] = lambda size: 0


def redraw(picture: Floats, domain: str, rng: np.random.Generator) -> Floats:
    """Return a picture (size, size, 3), with values in [0, 1], redrawn in a domain."""
    return np.asarray(_MAKERS[domain].make(np.clip(picture, 0, 1), rng), dtype=np.float32)


def reach(domain: str, size: int) -> int:
    """Return the distance in pixels over which a pixel of the scene influences the picture."""
    return _MAKERS[domain].reach(size)


def widen(mask: NDArray[np.bool_], pixels: int) -> NDArray[np.bool_]:
    """Return the pixels at most ``pixels`` rows and columns away from the mask."""
    for axis in (0, 1):
        padded = np.pad(mask, [(pixels, pixels) if a == axis else (0, 0) for a in (0, 1)])
        count = mask.shape[axis]
        shifted = [padded.take(range(s, s + count), axis) for s in range(2 * pixels + 1)]
        mask = np.logical_or.reduce(shifted)
    return mask


def _photo(picture: Floats, rng: np.random.Generator) -> Floats:
    return picture


def _edges(picture: Floats, step: int) -> Floats:
    """Return the difference of neighbours ``step`` pixels away, clipped to 1, (size, size)."""
    padded = np.pad(picture, ((step, step), (step, step), (0, 0)), mode="edge")
    size = len(picture)
    middle = slice(step, step + size)
    right, left = padded[middle, 2 * step :], padded[middle, :size]
    below, above = padded[2 * step :, middle], padded[:size, middle]
    both = np.abs(right - left) + np.abs(below - above)
    return np.asarray(np.clip(both.max(axis=2), 0, 1), dtype=np.float32)


def _grid(size: int) -> tuple[Floats, Floats]:
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / np.float32(size)
    return y, x


def _sketch(picture: Floats, rng: np.random.Generator) -> Floats:
    """Crayon on paper: pale colours in slanting strokes, dark outlines."""
    size = len(picture)
    y, x = _grid(size)
    phase = np.float32(rng.uniform(0, 2 * np.pi))
    strokes = 0.5 + 0.5 * np.sin(2 * np.pi * 9 * (x + y) + phase)
    strength = (0.3 + 0.35 * strokes)[..., None]
    coloured = 0.97 - strength * (1 - picture)
    lines = _edges(picture, _step(size))[..., None]
    return coloured * (1 - 0.8 * lines**1.5)


def _painting(picture: Floats, rng: np.random.Generator) -> Floats:
    """Oil on canvas: strong colours with ragged edges on a woven, yellowed ground."""
    size = len(picture)
    y, x = _grid(size)
    turn = 2 * np.pi * np.float32(1)
    a, b, c, d = (turn * rng.random(4)).astype(np.float32)
    wave = np.float32(size / 50)
    down = wave * np.sin(5 * turn * x + a) * np.cos(4 * turn * y + b)
    across = wave * np.sin(5 * turn * y + c) * np.cos(4 * turn * x + d)
    rows = np.clip(np.rint(np.arange(size)[:, None] + down), 0, size - 1).astype(int)
    columns = np.clip(np.rint(np.arange(size)[None, :] + across), 0, size - 1).astype(int)
    strong = _saturate(picture[rows, columns], 1.5)
    weave = np.sign(np.sin(8 * turn * x + 0.1) * np.sin(8 * turn * y + 0.1))
    yellowed = np.array([1.06, 0.97, 0.75], dtype=np.float32)
    return strong * yellowed * (1 + np.float32(0.14) * weave[..., None])


def _cartoon(picture: Floats, rng: np.random.Generator) -> Floats:
    """Flat bright colours between thick black lines."""
    flat = np.rint(_saturate(picture, 1.7) * 3) / np.float32(3)
    lines = np.clip(np.float32(2.2) * _edges(picture, _step(len(picture))) - 0.5, 0, 1)
    return flat * (1 - lines[..., None])


def _mosaic(picture: Floats, rng: np.random.Generator) -> Floats:
    """Square tiles, each of nearly one colour, with dark joints."""
    size = len(picture)
    side = _tile(size)
    rows = -(-size // side)
    spare = rows * side - size
    padded = np.pad(picture, ((0, spare), (0, spare), (0, 0)), mode="edge")
    tiles = padded.reshape(rows, side, rows, side, 3).mean(axis=(1, 3))
    place = np.arange(size) // side
    glaze = rng.uniform(0.8, 1.1, (rows, rows)).astype(np.float32)[place][:, place]
    shown = (tiles[place][:, place] + picture) / 2 * glaze[..., None]
    joint = np.arange(size) % side < max(1, size // 32)
    dark = np.where(joint[:, None] | joint[None, :], np.float32(0.45), np.float32(1))
    return shown * dark[..., None]


def _saturate(picture: Floats, factor: float) -> Floats:
    """Move every pixel's colours away from its grey, within [0, 1]."""
    grey = (picture @ GREY)[..., None]
    return np.clip(grey + np.float32(factor) * (picture - grey), 0, 1)


def _tile(size: int) -> int:
    """Return the side of a tile of the mosaic in pixels."""
    return max(2, size // 8)


def _step(size: int) -> int:
    """Return the distance in pixels between neighbours that are compared for edges."""
    return max(1, size // 48)


_MAKERS: Mapping[str, Domain] = MappingProxyType(
    {
        "photo": Domain(_photo),
        "sketch": Domain(_sketch, _step),
        "painting": Domain(_painting, lambda size: size // 50 + 1),
        "cartoon": Domain(_cartoon, _step),
        "mosaic": Domain(_mosaic, lambda size: _tile(size) - 1),
    }
)


# Styles of rendering: a clean drawing, a photograph, a film negative, a photograph in fog.
#
# The tiny CLIP is pre-trained on one style and fine-tuned and tested on another. The captions stay
# the same: "a red ball" is a red ball in fog.


@dataclass(frozen=True)
class Style:
    """The rendering between the factors of a scene and its pixels.

    Attributes:
        detail: the strength of texture, shadow, outline, lighting and colour cast; 0 draws none.
        tilt: the largest rotation of the subject, in degrees.
        clutter: the number of small objects scattered over the background.
        noise: the standard deviation of the sensor noise, on a scale from 0 to 1.
        negative: whether to show 1 - x, like a photographic negative.
        contrast: the factor that the distance from mid-grey is multiplied by, before the noise is
            added.
        tint: the values added to red, green and blue, on a scale from 0 to 1.
        turn: the number of quarter turns of the whole picture, counter-clockwise.
    """

    detail: float = 0.0
    tilt: float = 0.0
    clutter: int = 0
    noise: float = 0.02
    negative: bool = False
    contrast: float = 1.0
    tint: tuple[float, float, float] = (0.0, 0.0, 0.0)
    turn: int = 0


STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "drawing": Style(),
        "photo": Style(detail=0.7, tilt=18, clutter=6, noise=0.04),
        "negative": Style(detail=0.7, tilt=18, clutter=6, noise=0.04, negative=True),
        "fog": Style(
            detail=0.35, tilt=9, clutter=3, noise=0.01, contrast=0.25, tint=(0.3, 0.3, 0.3)
        ),
        # Fog without its weather: the zoo's Stable Diffusion draws it, and
        # cfaug.shapescapes.drawing adds the fog.
        "clear": Style(detail=0.35, tilt=9, clutter=3, noise=0.01),
    }
)
"""The styles by their names in configs; the zoo's CLIP was pre-trained on "drawing"."""
