"""ViLT (Kim et al., 2021): one transformer over words and patches, for matching and entailment."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cfaug.models.fusion import FusionEntailer
from cfaug.models.matching import PairMatcher


class ViltMatcher(PairMatcher):
    """``ViltForImageAndTextRetrieval``: one logit for each pair, without a softmax.

    The authors' processor keeps an image's aspect ratio and pads the batch. Here every image is
    cropped to a square, as for all other models, so that no score depends on the rest of the batch.
    """

    kind = "logit"
    transformers_class = "ViltForImageAndTextRetrieval"

    def score(self, pixels: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Return the logit of each pair, (n,)."""
        logits: Tensor = _run(self.model, pixels, tokens).logits[:, 0]
        return logits


class ViltEntailer(FusionEntailer):
    """``ViltModel`` with a head of three logits on the pooled first token.

    Image and words go through the same layers, so no part can be reused for a second hypothesis:
    every pair needs a complete forward pass.
    """

    transformers_class = "ViltModel"

    def pool(self, pixels: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Map images and texts to the head's input, (n, hidden)."""
        pooled: Tensor = _run(self.encoder, pixels, tokens).pooler_output
        return pooled


def _run(model: Any, pixels: Tensor, tokens: dict[str, Tensor]) -> Any:
    """Run a ViLT on normalised squares (n, 3, size, size) and n tokenised texts."""
    count, _, height, width = pixels.shape
    mask = torch.ones((count, height, width), dtype=torch.long, device=pixels.device)
    with torch.random.fork_rng(devices=[]):
        # ViLT shuffles the patches. Each has its position embedding, so only rounding changes.
        torch.default_generator.manual_seed(0)
        return model(**tokens, pixel_values=pixels, pixel_mask=mask)
