"""Cosines between embeddings of images and texts, in float32 (InstructPix2Pix, section 3.1.2).

Rows go with rows; inputs are of unit length already, which changes the direction of a difference.
Half precision would not do: a direction is the difference of two nearly equal vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def cosine(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosine of each row of ``a`` with the same row of ``b``, and where there is none.

    Caption-image and image-image similarity.

    Args:
        a: (n, dim).
        b: (n, dim).

    Returns:
        Cosines (n,), and bool (n,): where a row is zero and the cosine, 0/0, is given as 0.
    """
    import torch

    a, b = a.float(), b.float()
    length = torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1)
    undefined = length == 0
    product = (a * b).sum(-1)
    return torch.where(undefined, 0.0, product / length.masked_fill(undefined, 1.0)), undefined


def direction(
    image: Tensor, edited_image: Tensor, text: Tensor, edited_text: Tensor
) -> tuple[Tensor, Tensor]:
    """Return how far the images changed as the texts did: cosines (n,) and where there is none.

    0/0 comes of two equal texts, such as those that differ after the last token a model reads.

    Args:
        image: of unit length, (n, dim); so are the others, row by row.
        edited_image: the image of the edited text.
        text: the unedited text.
        edited_text: the edited one.
    """
    return cosine(edited_image.float() - image.float(), edited_text.float() - text.float())


def mean_direction(images: Tensor, texts: Tensor) -> float:
    """Return the mean directional cosine over all pairs of a set, the base being one of many.

    Args:
        images: of unit length, (n, dim), n from 2.
        texts: the same.
    """
    import torch

    one, other = torch.triu_indices(len(images), len(images), offset=1)
    found, _ = direction(images[one], images[other], texts[one], texts[other])
    return float(found.mean())
