"""The painters of a picture: backgrounds, subjects, and the weather before the camera."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from cfaug.core.rng import generator
from cfaug.core.validation import OneOf, check_fields
from cfaug.shapescapes.domains import STYLES, Style
from cfaug.shapescapes.vocabulary import Rgb

if TYPE_CHECKING:
    from cfaug.core.types import ImageJob


# The backgrounds: each painter draws on a canvas of any size with its own random generator.

Pen = ImageDraw.ImageDraw
Painter = Callable[[Pen, int, np.random.Generator], None]


def _horizon(pen: Pen, size: int, rng: np.random.Generator, sky: Rgb, ground: Rgb) -> float:
    """Fill sky and ground; return the height of the horizon, in pixels."""
    line = size * float(rng.uniform(0.35, 0.6))
    pen.rectangle((0, 0, size, line), fill=sky)
    pen.rectangle((0, line, size, size), fill=ground)
    return line


def _beach(pen: Pen, size: int, rng: np.random.Generator) -> None:
    line = _horizon(pen, size, rng, (120, 200, 235), (240, 212, 150))
    pen.rectangle((0, line - size * 0.12, size, line), fill=(40, 130, 190))
    for x, y in rng.random((8, 2)):
        top = line + y * (size - line)
        pen.rectangle((x * size, top, x * size + 4, top + 2), fill=(205, 170, 105))


def _grass(pen: Pen, size: int, rng: np.random.Generator) -> None:
    line = _horizon(pen, size, rng, (150, 210, 250), (95, 185, 70))
    for x, y in rng.random((16, 2)):
        foot = line + y * (size - line)
        pen.line((x * size, foot, x * size + 2, foot - 7), fill=(55, 130, 40), width=3)


def _night(pen: Pen, size: int, rng: np.random.Generator) -> None:
    _horizon(pen, size, rng, (18, 20, 60), (38, 38, 72))
    for x, y in rng.random((14, 2)) * (size, size * 0.6):
        pen.rectangle((x, y, x + 3, y + 3), fill=(245, 245, 210))


def _snow(pen: Pen, size: int, rng: np.random.Generator) -> None:
    _horizon(pen, size, rng, (190, 205, 220), (245, 246, 252))
    for x, y in rng.random((16, 2)) * size:
        pen.ellipse((x, y, x + 5, y + 5), fill=(255, 255, 255))


def _brick(pen: Pen, size: int, rng: np.random.Generator) -> None:
    pen.rectangle((0, 0, size, size), fill=(176, 95, 75))
    height, width = size / 8, size / 4
    shift = float(rng.random()) * width
    for row in range(9):
        y = row * height
        pen.line((0, y, size, y), fill=(220, 200, 185), width=3)
        for column in range(-1, 6):
            x = column * width + shift + (row % 2) * width / 2
            pen.line((x, y, x, y + height), fill=(220, 200, 185), width=3)


def _water(pen: Pen, size: int, rng: np.random.Generator) -> None:
    pen.rectangle((0, 0, size, size), fill=(45, 135, 205))
    for x, y in rng.random((22, 2)) * size:
        pen.line((x - 12, y, x + 12, y), fill=(150, 205, 240), width=3)


def _road(pen: Pen, size: int, rng: np.random.Generator) -> None:
    line = _horizon(pen, size, rng, (205, 215, 220), (110, 110, 115))
    shift = float(rng.random()) * size / 3
    for x in np.arange(-1, 4) * size / 3 + shift:
        middle = (line + size) / 2
        pen.rectangle((x, middle, x + size / 6, middle + 6), fill=(240, 240, 235))


def _curtain(pen: Pen, size: int, rng: np.random.Generator) -> None:
    pen.rectangle((0, 0, size, size), fill=(150, 30, 60))
    shift = float(rng.random()) * size / 6
    for x in np.arange(-1, 7) * size / 6 + shift:
        pen.rectangle((x, 0, x + size / 12, size), fill=(195, 60, 85))


PAINTERS: Mapping[str, Painter] = MappingProxyType(
    {
        "beach": _beach,
        "grass": _grass,
        "night": _night,
        "snow": _snow,
        "brick": _brick,
        "water": _water,
        "road": _road,
        "curtain": _curtain,
    }
)


def paint(background: str, size: int, rng: np.random.Generator, clutter: int = 0) -> Image.Image:
    """Paint a background (RGB, ``size`` x ``size``), with small bright objects scattered on it."""
    image = Image.new("RGB", (size, size))
    pen = ImageDraw.Draw(image)
    PAINTERS[background](pen, size, rng)
    for _ in range(clutter):
        x, y, width, height = rng.random(4) * (size, size, size * 0.08, size * 0.06)
        red, green, blue = (int(value) for value in rng.integers(0, 256, 3))
        box = (x, y, x + width + 3, y + height + 3)
        (pen.ellipse if rng.random() < 0.5 else pen.rectangle)(box, fill=(red, green, blue))
    return image


# Effects between a finished picture and the camera: negative, fog, tint, sensor noise.
#
# They are pointwise and independent of the content, so that a world's weather can be added to a
# model's picture of clear weather in the same way as to the world's own scenes.


def expose(
    picture: NDArray[np.float32], style: Style, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Return the camera's image of a picture (height, width, 3) with values in [0, 1]."""
    picture = np.clip(picture, 0, 1)
    if style.negative:
        picture = 1 - picture
    picture = 0.5 + (picture - 0.5) * np.float32(style.contrast)
    picture = picture + np.array(style.tint, dtype=np.float32)
    grain = rng.standard_normal(picture.shape, dtype=np.float32) * np.float32(style.noise)
    return (np.clip(picture + grain, 0, 1) * 255 + np.float32(0.5)).astype(np.uint8)


