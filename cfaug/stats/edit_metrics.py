"""How much of a picture an edit kept: PSNR and SSIM over the pixels outside the edit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

HIGHEST_PSNR = 100.0
"""The PSNR, in dB, at which items stop: equal pictures have no finite one, and a mean needs one.
The smallest difference of a 512 x 512 photo, one channel of one pixel by 1, has 107 dB."""
WINDOW, SIGMA = 11, 1.5
"""Side and standard deviation of SSIM's Gaussian window (Wang et al., 2004, section III.B)."""
STABILISERS = ((0.01 * 255) ** 2, (0.03 * 255) ** 2)
"""SSIM's constants for 8-bit pictures (Wang et al., 2004, equations 8 and 9)."""


def psnr_outside(
    shown: NDArray[np.uint8], photo: NDArray[np.uint8], mask: NDArray[np.bool_]
) -> float:
    """Return the peak signal-to-noise ratio of an edited picture outside the edit, in dB.

    Higher is better.

    >>> psnr_outside(np.full((2, 2, 3), 5, np.uint8), np.full((2, 2, 3), 5, np.uint8),
    ...              np.zeros((2, 2), bool))
    inf

    Args:
        shown: the edited picture, uint8 (height, width, 3).
        photo: the unedited picture, of the same shape.
        mask: the pixels that may change, bool (height, width).

    Returns:
        The ratio over the pixels outside the mask; infinite if they are equal, ``nan`` if there are
        none.

    Raises:
        ValueError: if the shapes differ.
    """
    kept = _outside(shown, photo, mask)
    if not kept.any():
        return float("nan")
    error = np.mean((shown[kept].astype(np.float64) - photo[kept]) ** 2)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))


def ssim_outside(
    shown: NDArray[np.uint8], photo: NDArray[np.uint8], mask: NDArray[np.bool_]
) -> float:
    """Return the structural similarity of an edited picture outside the edit (Wang et al., 2004).

    Higher is better, 1 is the same. Every window counts only its pixels outside the mask (and
    inside the picture), with weights that sum to 1 again, so that nothing in the mask has any
    influence. Without a mask it is the usual SSIM of each channel, but for pictures' borders, where
    others pad or crop. PIE-Bench's code paints the masked pixels black in both pictures instead,
    and takes the mean over the whole picture: that is nearer to 1, the larger the mask.

    >>> dark, light = np.full((4, 4, 3), 60, np.uint8), np.full((4, 4, 3), 120, np.uint8)
    >>> round(ssim_outside(dark, light, np.zeros((4, 4), bool)), 4)
    0.8001

    Args:
        shown: the edited picture, uint8 (height, width, 3).
        photo: the unedited picture, of the same shape.
        mask: the pixels that may change, bool (height, width).

    Returns:
        The mean over pixels outside the mask and channels; ``nan`` if there are no such pixels.

    Raises:
        ValueError: if the shapes differ.
    """
    kept = _outside(shown, photo, mask)
    if not kept.any():
        return float("nan")
    return float(_similarity(shown, photo, kept)[kept].mean())


def _similarity(shown: Any, photo: Any, kept: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return SSIM around each pixel and channel, (height, width, 3); ``nan`` far from any kept."""
    from scipy.ndimage import correlate1d

    places = np.arange(WINDOW) - WINDOW // 2
    taps = np.exp(-(places**2) / (2 * SIGMA**2))

    def blur(values: NDArray[np.float64]) -> NDArray[np.float64]:
        for axis in (0, 1):
            values = correlate1d(values, taps, axis, mode="constant")
        return values

    weights = kept.astype(np.float64)[..., None]
    total = blur(weights)

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore"):
            return np.asarray(blur(values * weights) / total)

    first, second = shown.astype(np.float64), photo.astype(np.float64)
    mean_1, mean_2 = mean(first), mean(second)
    variance_1, variance_2 = mean(first**2) - mean_1**2, mean(second**2) - mean_2**2
    covariance = mean(first * second) - mean_1 * mean_2
    c1, c2 = STABILISERS
    luminance = (2 * mean_1 * mean_2 + c1) / (mean_1**2 + mean_2**2 + c1)
    return np.asarray(luminance * (2 * covariance + c2) / (variance_1 + variance_2 + c2))


def _outside(shown: Any, photo: Any, mask: Any) -> NDArray[np.bool_]:
    """Return the pixels outside the mask, after checking the shapes."""
    if shown.shape != photo.shape or mask.shape != photo.shape[:2] or photo.shape[2:] != (3,):
        raise ValueError(
            f"pictures {shown.shape} and {photo.shape} and a mask {mask.shape} should be "
            "(height, width, 3) twice and (height, width)"
        )
    outside: NDArray[np.bool_] = ~mask
    return outside
