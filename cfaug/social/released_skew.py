"""Metrics of the intersectional bias paper's released code that are wrong, kept for parity.

Howard et al. (2023); the code released with SocialCounterfactuals, ``evaluation/train.py``. Its
MaxSkew is right. Its MinSkew is ``min_skew(..., zeros="ref0")``. This module holds only the metrics
that differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cfaug.social.skew_metrics import count_top, discount, skew


def released_ndkl(labels_N: np.ndarray, pool_A: Any, k: int) -> float:
    """Return the NDKL of the released code, which is not a divergence and may be negative.

    It weights the skew of every label by the label's desired share, not by its share among the
    retrieved images; counts a missing label as 0; and uses only the first k images.

    Args:
        labels_N: index of each image's label, the best image first, integers (images,).
        pool_A: number of the pool's images with each label, above 0, (labels,).
        k: length of the longest prefix.

    Raises:
        ValueError: if k or a label is out of range, or a label is not in the pool.

    >>> round(released_ndkl(np.array([0, 1, 0]), [9, 1], 2), 4)
    -0.0842
    """
    pool = np.asarray(pool_A, np.float64)
    counts = count_top(np.asarray(labels_N), len(pool), range(1, k + 1))
    weighted = skew(counts, pool, "ref0") @ (pool / pool.sum())
    return float(weighted @ discount(k))


def released_bias(order_N: np.ndarray, k: int) -> float:
    """Return the Bias@K of the released code: whether the pool's first image was retrieved.

    It compares the number of each retrieved image, not its label, with 0, so it is -1 or 2/k - 1
    whatever the model does.

    Args:
        order_N: position of each image in the pool, the best image first, integers (images,).
        k: number of retrieved images, from 1.

    >>> released_bias(np.array([4, 0, 1]), 2), released_bias(np.array([4, 1, 0]), 2)
    (0.0, -1.0)
    """
    if not 1 <= k <= len(order_N):
        raise ValueError(f"k={k} should be 1 to {len(order_N)}, the number of images")
    first = int((np.asarray(order_N)[:k] == 0).sum())
    return (2 * first - k) / k
