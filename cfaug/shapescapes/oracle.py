"""The exact counterfactual of a scene: the same scene with one factor changed, nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cfaug.errors import UserError
from cfaug.shapescapes.scene import Scene, render
from cfaug.shapescapes.styles import Style
from cfaug.shapescapes.vocabulary import COLOURS, DOMAINS, PLACES, SUBJECTS, Factors

CHOICES = {"subject": SUBJECTS, "colour": tuple(COLOURS), "background": tuple(PLACES)}
"""The values of the factors of a photo."""

FACTORS = {**CHOICES, "domain": DOMAINS}
"""The values of all factors of a scene."""


def edit_factors(factors: Factors, kind: str, to: str) -> Factors:
    """Return the factors with one of them changed.

    Raises:
        UserError: if ``kind`` is no factor, or ``to`` no value of it.
    """
    if kind not in FACTORS:
        raise UserError(f"no kind of edit is called {kind!r}; choose one of {', '.join(FACTORS)}")
    if to not in FACTORS[kind]:
        raise UserError(f"no {kind} is called {to!r}; choose one of {', '.join(FACTORS[kind])}")
    return replace(factors, **{kind: to})


def counterfactual(
    scene: Scene, kind: str, to: str, *, size: int, style: Style
) -> tuple[Image.Image, NDArray[np.bool_]]:
    """Draw the scene with one factor changed, and the mask of what the edit may change.

    Returns:
        The image, and a bool mask (size, size). Outside the mask the image equals that of the
        unedited scene to the bit. For a subject the mask is what either subject touches (shadow
        and outline included), for a colour what the subject touches, for a background everything
        but the pixels that show the subject alone, for a domain everything.
    """
    before = render(scene, size, style)
    after = render(Scene(edit_factors(scene.factors, kind, to), scene.seed), size, style)
    if kind == "domain":
        mask = np.ones((size, size), dtype=np.bool_)
    else:
        mask = ~after.solid if kind == "background" else before.touched | after.touched
    return after.image(), mask
