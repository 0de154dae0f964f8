"""The exact counterfactual of a scene: the same scene with one factor changed, nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.shapescapes.scene import Rendering, Scene, render
from cfaug.shapescapes.styles import Style
from cfaug.shapescapes.vocabulary import COLOURS, DOMAINS, PLACES, SUBJECTS, Factors

CHOICES = {"subject": SUBJECTS, "colour": tuple(COLOURS), "background": tuple(PLACES)}
"""The values of the factors of a photo."""

FACTORS = {**CHOICES, "domain": DOMAINS}
"""The values of all factors of a scene."""


def edit_factors(factors: Factors, kind: str, to: str) -> Factors:
    """Return the factors with one of them changed.

    Raises:
        UserError: if ``kind`` is not a factor, or ``to`` is not a value of it.
    """
    if kind not in FACTORS:
        raise UserError(f"no kind of edit is called {kind!r}; choose one of {', '.join(FACTORS)}")
    if to not in FACTORS[kind]:
        raise UserError(f"no {kind} is called {to!r}; choose one of {', '.join(FACTORS[kind])}")
    return replace(factors, **{kind: to})


def redraw_edited(
    before: Scene, after: Scene, *, size: int, style: Style
) -> tuple[Rendering, NDArray[np.bool_]]:
    """Render an edited scene, and the mask of pixels that may change.

    Args:
        before: the unedited scene.
        after: the same scene with other factors.
        size: the side of the picture in pixels.
        style: the style of the rendering.

    Returns:
        The edited scene, and a bool mask (size, size); outside it the edited scene equals the
        unedited one bit by bit. The masks of several changed factors are united.
    """
    first, second = render(before, size, style), render(after, size, style)
    differing = {k for k in FACTORS if getattr(before.factors, k) != getattr(after.factors, k)}
    mask = np.zeros((size, size), dtype=np.bool_)
    if "domain" in differing:
        mask |= True
    if "background" in differing:
        mask |= ~(first.solid & second.solid)
    if differing & {"subject", "colour"}:
        mask |= first.touched | second.touched
    return second, mask


def psnr_outside(
    shown: NDArray[np.uint8], photo: NDArray[np.uint8], mask: NDArray[np.bool_]
) -> float:
    """Return the peak signal-to-noise ratio of an edited picture outside the edit, in dB.

    >>> psnr_outside(np.full((2, 2, 3), 5, np.uint8), np.full((2, 2, 3), 5, np.uint8),
    ...              np.zeros((2, 2), bool))
    inf

    Args:
        shown: the edited picture, uint8 (size, size, 3).
        photo: the unedited picture, of the same shape.
        mask: the pixels that may change, bool (size, size).

    Returns:
        The ratio over the pixels outside the mask; infinite if they are equal, ``nan`` if there are
        none.
    """
    kept = ~mask
    if not kept.any():
        return float("nan")
    error = np.mean((shown[kept].astype(np.float64) - photo[kept]) ** 2)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))
