"""An entailer's answers about photos and texts: each distinct pair and photo is processed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.progress import watch
from cfaug.core.protocols import EncodesImages
from cfaug.data.sources.image_check import content_digest
from cfaug.evaluation.cached_model import CachedEntailer
from cfaug.evaluation.embed import Pixels, check_outputs, compute_distinct, evaluating
from cfaug.evaluation.feature_cache import image_keys, recall_or_compute, text_keys

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.core.protocols import Entailer


@dataclass(frozen=True)
class Claims:
    """Texts, each about a photo.

    Attributes:
        photos: the photos that the texts are about.
        at: the place in ``photos`` of each text's photo, int64 (texts,).
        texts: the hypotheses.
    """

    photos: Pixels
    at: np.ndarray
    texts: Sequence[str]

    def choose(self, places: Sequence[int]) -> Claims:
        """Return some of the texts, in this order."""
        return replace(self, at=self.at[list(places)], texts=[self.texts[p] for p in places])


def entail(model: Entailer | CachedEntailer, claims: Claims, batch_size: int) -> np.ndarray:
    """Return the probabilities of ``cfaug.core.types.ENTAILMENT``, float32 (texts, 3).

    Equal texts about photos of equal bytes have equal answers. A model that looks at an image
    before it reads does so once for all texts about it.

    Args:
        model: an entailer, cached or not.
        claims: the texts and their photos.
        batch_size: number of photos, and of pairs of photo and text, given to the model at once.

    Raises:
        UserError: if an answer is not finite.
    """
    order = np.argsort(claims.at, kind="stable")  # group the texts about a photo
    sorted_claims = claims.choose(order.tolist())
    images = image_keys(claims.photos.index, claims.photos.rows)
    texts = text_keys(sorted_claims.texts)
    keys = [
        content_digest(images[at] + key) for at, key in zip(sorted_claims.at, texts, strict=True)
    ]

    def compute(places: list[int]) -> Iterator[np.ndarray]:
        entailer = model.model if isinstance(model, CachedEntailer) else model
        return _batches(entailer, sorted_claims.choose(places), batch_size)

    if isinstance(model, CachedEntailer):
        found = recall_or_compute(model.answers, keys, compute)
    else:
        found = compute_distinct(keys, compute)
    answers = np.empty_like(found)
    answers[order] = found
    return answers


def _batches(model: Entailer, claims: Claims, size: int) -> Iterator[np.ndarray]:
    """Yield the answers to claims that are sorted by their photos."""
    import torch

    assert model.transform is not None  # the caller checks them
    wanted, of_claim = np.unique(claims.at, return_inverse=True)
    photos = Pixels(claims.photos.index, claims.photos.rows[wanted])
    batches = watch(photos.batches(model.transform, size), "entailing", len(wanted), "photos", len)
    first = 0
    for batch in batches:
        start, end = np.searchsorted(of_claim, [first, first + len(batch)])
        with torch.inference_mode(), evaluating(model):
            seen = _look(model, torch.from_numpy(batch))
            for low in range(start, end, size):
                some = slice(low, min(low + size, end))
                shown = seen[torch.from_numpy(of_claim[some] - first)]
                yield _answer(model, shown, claims.texts[some])
        first += len(batch)


def _look(model: Entailer, pixels: Tensor) -> Tensor:
    """Return a model's encoding of images, or the pixels if it reads image and text together."""
    return model.encode_images(pixels) if isinstance(model, EncodesImages) else pixels


def _answer(model: Any, shown: Tensor, texts: Sequence[str]) -> np.ndarray:
    if isinstance(model, EncodesImages):
        given = model.entail_encoded(shown, texts)
    else:
        given = model.entail([""] * len(texts), texts, shown)
    found: np.ndarray = given.float().cpu().numpy()
    check_outputs(model, found)
    return found
