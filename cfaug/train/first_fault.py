"""The first loss or gradient that is not finite, noticed on a GPU and read by the host later.

To look at a number, the host has to wait for the GPU. Therefore the GPU itself keeps the first
number that is not finite, and makes no update from then on; the host looks where it waits anyway.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Kind = Literal["loss", "gradient's norm"]
KINDS: tuple[Kind, ...] = ("loss", "gradient's norm")


class FirstFault:
    """The first number of a run that is not finite.

    Attributes:
        found: 1 from that number on, and 0 before, float32 (). As the ``found_inf`` of one of
            torch's fused optimizers it keeps the weights as they are.
    """

    def __init__(self, device: torch.device) -> None:
        self.found = torch.zeros((), device=device)
        self._first = torch.zeros(3, dtype=torch.float64, device=device)  # step, kind, number

    def note(self, number: Tensor, step: int, kind: Kind) -> None:
        """Keep a number if it is the first that is not finite; the host does not wait.

        Args:
            step: the number of the step, from 1.
        """
        wrong = ~torch.isfinite(number.detach())
        first = torch.full_like(self._first, step)
        first[1] = KINDS.index(kind)
        first[2] = number.detach()
        self._first = torch.where(wrong & (self.found == 0), first, self._first)
        self.found.copy_(torch.maximum(self.found, wrong.to(self.found.dtype)))

    def read(self) -> tuple[int, Kind, float] | None:
        """Wait, and return the step, the kind and the number of the fault; ``None`` for none."""
        step, kind, number = self._first.tolist()
        return (round(step), KINDS[round(kind)], number) if step else None
