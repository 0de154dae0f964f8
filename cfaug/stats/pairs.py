"""Two images, two captions: which belongs to which (Thrush et al., 2022, Winoground, section 4)."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from cfaug.stats.ranking import as_array, finite, unit


def pair_similarities(text_NKD: Any, image_NMD: Any) -> np.ndarray:
    """Return cosines (items, captions, images) from embeddings (items, captions or images, dim).

    Equal captions or equal images of an item score exactly the same, on every processor.

    Args:
        text_NKD: caption embeddings, (items, captions, dim).
        image_NMD: image embeddings, (items, images, dim).

    >>> import numpy as np
    >>> pair_similarities(np.eye(2)[None], np.eye(2)[None, :1]).tolist()
    [[[1.0], [0.0]]]
    """
    texts, images = as_array(text_NKD), as_array(image_NMD)
    sim: np.ndarray = unit(texts, "text embeddings") @ np.swapaxes(
        unit(images, "image embeddings"), -1, -2
    )
    for one, other in combinations(range(texts.shape[1]), 2):
        same = (texts[:, one] == texts[:, other]).all(axis=-1)
        sim[same, other] = sim[same, one]
    for one, other in combinations(range(images.shape[1]), 2):
        same = (images[:, one] == images[:, other]).all(axis=-1)
        sim[same, :, other] = sim[same, :, one]
    return sim


def winoground(sim_N22: Any) -> dict[str, float]:
    """Return text, image and group score, fractions of pairs.

    Text score: for both images the right caption scores higher; image score: for both captions the
    right image does; group score: both. Comparisons are strict, as in the paper, so a tie is a
    miss. Chance is 1/4, 1/4 and 1/6.

    Args:
        sim_N22: similarities, (pairs, captions, images); caption i belongs to image i.

    Raises:
        ValueError: if the shape is wrong or a score is not finite.

    >>> winoground([[[0.9, 0.5], [0.1, 0.6]], [[0.5, 0.5], [0.5, 0.5]]])
    {'text_score': 0.5, 'image_score': 0.5, 'group_score': 0.5}
    """
    return {name: float(hits.mean()) for name, hits in winoground_hits(sim_N22).items()}


def winoground_hits(sim_N22: Any) -> dict[str, np.ndarray]:
    """Return which pairs are right by each score of ``winoground``, bool (pairs,).

    Args:
        sim_N22: similarities, (pairs, captions, images); caption i belongs to image i.

    Raises:
        ValueError: if the shape is wrong or a score is not finite.
    """
    sim = finite(as_array(sim_N22), "scores")
    if sim.ndim != 3 or sim.shape[1:] != (2, 2) or not len(sim):
        raise ValueError(f"scores should be pairs x 2 captions x 2 images, not {sim.shape}")
    right_0, right_1 = sim[:, 0, 0], sim[:, 1, 1]
    caption_1_image_0, caption_0_image_1 = sim[:, 1, 0], sim[:, 0, 1]
    text = (right_0 > caption_1_image_0) & (right_1 > caption_0_image_1)
    image = (right_0 > caption_0_image_1) & (right_1 > caption_1_image_0)
    return {"text_score": text, "image_score": image, "group_score": text & image}


def pair_hits(sim_N22: Any) -> dict[str, np.ndarray]:
    """Return which pairs are right by each score of ``winoground``, and by five more.

    * ``group_matching``: the right assignment has the largest total similarity; chance is 1/2
      (Test-Time Matching, arXiv 2510.07632, which argues that the group score hides capability);
    * ``text_score_i0``, ``text_score_i1``: image 0 or image 1 scores higher with its own caption;
    * ``image_score_c0``, ``image_score_c1``: caption 0 or caption 1 scores higher with its own
      image. Chance is 1/2 for these four; their names are those of BiVLC's released files.

    >>> {name: hits.tolist() for name, hits in pair_hits([[[0.9, 0.5], [0.8, 0.7]]]).items()}
    ... # doctest: +NORMALIZE_WHITESPACE
    {'text_score': [True], 'image_score': [False], 'group_score': [False],
     'group_matching': [True], 'text_score_i0': [True], 'text_score_i1': [True],
     'image_score_c0': [True], 'image_score_c1': [False]}

    Args:
        sim_N22: similarities, (pairs, captions, images); caption i belongs to image i.

    Returns:
        bool (pairs,) by name; a tie is a miss.

    Raises:
        ValueError: if the shape is wrong or a score is not finite.
    """
    sim = as_array(sim_N22)
    return {
        **winoground_hits(sim),
        "group_matching": sim[:, 0, 0] + sim[:, 1, 1] > sim[:, 0, 1] + sim[:, 1, 0],
        "text_score_i0": sim[:, 0, 0] > sim[:, 1, 0],
        "text_score_i1": sim[:, 1, 1] > sim[:, 0, 1],
        "image_score_c0": sim[:, 0, 0] > sim[:, 0, 1],
        "image_score_c1": sim[:, 1, 1] > sim[:, 1, 0],
    }
