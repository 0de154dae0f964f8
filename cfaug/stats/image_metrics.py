"""Sets of images compared by FID and KID; and what an edit kept, by PSNR and SSIM outside it.

FID and KID are in float64. ``torchmetrics`` has both, and the tests compare these with it. Its KID
averages over random subsets of equal size, drawn from the global random state; its FID takes square
roots of eigenvalues that should be zero, which costs half the digits where there are fewer images
than features. A stress test has few images, sets of different sizes, and numbers that must not
depend on chance. For two sets of 50 images with 2,048 features torchmetrics takes 3.4 s and 67 MB,
this module 2 ms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfaug.stats.ranking import as_array, finite

DEGREE = 3
"""Degree of KID's polynomial kernel (Binkowski et al., 2018)."""


def frechet_distance(first_ND: Any, second_MD: Any) -> float:
    """Return the squared Frechet distance of two sets of features: FID for Inception's features.

    |mean - mean'|^2 + tr(C + C' - 2 (C C')^(1/2)) of Gaussians with the sets' means and sample
    covariances (Heusel et al., 2017). The trace of the root is the sum of the singular values of
    X X'^T, where C = X^T X and C' = X'^T X', so no square root of a tiny eigenvalue is taken.

    It is biased: between two sets from one distribution it is above zero, the more so the fewer
    images there are; with fewer images than features the covariances are singular and the bias is
    large. Compare only distances between sets of equal sizes.

    Args:
        first_ND: features of the first set, (images, dim), at least two images.
        second_MD: features of the second set, (other images, dim), at least two images.

    Raises:
        ValueError: if a set has fewer than two images, dimensions differ, or a feature is not
            finite.

    >>> frechet_distance([[0.0], [2.0]], [[3.0], [5.0]])
    9.0
    >>> round(frechet_distance([[0.0], [2.0]], [[-1.0], [3.0]]), 6)  # deviations 2**.5 and 8**.5
    2.0
    """
    first, second = _checked(first_ND, second_MD)
    shift = first.mean(axis=0) - second.mean(axis=0)
    roots = []
    for features in (first, second):
        # X with X^T X the sample covariance, of at most as many rows as features.
        root: Any = (features - features.mean(axis=0)) / np.sqrt(len(features) - 1)
        if len(root) > root.shape[1]:
            root = np.linalg.qr(root, mode="r")
        roots.append(np.asarray(root))
    left, right = roots
    both = np.linalg.svd(left @ right.T, compute_uv=False).sum()
    distance = shift @ shift + (left**2).sum() + (right**2).sum() - 2 * both
    return float(max(distance, 0.0))


def kernel_distance(first_ND: Any, second_MD: Any) -> float:
    """Return the squared maximum mean discrepancy of two sets of features: KID for Inception's.

    The unbiased estimate over all images with the kernel (x y / dim + 1)^3 (Binkowski et al.,
    2018): zero on average for two sets of one distribution, whatever their sizes; single values may
    be below zero.

    Args:
        first_ND: features of the first set, (images, dim), at least two images.
        second_MD: features of the second set, (other images, dim), at least two images.

    Raises:
        ValueError: under the same conditions as in ``frechet_distance``.

    >>> kernel_distance([[0.0], [2.0]], [[1.0], [1.0]])
    -19.0
    """
    first, second = _checked(first_ND, second_MD)
    within = 0.0  # the means over pairs of different images of one set
    for features in (first, second):
        n, every = len(features), _kernel(features, features)
        within += float((every.sum() - np.trace(every)) / (n * (n - 1)))
    return float(within - 2 * _kernel(first, second).mean())


def _kernel(first_ND: np.ndarray, second_MD: np.ndarray) -> np.ndarray:
    kernel: np.ndarray = (first_ND @ second_MD.T / first_ND.shape[1] + 1) ** DEGREE
    return kernel


def _checked(first_ND: Any, second_MD: Any) -> tuple[np.ndarray, np.ndarray]:
    first, second = (
        finite(as_array(features), "features").astype(np.float64)
        for features in (first_ND, second_MD)
    )
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise ValueError(f"features {first.shape} and {second.shape} should be (images, dim) each")
    if min(len(first), len(second)) < 2:
        raise ValueError(f"sets of {len(first)} and {len(second)} images: each needs at least two")
    return first, second


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
