"""Styles of rendering: a clean drawing, a photograph, a film negative, a photograph in fog.

The tiny CLIP is pre-trained on one style and fine-tuned and tested on another. The captions stay
the same: "a red ball" is a red ball in fog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


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
        # cfaug.shapescapes.weather adds the fog.
        "clear": Style(detail=0.35, tilt=9, clutter=3, noise=0.01),
    }
)
"""The styles by their names in configs; the zoo's CLIP was pre-trained on "drawing"."""
