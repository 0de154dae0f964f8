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
        self._place = torch.zeros((), dtype=torch.int64, device=device)  # 0 for none
        self._number = torch.zeros((), device=device)

    def note(self, number: Tensor, step: int, kind: Kind) -> None:
        """Keep a number, a scalar, if it is the first that is not finite; the host does not wait.

        Args:
            step: the number of the step, from 1.
        """
        number = number.detach().float()
        wrong = number * 0 != 0
        first = wrong & (self.found == 0)
        self._place.masked_fill_(first, step * len(KINDS) + KINDS.index(kind))
        self._number = torch.where(first, number, self._number)
        self.found.masked_fill_(wrong, 1)

    def read(self) -> tuple[int, Kind, float] | None:
        """Wait, and return the step, the kind and the number of the fault; ``None`` for none."""
        place, number = torch.stack([self._place.double(), self._number.double()]).tolist()
        step, kind = divmod(round(place), len(KINDS))
        return (step, KINDS[kind], number) if step else None
