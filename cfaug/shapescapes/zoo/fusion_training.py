"""Training and evaluation of the tiny towers and matchers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu
from torch import Tensor

from cfaug.core.rng import generator
from cfaug.models.encoder import Encoder
from cfaug.models.matching import PairMatcher
from cfaug.shapescapes.oracle import CHOICES, edit_factors
from cfaug.shapescapes.vocabulary import CaptionWording, caption
from cfaug.shapescapes.zoo.drawings import PROMPTS, Drawings, jitter, truth
from cfaug.shapescapes.zoo.fitting import DrawingSettings, fit


def train_towers(encoder: Encoder, drawings: Drawings, settings: DrawingSettings) -> None:
    """Train a dual encoder in place by its own loss and by the names of the subjects.

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
        contrastive = encoder.contrastive(features, _false_alone(labels[rows], stated[rows]))
        subjects = F.normalize(encoder.encode_text(names), dim=-1)
        cosines = F.normalize(features[0], dim=-1) @ subjects.T
        right = torch.from_numpy(labels[rows, 0])
        return contrastive + F.cross_entropy(encoder.logit_scale() * cosines, right)

    encoder.train()
    fit(encoder, loss, settings)
    encoder.eval()


def _false_alone(labels: NDArray[np.int64], stated: NDArray[np.bool_]) -> Tensor:
    """Return log weights (n, n) that leave out all other pairs with a true caption."""
    true = truth(labels, stated)
    left_out = (true | true.T) & ~np.eye(len(true), dtype=bool)
    return torch.zeros(true.shape).masked_fill(torch.from_numpy(left_out), -torch.inf)


def train_matcher(matcher: PairMatcher, drawings: Drawings, settings: DrawingSettings) -> None:
    """Train a matcher in place to distinguish a caption from a false one of the batch."""
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

    matcher.train()
    fit(matcher, loss, settings)
    matcher.eval()


def _false_captions(
    labels: NDArray[np.int64], stated: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw the index of a false caption for each image."""
    false = ~truth(labels, stated)
    return np.array([rng.choice(np.flatnonzero(choices)) for choices in false])


def zero_shot(encoder: Encoder, drawings: Drawings) -> dict[str, float]:
    """Return the zero-shot accuracy of subject, colour and background."""
    labels = drawings.labels()
    metrics: dict[str, float] = {"n": len(labels)}
    with torch.inference_mode():
        images = encoder.encode_image(torch.from_numpy(drawings.pixels))
        for column, (kind, texts) in enumerate(PROMPTS.items()):
            classes = F.normalize(encoder.encode_text(encoder.tokenize(texts)), dim=-1)
            guess = (images @ classes.T).argmax(1).numpy()
            metrics[f"{kind}_acc1"] = float((guess == labels[:, column]).mean())
    return metrics


def separation(matcher: PairMatcher, drawings: Drawings, seed: int) -> dict[str, float]:
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
    areas = {
        name: _area(*(_scores(matcher, drawings.pixels, texts) for texts in pair))
        for name, pair in pairs.items()
    }
    return {"n": len(wrong), **areas}


def _scores(matcher: PairMatcher, pixels: NDArray[np.uint8], texts: list[str]) -> NDArray[Any]:
    with torch.inference_mode():
        return matcher.match(torch.from_numpy(pixels), texts).double().numpy()


def _area(true: NDArray[Any], false: NDArray[Any]) -> float:
    """Return the share of (true, false) pairs in the right order; ties count half."""
    return float(mannwhitneyu(true, false).statistic) / (len(true) * len(false))
