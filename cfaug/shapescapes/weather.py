"""What stands between a finished picture and the camera: negative, fog, tint, sensor noise.

Pointwise and blind to what the picture shows, so a picture that a model drew in clear weather can
be put into the weather of a world as the world's own scenes are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cfaug.rng import generator
from cfaug.shapescapes.styles import STYLES, Style
from cfaug.validation import OneOf, check_fields

if TYPE_CHECKING:
    from cfaug.types import ImageJob


def expose(
    picture: NDArray[np.float32], style: Style, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Return what the camera keeps of a picture (height, width, 3) of full scale 1."""
    picture = np.clip(picture, 0, 1)
    if style.negative:
        picture = 1 - picture
    picture = 0.5 + (picture - 0.5) * np.float32(style.contrast)
    picture = picture + np.array(style.tint, dtype=np.float32)
    grain = rng.standard_normal(picture.shape, dtype=np.float32) * np.float32(style.noise)
    return (np.clip(picture + grain, 0, 1) * 255 + np.float32(0.5)).astype(np.uint8)


def develop(image: Image.Image, style: Style, seed: int) -> Image.Image:
    """Put a clear picture into the weather of a style; its noise is keyed by ``seed``."""
    picture = np.asarray(image.convert("RGB"), dtype=np.float32) / np.float32(255)
    return Image.fromarray(expose(picture, style, generator(seed, "weather")))


@dataclass(frozen=True)
class Weather:
    """Puts generated images into a world's weather just before they are written.

    That is knowledge about the test world which a generator of photographs would not have: results
    with it are an upper bound, and the arm ``generated_clear`` of ``make demo-full`` is without it.
    Both images of a pair get the same noise, as the two scenes of an oracle's pair do.

    Args:
        style: a name of ``cfaug.shapescapes.styles.STYLES``.

    Raises:
        UserError: for another name.
    """

    style: Annotated[str, OneOf(STYLES)]

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor")

    def __call__(self, image: Image.Image, job: ImageJob) -> Image.Image:
        """Return the image as the world's camera would have it."""
        return develop(image, STYLES[self.style], job.draw.seed)
