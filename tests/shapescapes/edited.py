"""A scene with one factor changed, drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cfaug.shapescapes.drawing import Scene
from cfaug.shapescapes.oracle import edit_factors, redraw_edited
from cfaug.shapescapes.settings import Style


def draw_edited(
    scene: Scene, kind: str, to: str, *, size: int, style: Style
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the pixels of the edited scene, and the mask of what the edit may change."""
    after = replace(scene, factors=edit_factors(scene.factors, kind, to))
    drawn, mask = redraw_edited(scene, after, size=size, style=style)
    return drawn.pixels, mask
