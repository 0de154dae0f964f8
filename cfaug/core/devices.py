"""Copies to a device for which the host does not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, without waiting until a GPU has come to the copy.

    CUDA may wait for a copy of memory that the system can move, whatever it is asked, so the memory
    is pinned first; torch keeps it until it is copied. Other devices are waited for.
    """
    on_gpu = device.type == "cuda"
    if on_gpu and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()  # itself, if it is pinned already
    return tensor.to(device, non_blocking=on_gpu)
