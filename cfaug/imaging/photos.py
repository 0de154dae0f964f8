"""Preparation of photos for a diffusion model: checks, decoding, square crop, resizing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.pixels import MAX_PIXELS, decode_image, open_image
from cfaug.core.validation import Positive, Share, check_fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

GREY, TINY, ANIMATED, BROKEN = "photo_grey", "photo_tiny", "photo_animated", "photo_broken"
"""Reasons why a photo is not edited, as in cards and candidate logs."""

GREY_MODES = ("1", "L", "LA", "I", "F", "I;16", "I;16L", "I;16B")
"""Pillow's modes without colour."""

WhatToDo = Literal["take", "reject"]


class UnfitPhotoError(Exception):
    """A photo that is not edited.

    Args:
        reason: the reason in one word, which cards and candidate logs count.
        why: the explanation in full.
    """

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


@dataclass(frozen=True)
class PhotoPreparation:
    """Converts photos to squares, as in LANCE's released code.

    The central square is cropped and resized with Pillow's default filter, bicubic.

    Args:
        grey: the treatment of photos without colour: ``take`` gives them three equal channels;
            ``reject``, as in the released code, rejects them.
        animated: the treatment of photos with several frames: ``take`` uses the first frame;
            ``reject`` rejects them.
        smallest: the smallest length of a photo's shorter side, as a share of the model's side;
            smaller photos have too little detail to be enlarged.
        max_pixels: the largest number of pixels by a photo's header; larger photos are not decoded.

    Raises:
        UserError: for an invalid choice or number.
    """

    grey: WhatToDo = "take"
    animated: WhatToDo = "take"
    smallest: Share = 0.125
    max_pixels: Positive = MAX_PIXELS

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor.photos")

    def prepare(self, data: bytes, side: int, name: str) -> NDArray[np.uint8]:
        """Return the photo as uint8 (side, side, 3).

        Args:
            data: the encoded file.
            side: the side of the model's square in pixels.
            name: the name of the photo in errors.

        Raises:
            UnfitPhotoError: if the photo is broken, too large, too small, or of a rejected kind.
        """
        try:
            header = open_image(data, name, self.max_pixels)
            self._check(header, side, name)
            image = decode_image(data, name, self.max_pixels)
        except UserError as error:
            raise UnfitPhotoError(BROKEN, str(error)) from error
        short = min(image.size)
        left, top = (image.width - short) // 2, (image.height - short) // 2
        square = image.crop((left, top, left + short, top + short))
        if short != side:
            square = square.resize((side, side), Image.Resampling.BICUBIC)
        return np.asarray(square)

    def _check(self, header: Image.Image, side: int, name: str) -> None:
        width, height = header.size
        if min(width, height) < self.smallest * side:
            raise UnfitPhotoError(
                TINY, f"{name}: {width} x {height} pixels are too few for a square of {side}"
            )
        if self.grey == "reject" and header.mode in GREY_MODES:
            raise UnfitPhotoError(GREY, f"{name} is grey (mode {header.mode})")
        if self.animated == "reject" and getattr(header, "n_frames", 1) > 1:
            raise UnfitPhotoError(ANIMATED, f"{name} is animated")
