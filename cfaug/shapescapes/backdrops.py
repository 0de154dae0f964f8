"""The backgrounds: each painter draws on a canvas of any size with its own random generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from PIL import Image, ImageDraw

from cfaug.shapescapes.vocabulary import Rgb

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
