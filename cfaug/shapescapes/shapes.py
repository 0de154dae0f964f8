"""The outlines of the subjects, as polygons in the square [-1, 1] x [-1, 1], y downwards.

Circles are 32-gons, so that one affine map poses any subject.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

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
        size: the side in pixels.
    """
    image = Image.new("L", (size, size), 0)
    pen = ImageDraw.Draw(image)
    for polygons, value in ((BODY[subject], 255), (HOLES.get(subject, []), 0)):
        for polygon in polygons:
            pen.polygon((polygon @ matrix.T + offset).ravel().tolist(), fill=value)
    return image
