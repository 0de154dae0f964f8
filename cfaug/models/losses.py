"""Contrastive losses of the models' authors for a batch, as pure functions of features.

Row i of every feature tensor belongs to example i. All losses are computed in float32 whatever the
surrounding precision: bfloat16 has 8 bits for a cosine.

``log_weights`` (n, n), symmetric, weights the pairs that a loss contrasts: entry (i, j) is the log
of the weight of example j among example i's choices. 0 everywhere gives the authors' loss, minus
infinity leaves a pair out, and log w counts it w times.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from cfaug.models.negatives import Negatives


def symmetric_loss(
    images: Tensor,
    texts: Tensor,
    logit_scale: Tensor,
    log_weights: Tensor | None = None,
    negatives: Negatives | None = None,
) -> Tensor:
    """Return the mean of the two cross-entropies over cosines (Radford et al., 2021, figure 3).

    It is also FLAVA's global contrastive term (Singh et al., 2022, section 3.2). With negative
    texts it is the loss of NegCLIP (Yuksekgonul et al., 2023, section 4.1) and of TROHN-Text
    (Miranda et al., 2024, section 5): an image has to find its text among all texts and negatives,
    a text its image among the images of the batch. Negative images are used in the same way, with
    the roles exchanged.

    Args:
        images: features of the images, not normalised, (n, dim).
        texts: features of the texts, not normalised, (n, dim).
        logit_scale: the factor on the cosine, a scalar.
        log_weights: log weights of pairs, (n, n), see the module; ``None`` for 0 everywhere.
        negatives: texts and images that are only wrong answers; ``None`` for no others.
    """
    wrong = negatives or Negatives()
    with torch.autocast(images.device.type, enabled=False):
        scaled = logit_scale.float() * _unit(images)
        logits = scaled @ _unit(texts).T
        more = _more(scaled, wrong.texts, wrong.text_log_weights)
        per_image = _diagonal(logits, log_weights, more)
        more = _more(logit_scale.float() * _unit(texts), wrong.images, wrong.image_log_weights)
        per_text = _diagonal(logits.T, log_weights, more)
        return (per_image + per_text) / 2


def three_way_loss(
    images: Tensor,
    texts: Tensor,
    crossed: Tensor,
    logit_scale: Tensor,
    log_weights: Tensor | None = None,
) -> Tensor:
    """Return BridgeTower's loss: the mean of three cross-entropies, each in one direction.

    Each text has to find its image, each text the cross encoder's feature of its pair, and each
    image that feature (Xu et al., 2023; ``BridgeTowerForContrastiveLearning``).

    Args:
        images: features of the images, not normalised, (n, dim).
        texts: features of the texts, not normalised, (n, dim).
        crossed: features of each image with its own text, not normalised, (n, dim).
        logit_scale: the factor on the cosine, a scalar.
        log_weights: log weights of pairs, (n, n), see the module; ``None`` for 0 everywhere.
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
    negatives: Negatives | None = None,
) -> Tensor:
    """Return SigLIP's loss: every pair of the batch is a binary question (Zhai et al., 2023, 3.2).

    Every image with every negative text, and every text with every negative image, is such a
    question with the answer no.

    Args:
        images: features of the images, not normalised, (n, dim).
        texts: features of the texts, not normalised, (n, dim).
        logit_scale: the factor on the cosine, a scalar.
        logit_bias: the bias added to the logits, a scalar.
        log_weights: log weights of pairs, (n, n), see the module; ``None`` for 0 everywhere.
        negatives: texts and images that are only wrong answers; ``None`` for no others.
    """
    wrong = negatives or Negatives()
    with torch.autocast(images.device.type, enabled=False):
        scale, bias = logit_scale.float(), logit_bias.float()
        logits = scale * _unit(texts) @ _unit(images).T + bias
        signs = 2 * torch.eye(len(logits), device=logits.device) - 1
        terms = F.logsigmoid(signs * logits)
        if log_weights is not None:
            terms = terms * log_weights.exp()
        total = terms.sum()
        for features, keys, weights in (
            (images, wrong.texts, wrong.text_log_weights),
            (texts, wrong.images, wrong.image_log_weights),
        ):
            if keys is not None:
                answers = F.logsigmoid(-(scale * _unit(keys) @ _unit(features).T + bias))
                total = total + (answers if weights is None else answers * weights.exp().T).sum()
        return -total / len(logits)


def _unit(features: Tensor) -> Tensor:
    return F.normalize(features.float(), dim=-1)


def _more(scaled: Tensor, keys: Tensor | None, log_weights: Tensor | None) -> Tensor | None:
    """Return the logits of further wrong answers, (n, m), weighted."""
    if keys is None:
        return None
    logits = scaled @ _unit(keys).T
    return logits if log_weights is None else logits + log_weights


def _diagonal(logits: Tensor, log_weights: Tensor | None, more: Tensor | None = None) -> Tensor:
    """Return the mean cross-entropy of rows whose right answer is on the diagonal.

    Args:
        logits: the logits of all pairs, (n, n).
        log_weights: log weights to add to the logits, (n, n); ``None`` for 0.
        more: logits of further wrong answers, (n, m); ``None`` for no others.
    """
    if log_weights is not None:
        logits = logits + log_weights
    if more is not None:
        logits = torch.cat([logits, more], dim=1)
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))