def develop(image: Image.Image, style: Style, seed: int) -> Image.Image:
    """Apply the weather of a style to a clear picture; its noise is keyed by ``seed``."""
    picture = np.asarray(image.convert("RGB"), dtype=np.float32) / np.float32(255)
    return Image.fromarray(expose(picture, style, generator(seed, "weather")))


@dataclass(frozen=True)
class Weather:
    """A postprocessing step that adds a world's weather to generated images.

    A generator of photos would not have this knowledge about the test world: results with it are an
    upper bound, and the arm ``generated_clear`` of ``make demo-full`` lacks it. Both images of
    a pair get the same noise, like the two scenes of an oracle's pair.

    Args:
        style: a name of ``cfaug.shapescapes.domains.STYLES``.

    Raises:
        UserError: if there is no such style.
    """

    style: Annotated[str, OneOf(STYLES)]

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor")

    def __call__(self, image: Image.Image, job: ImageJob) -> Image.Image:
        """Return the image as seen by the world's camera."""
        return develop(image, STYLES[self.style], job.draw.seed)


# The outlines of the subjects, as polygons in the square [-1, 1] x [-1, 1], y downwards.
#
# Circles are 32-gons, so that one affine map poses any subject.

Points = NDArray[np.float64]


def _points(*pairs: tuple[float, float]) -> Points:
    return np.array(pairs, dtype=np.float64)


def _circle(x: float, y: float, rx: float, ry: float | None = None) -> Points:
    angle = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    return np.stack([x + rx * np.cos(angle), y + (ry or rx) * np.sin(angle)], axis=1)


def _star() -> Points:
    angle = np.arange(10) * np.pi / 5 - np.pi / 2
    radius = np.where(np.arange(10) % 2 == 0, 1.05, 0.42)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle) + 0.06], axis=1)


def _heart() -> Points:
    t = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.stack([np.sin(t) ** 3, -(y + 2.5) / 15], axis=1)


_BODY = {
    "ball": [_circle(0, 0, 0.92)],
    "cube": [_points((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85))],
    "star": [_star()],
    "cone": [_points((0, -1), (0.9, 0.9), (-0.9, 0.9))],
    "tree": [
        _points((0, -1.05), (0.5, -0.4), (-0.5, -0.4)),
        _points((0, -0.7), (0.66, 0.1), (-0.66, 0.1)),
        _points((0, -0.3), (0.82, 0.62), (-0.82, 0.62)),
        _points((-0.18, 0.6), (0.18, 0.6), (0.18, 1.05), (-0.18, 1.05)),
    ],
    "cat": [
        _circle(-0.15, 0.5, 0.62, 0.5),
        _circle(0.38, -0.25, 0.42, 0.38),
        _points((0.0, -0.25), (0.02, -0.95), (0.4, -0.5)),
        _points((0.76, -0.25), (0.76, -0.95), (0.36, -0.5)),
        _points(
            (-0.55, 0.75), (-1.0, 0.3), (-1.0, -0.45), (-0.78, -0.45), (-0.76, 0.2), (-0.4, 0.5)
        ),
    ],
    "house": [
        _points((-0.7, -0.15), (0.7, -0.15), (0.7, 0.95), (-0.7, 0.95)),
        _points((0, -1.0), (1.0, -0.1), (-1.0, -0.1)),
        _points((0.4, -0.95), (0.66, -0.95), (0.66, -0.2), (0.4, -0.2)),
    ],
    "fish": [
        _circle(0.2, 0, 0.8, 0.5),
        _points((-0.4, 0), (-1.05, -0.6), (-1.05, 0.6)),
        _points((0.0, -0.4), (0.3, -0.8), (0.5, -0.4)),
    ],
    "heart": [_heart()],
    "ring": [_circle(0, 0, 0.97)],
}
BODY: Mapping[str, list[Points]] = MappingProxyType(_BODY)
"""The polygons that form each subject, as their union."""
HOLES: Mapping[str, list[Points]] = MappingProxyType(
    {
        "ring": [_circle(0, 0, 0.55)],
        "house": [_points((-0.18, 0.4), (0.18, 0.4), (0.18, 0.97), (-0.18, 0.97))],
        "fish": [_circle(0.6, -0.12, 0.12)],
    }
)
"""The polygons that are cut out of each subject."""


def draw_mask(subject: str, matrix: Points, offset: Points, size: int) -> Image.Image:
    """Draw a posed subject as an "L" image (``size`` x ``size``), 255 inside.

    Args:
        subject: a name of ``BODY``.
        matrix: the rotation and scale from the unit square to pixels, (2, 2).
        offset: the pixel of the origin, (2,).
    """
    image = Image.new("L", (size, size), 0)
    pen = ImageDraw.Draw(image)
    for polygons, value in ((BODY[subject], 255), (HOLES.get(subject, []), 0)):
        for polygon in polygons:
            pen.polygon((polygon @ matrix.T + offset).ravel().tolist(), fill=value)
    return image
