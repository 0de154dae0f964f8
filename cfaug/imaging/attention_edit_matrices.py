"""A cache of the matrices of cross-attention control for every edit of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.imaging.cross_attention import CrossAttention, Tokens
    from cfaug.imaging.tree import Branches


@dataclass(frozen=True)
class Folds:
    """The matrices of cross-attention control for the texts of one tree.

    Attributes:
        control: the settings of the control.
        tokens: the tokens of each text of the tree.
        steps: the number of the sampler's steps.
        device: the device of the matrices.
        dtype: the number format of the matrices, the UNet's own.
    """

    control: CrossAttention
    tokens: Sequence[Tokens]
    steps: int
    device: torch.device
    dtype: torch.dtype

    @cached_property
    def _made(self) -> dict[tuple[int, int, bytes], Tensor]:
        return {}

    @cached_property
    def _schedules(self) -> dict[int, NDArray[np.bool_]]:
        return {}

    def _schedule(self, text: int) -> NDArray[np.bool_]:
        if text not in self._schedules:
            self._schedules[text] = self.control.schedule(self.tokens[text], self.steps)
        return self._schedules[text]

    def changes(self, tree: Branches) -> set[int]:
        """Return the steps at which any edit's matrices change."""
        found: set[int] = set()
        for text in set(tree.text[tree.image > 0].tolist()):
            table = self._schedule(text)
            found |= set((np.flatnonzero((table[1:] != table[:-1]).any(1)) + 1).tolist())
        return found

    def __call__(self, base: int, edited: int, step: int) -> Tensor | None:
        """Return the matrices for source and edited text, (2, tokens, tokens); ``None`` for none.

        Maps are not edited at a step without active tokens.
        """
        active = self._schedule(edited)[step]
        if not active.any():
            return None
        key = base, edited, active.tobytes()
        if key not in self._made:
            both = self.control.matrices(self.tokens[base], self.tokens[edited], active)
            self._made[key] = torch.from_numpy(both).to(self.device, self.dtype)
        return self._made[key]
