"""Recall@k between texts and images, for any number of captions per image.

Text to image: a caption is right if its image is among the k best. Image to text: an image is right
if ANY of its captions is (the CLIP papers' recall, 0 or 1 a query, not recall over positives). The
COCO-Counterfactuals paper calls image to text "text retrieval". Ties: see ``ranking``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cfaug.metrics.ranking import SCORES_AT_ONCE, Standing, Ties, as_array, join, standing, unit

KS = (1, 5, 10)


def recall(
    sim_TI: Any, image_of_text: Any, ks: Sequence[int] = KS, ties: Ties = "mean"
) -> dict[str, float]:
    """Return recall@k both ways from a whole matrix of scores.

    Args:
        sim_TI: texts x images, array or tensor, larger is more alike.
        image_of_text: column of each text's image, integers (texts,).
        ks: cut-offs; one at or above the number of candidates gives 1.
        ties: what equal scores are worth, see ``ranking``.

    Returns:
        ``{"image_to_text_R@1": ..., "text_to_image_R@1": ..., ...}``, fractions in [0, 1].

    Raises:
        ValueError: if shapes disagree, a score is not finite or an image has no caption.

    >>> scores = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.4]]  # captions 0 and 1 are of image 0
    >>> recall(scores, [0, 0, 1], ks=[1])
    {'image_to_text_R@1': 1.0, 'text_to_image_R@1': 1.0}
    """
    sim_TI = as_array(sim_TI)
    if sim_TI.ndim != 2:
        raise ValueError(f"sim_TI should be texts x images, not of shape {sim_TI.shape}")
    images = _checked(image_of_text, *sim_TI.shape)
    return _recall(lambda rows: sim_TI[rows], lambda rows: sim_TI.T[rows], images,
                   sim_TI.shape[1], ks, ties)  # fmt: skip


def recall_from_embeddings(
    text_TD: Any,
    image_ID: Any,
    image_of_text: Any,
    ks: Sequence[int] = KS,
    ties: Ties = "mean",
) -> dict[str, float]:
    """Return recall@k both ways without ever holding texts x images scores.

    Scores are made and compared ``ranking.SCORES_AT_ONCE`` at a time. Embeddings (texts, dim) and
    (images, dim) are normalised here; otherwise as ``recall``.

    >>> import numpy as np
    >>> recall_from_embeddings(np.eye(3), 2 * np.eye(3), [0, 1, 2], ks=[1])
    {'image_to_text_R@1': 1.0, 'text_to_image_R@1': 1.0}
    """
    text_TD = unit(as_array(text_TD), "text embeddings")
    image_ID = unit(as_array(image_ID), "image embeddings")
    images = _checked(image_of_text, len(text_TD), len(image_ID))
    return _recall(lambda rows: text_TD[rows] @ image_ID.T, lambda rows: image_ID[rows] @ text_TD.T,
                   images, len(image_ID), ks, ties)  # fmt: skip


def _checked(image_of_text: Any, n_texts: int, n_images: int) -> np.ndarray:
    images = as_array(image_of_text)
    if images.shape != (n_texts,):
        raise ValueError(f"image_of_text has shape {images.shape}; there are {n_texts} texts")
    missing = np.setdiff1d(np.arange(n_images), images)
    if len(missing) or not n_texts:
        raise ValueError(f"{len(missing)} of {n_images} images have no caption: {missing[:5]}")
    if images.min() < 0 or images.max() >= n_images:
        raise ValueError(f"image_of_text names images outside 0..{n_images - 1}")
    return images


def _recall(
    text_rows: Callable[[slice], np.ndarray],
    image_rows: Callable[[slice], np.ndarray],
    image_of_text: np.ndarray,
    n_images: int,
    ks: Sequence[int],
    ties: Ties,
) -> dict[str, float]:
    image = np.arange(n_images)
    ways = {
        "image_to_text": _chunked(image_rows, image, image_of_text),
        "text_to_image": _chunked(text_rows, image_of_text, image),
    }
    return {
        f"{way}_R@{k}": float(found.hits(k, ties).mean()) for way, found in ways.items() for k in ks
    }


def _chunked(
    rows: Callable[[slice], np.ndarray], group_Q: np.ndarray, group_G: np.ndarray
) -> Standing:
    size = max(1, SCORES_AT_ONCE // len(group_G))
    chunks = [slice(start, start + size) for start in range(0, len(group_Q), size)]
    return join([standing(rows(chunk), group_Q[chunk], group_G) for chunk in chunks])
