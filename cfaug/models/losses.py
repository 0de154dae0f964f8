"""Contrastive losses of a batch as the models' authors wrote them: pure functions of features.

Row i of every feature tensor belongs to example i. All are computed in float32 whatever the
surrounding precision: bfloat16 has 8 bits for a cosine.

``log_weights`` (n, n), symmetric, weights the pairs that a loss contrasts: entry (i, j) is the log
of the weight of example j among example i's choices. 0 everywhere is the authors' loss, minus
infinity leaves a pair out, log w counts it w times.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def symmetric_loss(
    images: Tensor,
    texts: Tensor,
    logit_scale: Tensor,
    log_weights: Tensor | None = None,
    negatives: Tensor | None = None,
) -> Tensor:
    """Return the mean of the two cross-entropies over cosines (Radford et al., 2021, figure 3).

    Also FLAVA's global contrastive term (Singh et al., 2022, section 3.2). With negatives it is
    NegCLIP's (Yuksekgonul et al., 2023, section 4.1): an image finds its text among all texts and
    negatives, a text its image among the images.

    Args:
        images: (n, dim), not normalised.
        texts: (n, dim), not normalised.
        logit_scale: the factor on the cosine, a scalar.
        log_weights: (n, n), see above.
        negatives: (m, dim), texts that belong to no image, not normalised; each weighs 1.
    """
    with torch.autocast(images.device.type, enabled=False):
        scaled = logit_scale.float() * _unit(images)
        logits_per_image = scaled @ _unit(texts).T
        per_text = _diagonal(logits_per_image.T, log_weights)
        if negatives is not None:
            if log_weights is not None:
                logits_per_image, log_weights = logits_per_image + log_weights, None
            logits_per_image = torch.cat([logits_per_image, scaled @ _unit(negatives).T], dim=1)
        return (_diagonal(logits_per_image, log_weights) + per_text) / 2


def three_way_loss(
    images: Tensor,
    texts: Tensor,
    crossed: Tensor,
    logit_scale: Tensor,
    log_weights: Tensor | None = None,
) -> Tensor:
    """Return BridgeTower's loss: the mean of three cross-entropies, each in one direction.

    Each text finds its image, each text the cross encoder's feature of its pair, and each image
    that feature (Xu et al., 2023; ``BridgeTowerForContrastiveLearning``).

    Args:
        images: (n, dim), not normalised.
        texts: (n, dim), not normalised.
        crossed: (n, dim), of each image with its own text, not normalised.
        logit_scale: the factor on the cosine, a scalar.
        log_weights: (n, n), see above.
    """
    with torch.autocast(images.device.type, enabled=False):
        scale = logit_scale.float()
        image, text, cross = _unit(images), _unit(texts), _unit(crossed)
        pairs = ((text, image), (text, cross), (image, cross))
        terms = [_diagonal(queries @ keys.T * scale, log_weights) for queries, keys in pairs]
        return torch.stack(terms).mean()


def sigmoid_loss(
    images: Tensor,
    texts: Tensor,
    logit_scale: Tensor,
    logit_bias: Tensor,
    log_weights: Tensor | None = None,
    negatives: Tensor | None = None,
) -> Tensor:
    """Return SigLIP's loss: every pair of the batch is its own question (Zhai et al., 2023, 3.2).

    So is every image with every negative, whose answer is no.

    Args:
        images: (n, dim), not normalised.
        texts: (n, dim), not normalised.
        logit_scale: the factor on the cosine, a scalar.
        logit_bias: what is added to that, a scalar.
        log_weights: (n, n), see above.
        negatives: (m, dim), texts that belong to no image, not normalised; each weighs 1.
    """
    with torch.autocast(images.device.type, enabled=False):
        logits = logit_scale.float() * _unit(texts) @ _unit(images).T + logit_bias.float()
        signs = 2 * torch.eye(len(logits), device=logits.device) - 1
        terms = F.logsigmoid(signs * logits)
        if log_weights is not None:
            terms = terms * log_weights.exp()
        total = terms.sum()
        if negatives is not None:
            wrong = logit_scale.float() * _unit(negatives) @ _unit(images).T + logit_bias.float()
            total = total + F.logsigmoid(-wrong).sum()
        return -total / len(logits)


def _unit(features: Tensor) -> Tensor:
    return F.normalize(features.float(), dim=-1)


def _diagonal(logits: Tensor, log_weights: Tensor | None) -> Tensor:
    """Return the mean cross-entropy of rows whose right answer is on the diagonal."""
    if log_weights is not None:
        logits = logits + log_weights
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))
