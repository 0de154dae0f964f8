"""A loss for unequal similarities of a counterfactual set's images to their neutral prompt.

A set shows one subject with every combination of some attributes; its neutral prompt names no
attribute: "a photo of a doctor". A model without a preference gives all images of the set the same
similarity to that prompt. The difference within a batch is a term of the loss that reduces the
preference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor


def set_invariance(
    images: Tensor, prompts: Tensor, shown: Tensor, sets: Tensor, logit_scale: Tensor, kind: str
) -> Tensor:
    """Return the mean over sets of the spread of their logits with the neutral prompt, a scalar.

    It is computed in float32 whatever the surrounding precision. A set counts if the batch has at
    least two of its images; without such a set the result is 0.

    Args:
        images: features of the images, not normalised, (n, dim).
        prompts: features of the neutral prompts, not normalised, (m, dim).
        shown: the number of each row's neutral prompt, int64 (n,); -1 for a row without one.
        sets: the number of each row's set, int64 (n,).
        logit_scale: the factor on the cosine, a scalar, detached: a model should not reduce the
            term by reducing its scale.
        kind: ``variance``, the variance of a set's logits, divided by the number of images; or
            ``kl``, the Kullback-Leibler divergence of the softmax over a set's logits from the
            uniform distribution, in nats. For small differences the former is twice the latter.
    """
    with torch.autocast(images.device.type, enabled=False):
        rows = torch.nonzero(shown >= 0).squeeze(1)
        _, place, counts = torch.unique(sets[rows], return_inverse=True, return_counts=True)
        several = counts[place] > 1
        rows = rows[several]
        if not len(rows):
            return images.float().sum() * 0
        _, place, counts = torch.unique(sets[rows], return_inverse=True, return_counts=True)
        image, prompt = (
            F.normalize(images[rows].float(), dim=-1),
            F.normalize(prompts.float(), dim=-1),
        )
        logits = logit_scale.float() * (image * prompt[shown[rows]]).sum(dim=-1)
        return KINDS[kind](logits, place, counts).mean()


def _sum_by_set(values: Tensor, place: Tensor, counts: Tensor) -> Tensor:
    return torch.zeros(len(counts), device=values.device).index_add(0, place, values)


def _variance(logits: Tensor, place: Tensor, counts: Tensor) -> Tensor:
    means = _sum_by_set(logits, place, counts) / counts
    return _sum_by_set((logits - means[place]) ** 2, place, counts) / counts


def _divergence(logits: Tensor, place: Tensor, counts: Tensor) -> Tensor:
    lowest = torch.full((len(counts),), -torch.inf, device=logits.device)
    highest = lowest.scatter_reduce(0, place, logits.detach(), "amax")
    shifted = logits - highest[place]
    log_total = _sum_by_set(shifted.exp(), place, counts).log()
    logs = shifted - log_total[place]
    return _sum_by_set(logs.exp() * logs, place, counts) + counts.log()


KINDS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "variance": _variance,
    "kl": _divergence,
}
"""{name: function of logits (n,), each row's set and the sizes of sets; one value for each set}."""
