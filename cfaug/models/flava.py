"""FLAVA (Singh et al., 2022) with its multimodal encoder: does a text follow from an image?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cfaug.models.fusion import TowerEntailer


class FlavaEntailer(TowerEntailer):
    """``FlavaModel`` with a head of three logits on the multimodal encoder's first token.

    FLAVA's authors classify that token after the last layer norm (``FLAVAForClassification`` of
    torchmultimodal). The image tower does not depend on the text: it runs once for all hypotheses
    about an image.
    """

    transformers_class = "FlavaModel"

    @staticmethod
    def hidden_size(model: Any) -> int:
        """Return the width of the multimodal encoder."""
        return int(model.config.multimodal_config.hidden_size)

    def image_states(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (n, 3, size, size) to projected tokens (n, tokens, hidden)."""
        seen = self.encoder.image_model(pixel_values=pixels, output_hidden_states=True)
        projected: Tensor = self.encoder.image_to_mm_projection(seen.hidden_states[-1])
        return projected

    def fuse(self, states: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Map projected image tokens and texts to the multimodal first token, (n, hidden)."""
        body = self.encoder
        read = body.text_model(**tokens, output_hidden_states=True)
        words = body.text_to_mm_projection(read.hidden_states[-1])
        shown = tokens["attention_mask"]
        first = int(body.multimodal_model.use_cls_token)
        seen = shown.new_ones((len(states), states.shape[1] + first))
        found = body.multimodal_model(
            torch.cat([states, words], dim=1), attention_mask=torch.cat([seen, shown], dim=1)
        )
        pooled: Tensor = found.last_hidden_state[:, 0]
        return pooled
