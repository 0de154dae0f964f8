"""Contrastive losses of the models' authors for a batch, as pure functions of features.

Row i of every feature tensor (n, dim), not normalised, belongs to example i. ``logit_scale`` is the
factor on the cosine, a scalar. All losses are computed in float32 whatever the surrounding
precision: bfloat16 has 8 bits for a cosine.

``log_weights`` (n, n), symmetric, weights the pairs that a loss contrasts: entry (i, j) is the log
of the weight of example j among example i's choices. 0 everywhere gives the authors' loss, minus
infinity leaves a pair out, and log w counts it w times; ``None`` is 0 everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


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


# CE-CLIP (Zhang et al., 2024, "Contrasting intra-modal and ranking cross-modal hard negatives",
# section 3): two terms of an example's wrong captions beside the contrastive loss. Its released
# code (Enhance-FineGrained, src/open_clip/loss.py) has three forms of the first term: until
# 2024-01-31 and from 2024-03-08 the "right" answer of every row is the first wrong caption of the
# batch, and from 2024-03-27 the image's own logit is missing altogether. The form here is that of
# the commits "fix bugs" (7f4433a) and 2d07821 between them, where it is the image's own caption.

PLACES = 8
"""Thresholds of the ranking: an example's eighth wrong caption and later ones share one."""


def intra_modal_loss(images: Tensor, texts: Tensor, wrong: Tensor, logit_scale: Tensor) -> Tensor:
    """Return CE-CLIP's contrast among captions: a caption should not resemble the wrong ones.

    It is the mean cross-entropy whose right answer is the logit of the example's image and caption,
    and whose wrong answers are the logits of its caption with every wrong caption of the batch.

    Args:
        wrong: features of the wrong captions of all examples, not normalised, (m, dim).
    """
    with torch.autocast(images.device.type, enabled=False):
        text, scale = _unit(texts), logit_scale.float()
        right = (_unit(images) * text).sum(dim=-1, keepdim=True)
        logits = scale * torch.cat([right, text @ _unit(wrong).T], dim=1)
        first = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
        return F.cross_entropy(logits, first)


