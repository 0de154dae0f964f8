"""Classify whole test sets: each distinct image is decoded and classified once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.progress import watch
from cfaug.evaluation.cached_model import CachedClassifier
from cfaug.evaluation.embed import Pixels, check_outputs, compute_distinct
from cfaug.evaluation.feature_cache import image_keys, recall_or_compute
from cfaug.evaluation.zero_shot import ZeroShotClassifier

if TYPE_CHECKING:
    from cfaug.core.protocols import Classifier


def classify_images(
    model: Classifier | CachedClassifier | ZeroShotClassifier, pixels: Pixels, batch_size: int
) -> np.ndarray:
    """Return logits, float32 (images, classes), in the order of ``pixels.rows``.

    Images of equal bytes have equal logits.

    Args:
        model: a classifier, cached or not.
        pixels: the images.
        batch_size: number of images classified at once.

    Raises:
        UserError: if a logit is not finite.
    """
    if isinstance(model, ZeroShotClassifier):
        return model.classify_images(pixels, batch_size)

    def compute(places: list[int]) -> Iterator[np.ndarray]:
        some = pixels
        if len(places) < len(pixels.rows):
            some = Pixels(pixels.index, pixels.rows[places])
        classifier = model.model if isinstance(model, CachedClassifier) else model
        return _logit_batches(classifier, some, batch_size)

    keys = image_keys(pixels.index, pixels.rows)
    if isinstance(model, CachedClassifier):
        return recall_or_compute(model.logits, keys, compute)
    return compute_distinct(keys, compute)


def _logit_batches(model: Classifier, pixels: Pixels, size: int) -> Iterator[np.ndarray]:
    import torch

    batches = pixels.batches(model.transform, size)
    for batch in watch(batches, "classifying", len(pixels.rows), "images", len):
        with torch.inference_mode():
            found = model.classify(torch.from_numpy(batch)).float().cpu().numpy()
        check_outputs(model, found)
        yield found
