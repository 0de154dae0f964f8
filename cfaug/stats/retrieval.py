"""Recall@k between texts and images, for any number of captions per image.

Text to image: a caption is right if its image is among the k best. Image to text: an image is right
if ANY of its captions is (the CLIP papers' recall, 0 or 1 for each query, not recall over
positives). The COCO-Counterfactuals paper calls image to text "text retrieval". Ties: see
``ranking``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cfaug.stats.ranking import (
    SCORES_AT_ONCE,
    Candidates,
    QueryRanks,
    Ties,
    as_array,
    first_equal,
    join,
    standing,
    unit,
)

KS = (1, 5, 10)


def standings(text_TD: Any, image_ID: Any, image_of_text: Any) -> dict[str, QueryRanks]:
    """Return the ranks of the right answers, ``{"image_to_text": ..., "text_to_image": ...}``.

    Args:
        text_TD: text embeddings, (texts, dim).
        image_ID: image embeddings, (images, dim).
        image_of_text: index of each text's image, integers (texts,).

    Raises:
        ValueError: if shapes disagree, an embedding is zero or an image has no caption.
    """
    text_TD, image_ID = as_array(text_TD), as_array(image_ID)
    images = _checked(image_of_text, len(text_TD), len(image_ID))
    texts, text_first = unit(text_TD, "text embeddings"), first_equal(text_TD)
    all_images, image_first = unit(image_ID, "image embeddings"), first_equal(image_ID)
    among_texts, among_images = Candidates(texts, text_first), Candidates(all_images, image_first)
    return _both_ways(
        lambda rows: among_images.score(texts[rows]),
        lambda rows: among_texts.score(all_images[rows]),
        images,
        len(all_images),
    )


def text_standing(text_TD: Any, image_ID: Any, image_of_text: Any) -> QueryRanks:
    """Return the rank of each text's image among all images: ``standings`` in one direction.

    Args:
        text_TD: text embeddings, (texts, dim).
        image_ID: image embeddings, (images, dim).
        image_of_text: index of each text's image, integers (texts,).

    Raises:
        ValueError: under the same conditions as in ``standings``.
    """
    text_TD, image_ID = as_array(text_TD), as_array(image_ID)
    images = _checked(image_of_text, len(text_TD), len(image_ID))
    texts = unit(text_TD, "text embeddings")
    among = Candidates(unit(image_ID, "image embeddings"), first_equal(image_ID))
    return _chunked(lambda rows: among.score(texts[rows]), images, np.arange(len(image_ID)))


def hits_at(
    found: Mapping[str, QueryRanks], ks: Sequence[int] = KS, ties: Ties = "mean"
) -> dict[str, np.ndarray]:
    """Return each query's share of a hit, ``{"image_to_text_R@1": float64 (queries,), ...}``.

    Args:
        found: ranks of the right answers, from ``standings``.
        ks: cut-offs k of the recalls ``R@k``.
        ties: policy for equal scores, see ``ranking``.
    """
    return {f"{way}_R@{k}": one.hits(k, ties) for way, one in found.items() for k in ks}


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


def _both_ways(
    text_rows: Callable[[slice], np.ndarray],
    image_rows: Callable[[slice], np.ndarray],
    image_of_text: np.ndarray,
    n_images: int,
) -> dict[str, QueryRanks]:
    image = np.arange(n_images)
    return {
        "image_to_text": _chunked(image_rows, image, image_of_text),
        "text_to_image": _chunked(text_rows, image_of_text, image),
    }


def _chunked(
    rows: Callable[[slice], np.ndarray], group_Q: np.ndarray, group_G: np.ndarray
) -> QueryRanks:
    size = max(1, SCORES_AT_ONCE // len(group_G))
    chunks = [slice(start, start + size) for start in range(0, len(group_Q), size)]
    return join([standing(rows(chunk), group_Q[chunk], group_G) for chunk in chunks])