def ranking_loss(
    images: Tensor,
    texts: Tensor,
    wrong: Tensor,
    owners: Tensor,
    thresholds: Tensor,
    logit_scale: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return CE-CLIP's ranking of an example's own captions, and the thresholds that follow it.

    The logit of an image with its caption should exceed that with each of its own wrong captions by
    a threshold; what is missing is the loss, averaged over the examples and the places of wrong
    captions (as many as the example with the most has in this batch; an example that has fewer
    counts with 0 there). A wrong caption's place is its number among those of its example: lists
    that name one of each kind have a kind at a place, for which the paper has a threshold each. The
    next threshold of a place is the mean logit of right captions less that of its wrong ones, so
    that it grows with what the model has learnt; a place without wrong captions keeps its own.

    Args:
        wrong: features of the wrong captions, not normalised, (m, dim); at least one.
        owners: the row of the example that each wrong caption was made for, int64 (m,).
        thresholds: the threshold of each place, in logits, (PLACES,).

    Returns:
        The loss, a scalar, and the next thresholds, (PLACES,), without bounds and detached.
    """
    with torch.autocast(images.device.type, enabled=False):
        scale, image = logit_scale.float(), _unit(images)
        right = scale * (image * _unit(texts)).sum(dim=-1)
        false = scale * (image[owners] * _unit(wrong)).sum(dim=-1)
        places = number_places(owners)
        kind = places.clamp(max=len(thresholds) - 1)
        missing = F.relu(thresholds[kind] + false - right[owners])
        loss = missing.sum() / (len(images) * (places.max() + 1))
        sums = torch.zeros_like(thresholds).index_add(0, kind, false.detach())
        counts = torch.zeros_like(thresholds).index_add(0, kind, torch.ones_like(sums[kind]))
        gaps = right.detach().mean() - sums / counts.clamp(min=1)
        return loss, torch.where(counts > 0, gaps, thresholds)


def number_places(owners: Tensor) -> Tensor:
    """Return the number of each wrong caption among those of its example, int64 (m,).

    >>> number_places(torch.tensor([2, 2, 0, 2, 0])).tolist()
    [0, 1, 0, 2, 1]
    """
    ordered, order = owners.sort(stable=True)
    first = torch.searchsorted(ordered, ordered)
    places = torch.empty_like(owners)
    places[order] = torch.arange(len(owners), device=owners.device) - first
    return places


def _unit(features: Tensor) -> Tensor:
    return F.normalize(features.float(), dim=-1)


def _more(scaled: Tensor, keys: Tensor | None, log_weights: Tensor | None) -> Tensor | None:
    """Return the logits of further wrong answers, (n, m), weighted."""
    if keys is None:
        return None
    logits = scaled @ _unit(keys).T
    return logits if log_weights is None else logits + log_weights


def _diagonal(logits: Tensor, log_weights: Tensor | None, more: Tensor | None = None) -> Tensor:
    """Return the mean cross-entropy of rows whose right answer is on the diagonal."""
    if log_weights is not None:
        logits = logits + log_weights
    if more is not None:
        logits = torch.cat([logits, more], dim=1)
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


# A set shows one subject with every combination of some attributes; its neutral prompt names no
# attribute: "a photo of a doctor". A model without a preference gives all images of the set the
# same similarity to that prompt. The difference within a batch is a term of the loss that reduces
# the preference.


Groups = tuple[Tensor, Tensor, Tensor]
"""The rows whose sets count, int64 (k,); the number of each one's set, (k,); the sets' sizes."""


def group_rows(shown: Tensor, sets: Tensor) -> Groups:
    """Return the rows with a neutral prompt of which their set has at least two, by set.

    For numbers on a GPU the host waits, as the sizes depend on them.
    """
    rows = torch.nonzero(shown >= 0).squeeze(1)
    _, group, counts = torch.unique(sets[rows], return_inverse=True, return_counts=True)
    rows = rows[counts[group] > 1]
    _, group, counts = torch.unique(sets[rows], return_inverse=True, return_counts=True)
    return rows, group, counts


def set_invariance(
    images: Tensor,
    prompts: Tensor,
    shown: Tensor,
    groups: Groups,
    logit_scale: Tensor,
    kind: str,
) -> Tensor:
    """Return the mean over sets of the spread of their logits with the neutral prompt, a scalar.

    It is computed in float32 whatever the surrounding precision. A set counts if the batch has at
    least two of its images; without such a set the result is 0.

    Args:
        images: features of the images, not normalised, (n, dim).
        prompts: features of the neutral prompts, not normalised, (m, dim).
        shown: the number of each row's neutral prompt, int64 (n,); -1 for a row without one.
        groups: the result of ``group_rows``, on the device of the images.
        logit_scale: the factor on the cosine, a scalar, detached: a model should not reduce the
            term by reducing its scale.
        kind: ``variance``, the variance of a set's logits, divided by the number of images; or
            ``kl``, the Kullback-Leibler divergence of the softmax over a set's logits from the
            uniform distribution, in nats. For small differences the former is twice the latter.
    """
    with torch.autocast(images.device.type, enabled=False):
        rows, group, counts = groups
        if not len(rows):
            return images.float().sum() * 0
        image, prompt = _unit(images[rows]), _unit(prompts)
        logits = logit_scale.float() * (image * prompt[shown[rows]]).sum(dim=-1)
        return KINDS[kind](logits, group, counts).mean()


def _sum_by_set(values: Tensor, group: Tensor, counts: Tensor) -> Tensor:
    return torch.zeros(len(counts), device=values.device).index_add(0, group, values)


def _variance(logits: Tensor, group: Tensor, counts: Tensor) -> Tensor:
    means = _sum_by_set(logits, group, counts) / counts
    return _sum_by_set((logits - means[group]) ** 2, group, counts) / counts


def _divergence(logits: Tensor, group: Tensor, counts: Tensor) -> Tensor:
    lowest = torch.full((len(counts),), -torch.inf, device=logits.device)
    highest = lowest.scatter_reduce(0, group, logits.detach(), "amax")
    shifted = logits - highest[group]
    log_total = _sum_by_set(shifted.exp(), group, counts).log()
    logs = shifted - log_total[group]
    return _sum_by_set(logs.exp() * logs, group, counts) + counts.log()


KINDS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "variance": _variance,
    "kl": _divergence,
}
"""{name: function of logits (n,), each row's set and the sizes of sets; one value for each set}."""


@dataclass(frozen=True)
class Negatives:
    """Features of texts and images that are only wrong answers in a batch, not normalised.

    Attributes:
        texts: features (m, dim) of texts, added to every image's choices.
        images: features (k, dim) of images, added to every text's choices.
        text_log_weights: the log of the weight of each text for each image, (n, m); ``None`` for a
            weight of 1.
        image_log_weights: the log of the weight of each image for each text, (n, k); ``None`` for a
            weight of 1.
    """

    texts: Tensor | None = None
    images: Tensor | None = None
    text_log_weights: Tensor | None = None
    image_log_weights: Tensor | None = None


def log_owner_weights(owners: Tensor, rows: int, weight: float) -> Tensor:
    """Return log W (rows, m): ``weight`` for the row that a negative was made for, 1 for others.

    Args:
        owners: the row in the batch that each negative was made for, int64 (m,).
        weight: above 0.

    >>> log_owner_weights(torch.tensor([1, 0]), 2, 2.0).exp().round().tolist()
    [[1.0, 2.0], [2.0, 1.0]]
    """
    mine = torch.arange(rows, device=owners.device)[:, None] == owners[None, :]
    return mine.float() * math.log(weight)


def log_negative_weights(
    images: Tensor, sets: Tensor, *, mask_same_image: bool, hard_negative_weight: float
) -> Tensor:
    """Return log W (n, n), to be added to the logits of a batch, in the order of its rows.

    With logits s the loss of row i becomes ::

        -log( exp(s_ii) / (exp(s_ii) + sum over j != i of W_ij exp(s_ij)) )

    where W_ij is

    - 0 if j has the same image as i and ``mask_same_image``: a photo's other captions describe it
      too, so they are not negatives;
    - ``hard_negative_weight`` if j is of the same set as i but has another image: the other side of
      an edit is the hardest negative. Weights on the exponentials are those of Robinson et al.
      (2021, Contrastive learning with hard negative samples, section 3), given by the set instead
      of by the current similarity;
    - 1 otherwise, and on the diagonal. With all of them 1 this is CLIP's loss.

    W is symmetric: it serves images against texts and texts against images alike.

    Args:
        images: the number of each row's image, int64 (n,); equal numbers are the same image.
        sets: the number of each row's counterfactual set, int64 (n,).
    """
    same_image = images[:, None] == images[None, :]
    same_set = sets[:, None] == sets[None, :]
    logs = torch.zeros(same_image.shape, device=images.device)
    logs[same_set & ~same_image] = math.log(hard_negative_weight)
    if mask_same_image:
        logs[same_image] = -math.inf
    return logs.fill_diagonal_(0.0)
