"""Tiny FLAVA, BridgeTower and ViLT: stock transformers classes at a size for two cores.

Patches are 8 pixels wide, so that a tower reads only 16 of them and a summary token. On one core a
step of 64 pairs takes FLAVA 45 ms, and BridgeTower, with its cross encoder, 120 ms. Every width is
64, the smallest of BridgeTower's vision tower (one head for each 64).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cfaug.shapescapes.vocabulary import words
from cfaug.shapescapes.zoo.model import IMAGE_SIZE, MAX_LENGTH, SPECIAL, build_tokenizer

if TYPE_CHECKING:
    from transformers import (
        BridgeTowerConfig,
        BridgeTowerForContrastiveLearning,
        BridgeTowerForImageAndTextRetrieval,
        BridgeTowerProcessor,
        FlavaModel,
        FlavaProcessor,
        ViltForImageAndTextRetrieval,
        ViltProcessor,
    )

WIDTH = 64
PATCH = 8
DEPTH = 3
SCALE = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
WEIGHT_SPREAD = 0.08
"""The spread of initial weights; the usual 0.02 is for widths of hundreds, too small for 64."""

TOWER: Mapping[str, Any] = {
    "hidden_size": WIDTH,
    "num_attention_heads": 4,
    "intermediate_size": 2 * WIDTH,
    "initializer_range": WEIGHT_SPREAD,
}
WORDS: Mapping[str, Any] = {
    "vocab_size": len(SPECIAL) + len(words()),
    "max_position_embeddings": MAX_LENGTH,
    "pad_token_id": SPECIAL.index("[PAD]"),
}
PATCHES: Mapping[str, Any] = {"image_size": IMAGE_SIZE, "patch_size": PATCH}


def build_flava() -> FlavaModel:
    """Return a FlavaModel with initial weights; its multimodal encoder has one unused layer."""
    from transformers import FlavaConfig, FlavaModel

    config = FlavaConfig(
        hidden_size=WIDTH,
        projection_dim=WIDTH,
        initializer_range=WEIGHT_SPREAD,
        init_codebook=False,
        image_config={**TOWER, **PATCHES, "num_hidden_layers": DEPTH, "vocab_size": 8},
        text_config={**TOWER, **WORDS, "num_hidden_layers": 2},
        multimodal_config={**TOWER, "num_hidden_layers": 1},
    )
    return FlavaModel(config)


def flava_processor() -> FlavaProcessor:
    """Return the processor: 32 px, centre crop, mean and deviation 0.5; and the tokenizer."""
    from transformers import FlavaImageProcessor, FlavaProcessor

    square = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    return FlavaProcessor(
        FlavaImageProcessor(size=square, crop_size=square, **SCALE), build_tokenizer()
    )


def _bridgetower_config() -> BridgeTowerConfig:
    from transformers import BridgeTowerConfig

    # RoBERTa's positions begin after the padding token's, so captions need one more.
    text = {
        **WORDS,
        "max_position_embeddings": MAX_LENGTH + 1,
        "bos_token_id": SPECIAL.index("[CLS]"),
        "eos_token_id": SPECIAL.index("[SEP]"),
        "hidden_size": WIDTH,
        "num_attention_heads": 4,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": DEPTH,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return BridgeTowerConfig(
        hidden_size=WIDTH,
        num_attention_heads=4,
        num_hidden_layers=2,
        contrastive_hidden_size=WIDTH,
        logit_scale_init_value=2.6592,
        text_config=text,
        vision_config={**PATCHES, "hidden_size": WIDTH, "num_hidden_layers": DEPTH},
    )


def build_bridgetower() -> BridgeTowerForContrastiveLearning:
    """Return two towers of three layers and a cross encoder of two, with initial weights."""
    from transformers import BridgeTowerForContrastiveLearning

    return BridgeTowerForContrastiveLearning(_bridgetower_config())


def build_bridgetower_itm(towers: Any) -> BridgeTowerForImageAndTextRetrieval:
    """Return a matching head with initial weights on a trained contrastive model's towers."""
    from transformers import BridgeTowerForImageAndTextRetrieval

    model = BridgeTowerForImageAndTextRetrieval(_bridgetower_config())
    model.bridgetower.load_state_dict(towers.bridgetower.state_dict())
    return model


def bridgetower_processor() -> BridgeTowerProcessor:
    """Return the processor: short side 32, crop 32, mean and deviation 0.5; and the tokenizer."""
    from transformers import BridgeTowerImageProcessor, BridgeTowerProcessor

    side = {"shortest_edge": IMAGE_SIZE}
    images = BridgeTowerImageProcessor(size=side, crop_size=side, size_divisor=PATCH, **SCALE)
    return BridgeTowerProcessor(images, build_tokenizer())


def build_vilt(flava: Any) -> ViltForImageAndTextRetrieval:
    """Return a ViLT with the layers and patches of a trained FLAVA's image tower.

    Likewise its authors start from a trained ViT (Kim et al., 2021, section 3.1).
    """
    from transformers import ViltConfig, ViltForImageAndTextRetrieval

    model = ViltForImageAndTextRetrieval(
        ViltConfig(**TOWER, **WORDS, **PATCHES, num_hidden_layers=DEPTH)
    )
    tower, inner = flava.image_model, model.vilt
    inner.encoder.load_state_dict(tower.encoder.state_dict())
    inner.layernorm.load_state_dict(tower.layernorm.state_dict())
    ours, theirs = inner.embeddings, tower.embeddings
    ours.patch_embeddings.load_state_dict(theirs.patch_embeddings.state_dict())
    ours.cls_token.data.copy_(theirs.cls_token.data)
    ours.position_embeddings.data.copy_(theirs.position_embeddings.data)
    return model


def vilt_processor() -> ViltProcessor:
    """Return the processor: short side 32, mean and deviation 0.5; and the tokenizer."""
    from transformers import ViltImageProcessor, ViltProcessor

    images = ViltImageProcessor(size={"shortest_edge": IMAGE_SIZE}, size_divisor=PATCH, **SCALE)
    return ViltProcessor(images, build_tokenizer())
