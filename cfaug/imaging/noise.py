"""Keyed noise: a candidate's noise depends only on its seed and the step.

One tensor serves all images of a set (as in InstructPix2Pix), whatever the batch and its order. The
initial latent and each step have separate streams, so that a tree, an early exit or a restart gets
the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import derive, generator

if TYPE_CHECKING:
    import torch
    from torch import Tensor

INITIAL = -1
"""The step of the initial latent."""


def draw(seed: int, step: int, image: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return standard normal float32 noise of ``shape`` for one step of one candidate.

    Args:
        seed: the seed of the candidate.
        step: the index of the step, from 0, or ``INITIAL``.
        image: 0 for noise shared by a set; ``k`` for the own noise of image ``k`` of a set.
        shape: the shape of a latent, (channels, height, width).
    """
    return generator(seed, "noise", image, step).standard_normal(shape, dtype=np.float32)


def batch(
    addresses: Sequence[tuple[int, int]],
    step: int,
    shape: tuple[int, ...],
    device: torch.device,
    *,
    on_device: bool = False,
) -> Tensor:
    """Return the noise of ``step`` for each (seed, image): float32 (addresses, *shape).

    ``on_device`` draws with the device's own generator, which saves a copy, but its numbers differ
    from those of a CPU.
    """
    import torch

    if on_device:
        rows = torch.empty((len(addresses), *shape), device=device)
        stream = torch.Generator(device)
        for row, (seed, image) in zip(rows, addresses, strict=True):
            stream.manual_seed(derive(seed, "noise", image, step) % 2**63)
            row.normal_(generator=stream)
        return rows
    host = torch.from_numpy(np.stack([draw(seed, step, image, shape) for seed, image in addresses]))
    if device.type == "cuda":
        return host.pin_memory().to(device, non_blocking=True)
    return host.to(device)
