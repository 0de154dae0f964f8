"""Pre-train the tiny FLAVA, BridgeTower and ViLT on clean drawings.

``python -m zoo fusion kind=flava out=DIR`` or ``kind=bridgetower``; then the matchers, which
continue from trained towers as their authors do: ``kind=vilt start=zoo:flava-0``,
``kind=bridgetower-itm start=zoo:bridgetower-0``.

Towers learn by their own contrastive loss and by a cross-entropy of every image over the names of
the subjects, for which colour and background do not help. Matchers distinguish an image's caption
from one of the batch that is false for it. Drawings are mirrored and shifted by up to two pixels.
Rebuilding with the seed, threads and versions in ``card.json`` gives the same metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu
from torch import Tensor

from cfaug.core.annotations import OneOf
from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder, Matcher
from cfaug.core.rng import derive, generator
from cfaug.core.validation import check_fields
from cfaug.models.encoder import Encoder, HFEncoder
from cfaug.models.fusion import BridgeTowerEncoder, BridgeTowerMatcher, ViltMatcher
from cfaug.models.image_text import PairMatcher
from cfaug.models.specs import BridgeTower, BridgeTowerMatching, HFClip, ViltMatching
from cfaug.worlds.shapescapes.settings import CHOICES, CaptionWording, caption, edit_factors, words
from zoo.command import DrawingSettings, fit, make_model, save_half
from zoo.model import IMAGE_SIZE, MAX_LENGTH, SPECIAL, build_tokenizer
from zoo.scenes import PROMPTS, Drawings, draw_unbiased, jitter, truth

# Tiny FLAVA, BridgeTower and ViLT: stock transformers classes at a size for two cores.
#
# Patches are 8 pixels wide, so that a tower reads only 16 of them and a summary token. On one core
# a step of 64 pairs takes FLAVA 45 ms, and BridgeTower, with its cross encoder, 120 ms. Every width
# is 64, the smallest of BridgeTower's vision tower (one head for each 64).

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


def _build_flava() -> Any:
    from transformers import FlavaConfig, FlavaModel

    config = FlavaConfig(
        hidden_size=WIDTH,
        projection_dim=WIDTH,
        initializer_range=WEIGHT_SPREAD,
        init_codebook=False,
        image_config={**TOWER, **PATCHES, "num_hidden_layers": DEPTH, "vocab_size": 8},
        text_config={**TOWER, **WORDS, "num_hidden_layers": 2},
        # Its one layer is not used.
        multimodal_config={**TOWER, "num_hidden_layers": 1},
    )
    return FlavaModel(config)


def _flava_processor() -> Any:
    from transformers import FlavaImageProcessor, FlavaProcessor

    square = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    images = FlavaImageProcessor(size=square, crop_size=square, **SCALE)
    return FlavaProcessor(images, build_tokenizer())


def _bridgetower_config() -> Any:
    """Return the configuration: two towers of three layers and a cross encoder of two."""
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


def _build_bridgetower() -> Any:
    from transformers import BridgeTowerForContrastiveLearning

    return BridgeTowerForContrastiveLearning(_bridgetower_config())


def _build_bridgetower_itm(towers: Any) -> Any:
    from transformers import BridgeTowerForImageAndTextRetrieval

    model = BridgeTowerForImageAndTextRetrieval(_bridgetower_config())
    model.bridgetower.load_state_dict(towers.bridgetower.state_dict())
    return model


def _bridgetower_processor() -> Any:
    from transformers import BridgeTowerImageProcessor, BridgeTowerProcessor

    side = {"shortest_edge": IMAGE_SIZE}
    images = BridgeTowerImageProcessor(size=side, crop_size=side, size_divisor=PATCH, **SCALE)
    return BridgeTowerProcessor(images, build_tokenizer())


def build_vilt(flava: Any) -> Any:
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


def _vilt_processor() -> Any:
    from transformers import ViltImageProcessor, ViltProcessor

    images = ViltImageProcessor(size={"shortest_edge": IMAGE_SIZE}, size_divisor=PATCH, **SCALE)
    return ViltProcessor(images, build_tokenizer())


@dataclass(frozen=True)
class Kind:
    """The functions that build, save and load one of the models.

    Attributes:
        build: a function that returns the model of transformers, from trained towers if ``start``
            loads them.
        start: a function that loads the initial towers; ``None`` for a model trained from scratch.
    """

    build: Callable[..., Any]
    processor: Callable[[], Any]
    wrap: Callable[..., Any]
    spec: Callable[[str], Any]
    start: Callable[[str], Any] | None = None


KINDS = {
    "flava": Kind(_build_flava, _flava_processor, HFEncoder, HFClip),
    "bridgetower": Kind(
        _build_bridgetower, _bridgetower_processor, BridgeTowerEncoder, BridgeTower
    ),
    "vilt": Kind(build_vilt, _vilt_processor, ViltMatcher, ViltMatching, HFClip),
    "bridgetower-itm": Kind(
        _build_bridgetower_itm,
        _bridgetower_processor,
        BridgeTowerMatcher,
        BridgeTowerMatching,
        BridgeTower,
    ),
}


@dataclass(frozen=True, kw_only=True)
class FusionSettings(DrawingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`zoo.command.DrawingSettings`, and
        kind: the architecture: flava, bridgetower, bridgetower-itm or vilt.
        start: the initial towers of a matcher: a bridgetower for bridgetower-itm, a flava for vilt;
            a folder or ``zoo:NAME``.
    """

    kind: Annotated[str, OneOf(KINDS)] = "flava"
    start: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        needs = KINDS[self.kind].start is not None
        if needs and not self.start:
            raise UserError(
                f"kind={self.kind} continues from towers: give start=FOLDER or zoo:NAME"
            )
        if self.start and not needs:
            raise UserError(f"kind={self.kind} trains from scratch: leave out start={self.start}")


