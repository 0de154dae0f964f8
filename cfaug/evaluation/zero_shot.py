"""A dual encoder as a classifier: the class whose prompts are nearest (Radford et al., 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.messages import say_once
from cfaug.data.sources.class_names import equal_names_warning, require_names
from cfaug.evaluation.embed import Pixels, embed_images, embed_texts
from cfaug.stats.classification import class_vectors, fill_templates, zero_shot_scores

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.core.pixels import ImageTransform
    from cfaug.core.protocols import DualEncoder
    from cfaug.evaluation.cached_model import CachedEncoder
    from cfaug.evaluation.classification import Classes


class ZeroShotClassifier:
    """A :class:`cfaug.core.protocols.Classifier` whose logits are cosines times the learnt scale.

    Args:
        encoder: the dual encoder, cached or not.
        asked: the classes, their names in prompts, and the prompts' templates.
        batch_size: number of prompts embedded at once.
    """

    def __init__(
        self, encoder: DualEncoder | CachedEncoder, asked: Classes, batch_size: int = 256
    ) -> None:
        where = "the classes to choose from"
        require_names(asked.names, where, "ask for: benchmark.classes=FILE gives names")
        if (warning := equal_names_warning(asked.names, where)) is not None:
            say_once(warning)
        prompts = embed_texts(encoder, fill_templates(asked.templates, asked.names), batch_size)
        shape = (len(asked.names), len(asked.templates), -1)
        self._vectors = class_vectors(prompts.reshape(shape))
        self._scale = float(encoder.logit_scale().detach())
        self._encoder = encoder
        self.classes: tuple[str, ...] = tuple(asked.labels)

    @property
    def transform(self) -> ImageTransform:
        """The encoder's own image transform."""
        return self._encoder.transform

    def classify(self, pixels: Tensor) -> Tensor:
        """Return the logits of uint8 pixels (n, 3, size, size), float32 (n, classes)."""
        import torch

        found = self._encoder.encode_image(pixels).float().cpu().numpy()
        return torch.from_numpy(self._scores(found))

    def classify_images(self, pixels: Pixels, batch_size: int) -> np.ndarray:
        """Return the logits of the images of an index, float32 (images, classes).

        Cached embeddings are not computed again.
        """
        return self._scores(embed_images(self._encoder, pixels, batch_size))

    def _scores(self, images_ND: np.ndarray) -> np.ndarray:
        found: np.ndarray = zero_shot_scores(images_ND, self._vectors) * self._scale
        return found.astype(np.float32)
