"""Small photos in memory."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from tests.records import Photo


def photo(seed: int, width: int = 40, height: int = 32) -> Photo:
    """Return a PNG of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return Photo(buffer.getvalue())
