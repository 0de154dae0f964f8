"""The training captions of counterfactual sets: own, neutral or shuffled captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.grids import NEUTRAL
from cfaug.core.rng import generator
from cfaug.data.mixture.settings import Captions

if TYPE_CHECKING:
    from cfaug.data.index import Index


@dataclass(frozen=True)
class SetCaptions:
    """The training captions of a counterfactual source's images.

    Attributes:
        index: the index of the source.
        kind: the kind of captions: ``own``, as in the source; ``neutral``, the set's neutral prompt
            for all its images; or ``shuffled``, the captions of a set permuted among its images, so
            that the attributes in them are random and everything else is unchanged.
        seed: the seed of the permutations; a set's permutation depends only on it and on the key.

    Raises:
        UserError: if neutral prompts are requested and the source has none.
    """

    index: Index
    kind: Captions = "own"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind == NEUTRAL:
            require_neutral(self.index, f"data.counterfactual_captions={NEUTRAL}")

    def text(self, row: int) -> str:
        """Return the training caption of a row.

        Raises:
            UserError: if it should be neutral and the row has no neutral prompt.
        """
        if self.kind == "own":
            return self.index.text(row)
        if self.kind == "shuffled":
            return self.index.text(self._exchange(row))
        prompt = self.neutral(row)
        if prompt is None:
            raise UserError(
                f"{self.index.source}: {self.index.key(row)} has no neutral prompt, which "
                f"data.counterfactual_captions={NEUTRAL} needs of every image"
            )
        return prompt

    def neutral(self, row: int) -> str | None:
        """Return the neutral prompt of a row's set, if it has one."""
        prompt: str | None = self.index.extra(NEUTRAL)[row].as_py()
        return prompt

    def _exchange(self, row: int) -> int:
        """Return the row of the same set from which a row gets its caption."""
        number = self.index.sets[row]
        start, end = (int(np.searchsorted(self.index.sets, number, s)) for s in ("left", "right"))
        key = self.index.key(row).rpartition("_")[0]
        order = generator(self.seed, "shuffled captions", key).permutation(end - start)
        return start + int(order[row - start])


def require_neutral(index: Index, setting: str) -> None:
    """Refuse a source that has no neutral prompts.

    Args:
        index: the index of the source.
        setting: the setting that needs them, for the error.

    Raises:
        UserError: if the source has no column of neutral prompts.
    """
    if NEUTRAL not in index.extra_names:
        raise UserError(
            f"{setting} needs the neutral prompt of every set, and {index.source} has no column "
            f"{NEUTRAL!r}: generate.py recipe=social writes it with every member, and so may a "
            "list of your own; or leave the setting out"
        )
