"""Cosines between embeddings of images and texts, in float32 (InstructPix2Pix, section 3.1.2).

Functions compare row by row. Inputs have unit length, as lengths affect the direction of a
difference.
Half precision is too coarse: a direction is the difference of two nearly equal vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def cosine(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosine of each row of ``a`` with the same row of ``b``, and which are undefined.

    This gives caption-image and image-image similarity.

    Args:
        a: vectors (n, dim).
        b: vectors (n, dim).

    Returns:
        Cosines (n,), and bool (n,): whether a row is zero and the cosine, 0/0, is returned as 0.
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
    """Return the directional similarity of images and texts: cosines (n,), and which are undefined.

    0/0 results from equal texts, such as texts that differ only beyond a model's length limit.

    Args:
        image: embeddings (n, dim) of unit length, like the others, which correspond row by row.
        edited_image: embeddings of the edited images.
        text: embeddings of the unedited texts.
        edited_text: embeddings of the edited texts.
    """
    return cosine(edited_image.float() - image.float(), edited_text.float() - text.float())


def mean_direction(images: Tensor, texts: Tensor) -> float:
    """Return the mean directional cosine over all pairs of a set, including those without the base.

    Args:
        images: embeddings of the images, of unit length (n, dim), with n of at least 2.
        texts: embeddings of the texts, of unit length (n, dim).
    """
    import torch

    one, other = torch.triu_indices(len(images), len(images), offset=1)
    found, _ = direction(images[one], images[other], texts[one], texts[other])
    return float(found.mean())
