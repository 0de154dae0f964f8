"""Effects between a finished picture and the camera: negative, fog, tint, sensor noise.

They are pointwise and independent of the content, so that a world's weather can be added to a
model's picture of clear weather in the same way as to the world's own scenes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cfaug.core.rng import generator
from cfaug.core.validation import OneOf, check_fields
from cfaug.shapescapes.styles import STYLES, Style

if TYPE_CHECKING:
    from cfaug.core.types import ImageJob


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
        style: a name of ``cfaug.shapescapes.styles.STYLES``.

    Raises:
        UserError: if there is no such style.
    """

    style: Annotated[str, OneOf(STYLES)]

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor")

    def __call__(self, image: Image.Image, job: ImageJob) -> Image.Image:
        """Return the image as seen by the world's camera."""
        return develop(image, STYLES[self.style], job.draw.seed)
