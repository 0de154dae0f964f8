"""Any scene and wording of the world, and scenes with one factor changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from cfaug.worlds.shapescapes.drawing import Scene
from cfaug.worlds.shapescapes.oracle import redraw_edited
from cfaug.worlds.shapescapes.settings import (
    CHOICES,
    FACTORS,
    FRAMES,
    CaptionWording,
    Factors,
    Style,
    edit_factors,
)

PHOTOS = st.builds(Factors, **{name: st.sampled_from(some) for name, some in CHOICES.items()})
SHOWN = st.builds(Factors, **{name: st.sampled_from(some) for name, some in FACTORS.items()})
WORDINGS = st.builds(CaptionWording, st.integers(0, len(FRAMES) - 1), st.booleans(), st.booleans())


def draw_edited(
    scene: Scene, kind: str, to: str, *, size: int, style: Style
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the pixels of the edited scene, and the mask of what the edit may change."""
    after = replace(scene, factors=edit_factors(scene.factors, kind, to))
    drawn, mask = redraw_edited(scene, after, size=size, style=style)
    return drawn.pixels, mask
