"""Fusion encoders: BridgeTower, FLAVA and ViLT."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cfaug.core.errors import UserError
from cfaug.models.encoder import on_device
from cfaug.models.fusion import FusionEntailer, TowerEntailer
from cfaug.models.losses import Negatives, three_way_loss
from cfaug.models.matching import PairMatcher
from cfaug.models.pretrained import HFEncoder

# BridgeTower (Xu et al., 2023): two towers for retrieval, a cross encoder for everything else.

TEXT_TYPE, IMAGE_TYPE = 0, 1
"""Rows of the token type embeddings that mark a text's and an image's tokens."""


class BridgeTowerEncoder(HFEncoder):
    """``BridgeTowerForContrastiveLearning`` as a dual encoder that can also train.

    Embeddings of images and texts equal those of the whole model, but need no cross encoder.
    """

    transformers_class = "BridgeTowerForContrastiveLearning"
    required = ()

    @classmethod
    def check_model(cls, model: Any, folder: Path) -> None:
        """Refuse a model whose layers have separate transforms."""
        if not model.config.share_cross_modal_transformer_layers:
            raise UserError(
                f"{folder}: with config.share_cross_modal_transformer_layers=false, images have no "
                "contrastive feature; BridgeTower/bridgetower-large-itm-mlm-itc shares the layers"
            )

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (batch, 3, size, size) to projected, unnormalised (batch, dim)."""
        body = self.model.bridgetower
        visual = body.vision_model.visual
        hidden = visual.forward_pre(pixels)
        # The whole model runs both towers in parallel, up to the depth of the text tower.
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
        negatives: Negatives | None = None,
    ) -> Tensor:
        """Return the mean of the authors' three cross-entropies over a whole batch, a scalar."""
        assert negatives is None  # a single text or image has no feature of a pair
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


class BridgeTowerEntailer(TowerEntailer):
    """``BridgeTowerModel`` with a head of three logits on both pooled first tokens.

    Its cross encoder reads the image tower's upper layers, which do not depend on the text: they
    are computed once for all hypotheses about an image.
    """

    transformers_class = "BridgeTowerModel"

    @classmethod
    def pooled_width(cls, model: Any) -> int:
        """Return the width of a text's and an image's pooled token together."""
        return 2 * cls.hidden_size(model)

    def image_states(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (n, 3, size, size) to (n, cross layers, tokens, hidden)."""
        body = self.encoder
        visual = body.vision_model.visual
        hidden = visual.forward_pre(pixels)
        mark = body.token_type_embeddings.weight[IMAGE_TYPE]
        states = []
        for number, block in enumerate(visual.transformer.resblocks[: self._depth], 1):
            hidden = block(hidden)
            if number >= self._first:
                change = _of_layer(body.cross_modal_image_transform, number - self._first)
                states.append(change(visual.forward_post(hidden)) + mark)
        return torch.stack(states, dim=1)

    def fuse(self, states: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Map the image tower's layers and texts to both pooled first tokens, (n, 2 hidden)."""
        from transformers.masking_utils import create_bidirectional_mask

        body = self.encoder
        layers = body.text_model.encoder.layer
        text = body.text_model.embeddings(input_ids=tokens["input_ids"])
        # As in transformers: the same mask for queries from the text and from the image.
        shown = create_bidirectional_mask(
            config=body.config,
            inputs_embeds=text[:, :1],
            attention_mask=tokens["attention_mask"],
        )
        mark = body.token_type_embeddings.weight[TEXT_TYPE]
        for layer in layers[: self._first - 1]:
            text = layer(text, shown)
        words = image = None
        for number, state in enumerate(states.unbind(1)):
            text = layers[self._first - 1 + number](text, shown)
            said = _of_layer(body.cross_modal_text_transform, number)(text) + mark
            if words is None or image is None:
                words = body.cross_modal_text_layernorm(said)
                image = body.cross_modal_image_layernorm(state)
            else:
                words = body.cross_modal_text_link_tower[number - 1](said, words, shown)
                image = body.cross_modal_image_link_tower[number - 1](state, image, None)
            words, image = (
                body.cross_modal_text_layers[number](words, image, attention_mask=shown)[0],
                body.cross_modal_image_layers[number](image, words, encoder_attention_mask=shown)[
                    0
                ],
            )
        pooled: Tensor = body.get_cls_features(words, image)
        return pooled

    @property
    def _depth(self) -> int:
        """Number of layers of the text tower: the whole model runs both towers to this depth."""
        return len(self.encoder.text_model.encoder.layer)

    @property
    def _first(self) -> int:
        """The first layer of the towers, counted from 1, that the cross encoder reads."""
        return self._depth - int(self.encoder.config.num_hidden_layers) + 1


def _of_layer(module: Any, number: int) -> Any:
    """Return a cross layer's own transform, or the one that all share."""
    return module[number] if isinstance(module, nn.ModuleList) else module


# FLAVA (Singh et al., 2022) with its multimodal encoder: does a text follow from an image?


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


# ViLT (Kim et al., 2021): one transformer over words and patches, for matching and entailment.


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