def train(settings: FusionSettings) -> Any:
    """Train a model with progress on stderr; return it, wrapped, in evaluation mode."""
    kind, folder = KINDS[settings.kind], Path(settings.out)
    processor = kind.processor()
    drawings = draw_unbiased(settings.seed, "train", settings.scenes)
    torch.manual_seed(derive(settings.seed, "zoo", "weights") % 2**63)
    if kind.start is None:
        model: Any = kind.wrap(
            kind.build(), processor, folder, max_length=None, log_scale_bounds=(0.0, 4.6052)
        )
        loss = _tower_loss(model, drawings, settings)
    else:
        towers = kind.start(settings.start).load(DualEncoder).model
        model = kind.wrap(kind.build(towers), processor, folder, max_length=None)
        loss = _matcher_loss(model, drawings, settings)
    # Training sets the processor's padding, which is saved with it.
    model.processor = processor
    model.train()
    fit(model, loss, settings, settings.steps)
    return model.eval()


def _tower_loss(
    encoder: Encoder, drawings: Drawings, settings: FusionSettings
) -> Callable[[int], Tensor]:
    """Return the sum of a dual encoder's own loss and that of naming the subjects.

    Two examples are not negatives of each other if either caption is true for the other image.
    """
    labels, stated = drawings.labels(), drawings.stated()
    order = generator(settings.seed, "zoo", "order")
    names = encoder.tokenize(PROMPTS["subject"])

    def loss(step: int) -> Tensor:
        rows = order.choice(len(labels), settings.batch_size, replace=False)
        pixels = torch.from_numpy(jitter(drawings.pixels[rows], order))
        encoder.clamp_logit_scale()
        features = encoder.features(pixels, [drawings.texts[row] for row in rows])
        true = truth(labels[rows], stated[rows])
        left_out = torch.from_numpy((true | true.T) & ~np.eye(len(true), dtype=bool))
        log_weights = torch.zeros(true.shape).masked_fill(left_out, -torch.inf)
        contrastive = encoder.contrastive(features, log_weights)
        subjects = F.normalize(encoder.encode_text(names), dim=-1)
        cosines = F.normalize(features[0], dim=-1) @ subjects.T
        right = torch.from_numpy(labels[rows, 0])
        return contrastive + F.cross_entropy(encoder.logit_scale() * cosines, right)

    return loss


