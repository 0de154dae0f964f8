"""Scores of a matcher for images with texts: cached, or computed in batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.progress import watch
from cfaug.evaluation.cached_model import CachedMatcher
from cfaug.evaluation.embed import check_outputs, decode_rows
from cfaug.evaluation.feature_cache import batch_keys, image_keys, recall_or_compute, text_keys

if TYPE_CHECKING:
    from cfaug.core.protocols import Matcher
    from cfaug.data.index import Index


@dataclass(frozen=True)
class PairsToScore:
    """The pairs to score for one kind of score.

    Attributes:
        name: the name of the score.
        index: the source of the images.
        rows: the row of each pair's image in ``index``, integers (pairs,).
        texts: the text of each pair.
    """

    name: str
    index: Index
    rows: np.ndarray
    texts: list[str]

    def at(self, places: list[int]) -> PairsToScore:
        """Return some of the pairs."""
        return replace(self, rows=self.rows[places], texts=[self.texts[at] for at in places])

    def equal(self, other: PairsToScore) -> np.ndarray:
        """Return which pairs have the same image and text as the other's, bool (pairs,)."""
        mine, theirs = (one.index.digests[one.index.images[one.rows]] for one in (self, other))
        texts = [a == b for a, b in zip(self.texts, other.texts, strict=True)]
        return (mine == theirs).all(axis=1) & np.array(texts, bool)


def match_pairs(matcher: Matcher | CachedMatcher, asked: PairsToScore, size: int) -> np.ndarray:
    """Return a matcher's scores for images with texts, float32 (pairs,), cached or computed.

    Args:
        matcher: the model, cached or not.
        asked: the pairs.
        size: number of pairs scored at once.

    Raises:
        UserError: if an image cannot be read, or the model's weights are damaged.
    """
    if not isinstance(matcher, CachedMatcher):
        return np.concatenate(list(_score_batches(matcher, asked, size)))

    def compute(missing: list[int]) -> Iterator[np.ndarray]:
        return _score_batches(matcher.model, asked.at(missing), size)

    keys = batch_keys(image_keys(asked.index, asked.rows), text_keys(asked.texts), size)
    return recall_or_compute(matcher.scores, keys, compute)


def _score_batches(matcher: Matcher, asked: PairsToScore, size: int) -> Iterator[np.ndarray]:
    import torch

    batches = decode_rows(asked.index, asked.rows, matcher.transform, size)
    what = f"matching ({asked.name})"
    for i, pixels in enumerate(watch(batches, what, len(asked.rows), "pairs", len)):
        texts = asked.texts[i * size : (i + 1) * size]
        with torch.inference_mode():
            scores = matcher.match(torch.from_numpy(pixels), texts)
        found = scores.float().cpu().numpy()
        check_outputs(matcher, found)
        yield found
