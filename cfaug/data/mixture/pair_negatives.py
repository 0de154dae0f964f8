"""The counterfactual of a pair, as a wrong answer for its original."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cfaug.data.mixture.hard_negatives import find_counterfactual

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.settings import Negatives


@dataclass(frozen=True)
class PairNegatives:
    """The parts of pairs' counterfactuals that are wrong answers for the rows of their originals.

    Attributes:
        index: the index of the pairs.
        kind: the parts in use: ``text`` for captions, ``image`` for images; others use none.
    """

    index: Index
    kind: Negatives

    def row(self, original: int) -> int:
        """Return the row of the counterfactual of an original."""
        return find_counterfactual(self.index, original)

    def text(self, original: int) -> str:
        """Return the caption of the counterfactual of an original."""
        return self.index.text(self.row(original))
