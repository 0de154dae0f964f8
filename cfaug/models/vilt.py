"""ViLT (Kim et al., 2021): one transformer over words and patches, for matching alone."""

from __future__ import annotations

import torch
from torch import Tensor

from cfaug.models.matching import PairMatcher


class ViltMatcher(PairMatcher):
    """``ViltForImageAndTextRetrieval``: one logit a pair, with no softmax.

    Its authors' processor keeps an image's shape and pads the batch; here every image is cut to a
    square, as for every other model, so that no score depends on the rest of the batch.
    """

    kind = "logit"
    transformers_class = "ViltForImageAndTextRetrieval"

    def score(self, pixels: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Return the logit of each pair, (n,)."""
        count, _, height, width = pixels.shape
        mask = torch.ones((count, height, width), dtype=torch.long, device=pixels.device)
        with torch.random.fork_rng(devices=[]):
            # ViLT shuffles the patches. They carry their places, so only rounding could tell.
            torch.default_generator.manual_seed(0)
            output = self.model(**tokens, pixel_values=pixels, pixel_mask=mask)
        logits: Tensor = output.logits[:, 0]
        return logits