def _matcher_loss(
    matcher: PairMatcher, drawings: Drawings, settings: FusionSettings
) -> Callable[[int], Tensor]:
    """Return the loss of distinguishing a caption from a false one of the batch."""
    labels, stated = drawings.labels(), drawings.stated()
    order = generator(settings.seed, "zoo", "order")
    right = torch.cat([torch.ones(settings.batch_size), torch.zeros(settings.batch_size)])
    is_logit = matcher.kind == "logit"
    criterion = F.binary_cross_entropy_with_logits if is_logit else F.binary_cross_entropy

    def loss(step: int) -> Tensor:
        rows = order.choice(len(labels), settings.batch_size, replace=False)
        wrong = rows[_false_captions(labels[rows], stated[rows], order)]
        pixels = torch.from_numpy(jitter(drawings.pixels[rows], order))
        texts = [drawings.texts[row] for row in (*rows, *wrong)]
        return criterion(matcher.match(torch.cat([pixels, pixels]), texts), right)

    return loss


def _false_captions(
    labels: NDArray[np.int64], stated: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw the index of a false caption for each image."""
    return np.array([rng.choice(np.flatnonzero(false)) for false in ~truth(labels, stated)])


def evaluate(folder: Path, settings: FusionSettings) -> dict[str, float]:
    """Return metrics of a saved model on held-out drawings: accuracies, or a matcher's AUCs."""
    drawings = draw_unbiased(settings.seed, "held-out", settings.held_out)
    kind = KINDS[settings.kind]
    spec = kind.spec(str(folder))
    if kind.start is not None:
        return _separation(spec.load(Matcher), drawings, settings.seed)
    # The zero-shot accuracy of subject, colour and background.
    encoder, labels = spec.load(DualEncoder), drawings.labels()
    metrics: dict[str, float] = {"n": len(labels)}
    with torch.inference_mode():
        images = encoder.encode_image(torch.from_numpy(drawings.pixels))
        for column, (name, texts) in enumerate(PROMPTS.items()):
            classes = F.normalize(encoder.encode_text(encoder.tokenize(texts)), dim=-1)
            guess = (images @ classes.T).argmax(1).numpy()
            metrics[f"{name}_acc1"] = float((guess == labels[:, column]).mean())
    return metrics


def _separation(matcher: PairMatcher, drawings: Drawings, seed: int) -> dict[str, float]:
    """Return areas under the ROC curve for true captions ranked above false ones.

    The false captions of ``auc`` are those of other drawings, and those of ``KIND_auc`` the full
    caption with one factor changed.
    """
    rng = generator(seed, "zoo", "separation")
    wrong = _false_captions(drawings.labels(), drawings.stated(), rng)
    pairs = {"auc": (drawings.texts, [drawings.texts[row] for row in wrong])}
    full = [caption(factors, CaptionWording()) for factors in drawings.factors]
    for kind, names in CHOICES.items():
        edited = []
        for factors in drawings.factors:
            others = [name for name in names if name != getattr(factors, kind)]
            changed = edit_factors(factors, kind, others[int(rng.integers(len(others)))])
            edited.append(caption(changed, CaptionWording()))
        pairs[f"{kind}_auc"] = (full, edited)
    metrics: dict[str, float] = {"n": len(wrong)}
    for name, pair in pairs.items():
        with torch.inference_mode():
            pixels = torch.from_numpy(drawings.pixels)
            true, false = (matcher.match(pixels, texts).double().numpy() for texts in pair)
        # The share of (true, false) pairs in the right order; ties count half.
        metrics[name] = float(mannwhitneyu(true, false).statistic) / (len(true) * len(false))
    return metrics


def _save(wrapped: Any, folder: Path) -> None:
    save_half(wrapped.model, wrapped.processor, folder)


main = partial(make_model, "fusion", FusionSettings, train, _save, evaluate)
