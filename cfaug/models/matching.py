"""How well an image and a text belong together, by models of any kind: the score G of the paper.

COCO-Counterfactuals, section 4.2.2. Every matcher is a ``torch.nn.Module``, so that ``.to(device)``
moves it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from cfaug.models.encoder import Encoder


class DualMatcher(nn.Module):
    """Any dual encoder as a matcher: the cosine times the learnt scale, CLIP's own logit."""

    kind = "cosine x scale"

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.transform = encoder.transform

    def match(self, pixels: Tensor, texts: Sequence[str]) -> Tensor:
        """Score image i, uint8 (n, 3, size, size), with text i: float32 (n,)."""
        features = (self.encoder.encode_image(pixels), self._texts(texts))
        cosines = F.cosine_similarity(*(feature.float() for feature in features), dim=-1)
        return cosines * self.encoder.logit_scale().float()

    def _texts(self, texts: Sequence[str]) -> Tensor:
        return self.encoder.encode_text(self.encoder.tokenize(texts))
