"""The gathering of features from all processes, so that a contrastive loss sees the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def gather_all(features: Sequence[Tensor], global_size: int) -> tuple[Tensor, ...]:
    """Return the features of the whole batch; each process encoded its own share.

    Every process then computes the same loss. After DDP has averaged the gradients they are those
    of one process with the whole batch.

    Args:
        features: tensors (local, dim) with this process's share by ``np.array_split`` order; may be
            empty.
        global_size: the number of rows of the batch over all processes.
    """
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return tuple(gather(tensor, global_size) for tensor in features)
    return tuple(features)


def share(global_size: int, rank: int, world: int) -> int:
    """Return the number of rows of a batch that ``np.array_split`` gives to ``rank``.

    >>> [share(10, rank, 4) for rank in range(4)]
    [3, 3, 2, 2]
    """
    return global_size // world + (rank < global_size % world)


def gather(features: Tensor, global_size: int) -> Tensor:
    """Concatenate every process's rows, in rank order, so that gradients flow back to each.

    The shares follow from ``global_size``, so unequal and empty ones need no second collective.
    """
    gathered: Tensor = _Gather.apply(features, global_size)
    return gathered


class _Gather(torch.autograd.Function):
    """All-gather of unequal shares."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, global_size: int) -> Tensor:
        rank, world = dist.get_rank(), dist.get_world_size()
        sizes = [share(global_size, r, world) for r in range(world)]
        if len(features) != sizes[rank]:
            raise ValueError(f"rank {rank} has {len(features)} rows, its share is {sizes[rank]}")
        padded = features.new_zeros((sizes[0], *features.shape[1:]))
        padded[: len(features)] = features
        parts = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(parts, padded)
        ctx.start, ctx.size, ctx.world = sum(sizes[:rank]), sizes[rank], world
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        # Each process differentiates the whole loss, so each already holds the full gradient of
        # its own rows. DDP then divides by the number of processes; this undoes it.
        return grad[ctx.start : ctx.start + ctx.size] * ctx.world, None
