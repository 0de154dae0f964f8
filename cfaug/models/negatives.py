"""Weights of a batch's pairs as negatives in a contrastive loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Negatives:
    """Features of texts and images that are only wrong answers in a batch, not normalised.

    Attributes:
        texts: features (m, dim) of texts, added to every image's choices; ``None`` for no text.
        images: features (k, dim) of images, added to every text's choices; ``None`` for no image.
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
        rows: the number of rows of the batch.
        weight: the weight of a negative for its own row, above 0.

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
        mask_same_image: whether other captions of the same image are left out.
        hard_negative_weight: the weight of another image of the same set, above 0.
    """
    same_image = images[:, None] == images[None, :]
    same_set = sets[:, None] == sets[None, :]
    logs = torch.zeros(same_image.shape, device=images.device)
    logs[same_set & ~same_image] = math.log(hard_negative_weight)
    if mask_same_image:
        logs[same_image] = -math.inf
    return logs.fill_diagonal_(0.0)
