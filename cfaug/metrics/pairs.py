"""Two images, two captions: who belongs to whom (Thrush et al., 2022, Winoground, section 4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfaug.metrics.ranking import as_array, finite, unit


def pair_similarities(text_N2D: Any, image_N2D: Any) -> np.ndarray:
    """Return cosines (pairs, 2 captions, 2 images) from embeddings (pairs, 2, dim).

    Equal captions or equal images of a pair score exactly the same, on every processor.

    >>> import numpy as np
    >>> pair_similarities(np.eye(2)[None], np.eye(2)[None]).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    texts, images = as_array(text_N2D), as_array(image_N2D)
    one_text, one_image = ((both[:, 0] == both[:, 1]).all(axis=-1) for both in (texts, images))
    sim: np.ndarray = unit(texts, "text embeddings") @ np.swapaxes(
        unit(images, "image embeddings"), -1, -2
    )
    sim[one_text, 1] = sim[one_text, 0]
    sim[one_image, :, 1] = sim[one_image, :, 0]
    return sim


def winoground(sim_N22: Any) -> dict[str, float]:
    """Return text, image and group score, fractions of pairs.

    Text score: for each of both images the right caption scores more; image score: for each of both
    captions the right image does; group score: both. Comparisons are strict, as in the paper, so a
    tie is a miss. Chance is 1/4, 1/4 and 1/6.

    Args:
        sim_N22: (pairs, captions, images); caption i belongs to image i.

    Raises:
        ValueError: if the shape is another or a score is not finite.

    >>> winoground([[[0.9, 0.5], [0.1, 0.6]], [[0.5, 0.5], [0.5, 0.5]]])
    {'text_score': 0.5, 'image_score': 0.5, 'group_score': 0.5}
    """
    return {name: float(hits.mean()) for name, hits in winoground_hits(sim_N22).items()}


def winoground_hits(sim_N22: Any) -> dict[str, np.ndarray]:
    """Return which pairs are right by each score of ``winoground``, bool (pairs,).

    Args:
        sim_N22: as for ``winoground``.

    Raises:
        ValueError: if the shape is another or a score is not finite.
    """
    sim = finite(as_array(sim_N22), "scores")
    if sim.ndim != 3 or sim.shape[1:] != (2, 2) or not len(sim):
        raise ValueError(f"scores should be pairs x 2 captions x 2 images, not {sim.shape}")
    right_0, right_1 = sim[:, 0, 0], sim[:, 1, 1]
    caption_1_image_0, caption_0_image_1 = sim[:, 1, 0], sim[:, 0, 1]
    text = (right_0 > caption_1_image_0) & (right_1 > caption_0_image_1)
    image = (right_0 > caption_0_image_1) & (right_1 > caption_1_image_0)
    return {"text_score": text, "image_score": image, "group_score": text & image}
