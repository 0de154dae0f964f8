"""BridgeTower (Xu et al., 2023): two towers to retrieve, a cross encoder to train and to match."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cfaug.errors import UserError
from cfaug.models.hf_clip import HFEncoder
from cfaug.models.losses import three_way_loss
from cfaug.models.matching import PairMatcher
from cfaug.models.tokens import on_device

IMAGE_TYPE = 1
"""Row of the token type embeddings that marks an image's tokens."""


class BridgeTowerEncoder(HFEncoder):
    """``BridgeTowerForContrastiveLearning`` as a dual encoder that can also train.

    Embeddings of images and texts are those the whole model gives, found without its cross encoder.
    """

    transformers_class = "BridgeTowerForContrastiveLearning"
    required = ()

    @classmethod
    def check_model(cls, model: Any, folder: Path) -> None:
        """Refuse a model with separate transforms for each layer.

        Raises:
            UserError: if there are; transformers' own class cannot run such a model either.
        """
        if not model.config.share_cross_modal_transformer_layers:
            raise UserError(
                f"{folder}: config.share_cross_modal_transformer_layers=false has no contrastive "
                "feature of an image; BridgeTower/bridgetower-large-itm-mlm-itc shares them"
            )

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (batch, 3, size, size) to projected, unnormalised (batch, dim)."""
        body = self.model.bridgetower
        visual = body.vision_model.visual
        hidden = visual.forward_pre(pixels)
        # The whole model goes through both towers in step, as far as the text's goes.
        for block in visual.transformer.resblocks[: len(body.text_model.encoder.layer)]:
            hidden = block(hidden)
        summary = visual.forward_post(hidden)[:, 0]
        mark = body.token_type_embeddings.weight[IMAGE_TYPE]
        return self.model.itc_image_head(body.cross_modal_image_transform(summary) + mark)

    def encode_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Map tokens to projected, unnormalised (batch, dim)."""
        there = on_device(tokens, self.log_scale.device)
        hidden = self.model.bridgetower.text_model(**there).last_hidden_state
        return self.model.itc_text_head(hidden[:, 0])

    def features(self, pixels: Tensor, texts: Sequence[str]) -> tuple[Tensor, ...]:
        """Return unit features of images, texts and pairs, each (n, dim), in one pass."""
        tokens = on_device(self.tokenize(texts), self.log_scale.device)
        found = self.model(**tokens, pixel_values=self.normalize(pixels))
        return found.image_embeds, found.text_embeds, found.cross_embeds

    takes_negatives = False

    def contrastive(
        self,
        features: Sequence[Tensor],
        log_weights: Tensor | None = None,
        negatives: Tensor | None = None,
    ) -> Tensor:
        """Return the mean of the authors' three cross-entropies over a whole batch, a scalar."""
        assert negatives is None  # a text without an image has no feature of a pair
        images, texts, crossed = features
        return three_way_loss(images, texts, crossed, self.logit_scale(), log_weights)


class BridgeTowerMatcher(PairMatcher):
    """``BridgeTowerForImageAndTextRetrieval``: the probability that a caption is of an image."""

    kind = "probability"
    transformers_class = "BridgeTowerForImageAndTextRetrieval"

    def score(self, pixels: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Return P(match) of each pair, (n,)."""
        logits = self.model(**tokens, pixel_values=pixels).logits
        return torch.softmax(logits.float(), dim=-1)[:, 1]
