"""The named data sets of the COCO-Counterfactuals paper (section B.3.1), as ``data.plan``.

Sizes are computed from those of the sources. With the paper's, 17,410 real examples, 34,820
counterfactual ones in pairs, 25,482 of them validated by people:

    real             all real                                  17,410   13,928 of them train
    base             1/2 of the real, 1/4 of the pairs         17,411   13,928
    medium           all real, 3/4 of the counterfactual rows  43,525   34,820
    all              everything                                52,230   41,784
    human_validated  all real, all validated rows (A.4)        42,892   34,313

``data.split=random`` splits as the paper did: single rows of the whole, 80 % to train. A caption's
counterfactual partner may then be validated on, and the counterfactual share of train is random
(the paper's 6,939, 20,894 and 27,853 are not 0.8 times the whole's). ``data.split=group``, the
default, gives train exactly that many rows, with the exact share of each source, and keeps groups
whole. Rows are drawn group by group; only the last group is cut, and its remaining rows are neither
trained nor validated on. So train is exact, and validation may be a few rows short.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.validation import check_fields
from cfaug.data.mixture.pool import Pool, Wanted, assemble, divide, pair_rows, share_out
from cfaug.data.mixture.records import (
    COUNTERFACTUAL,
    REAL,
    Mixture,
    half_up,
    random_keys,
    sort_rows,
)


@dataclass(frozen=True)
class Shares:
    """The share of each source in a data set; halves are rounded up.

    Attributes:
        of_sets: whether ``counterfactual`` is a share of the sets, which are taken whole.
    """

    real: Fraction
    counterfactual: Fraction
    of_sets: bool = False


WHOLE, NONE = Fraction(1), Fraction(0)
DATA_SETS = {
    "real": Shares(WHOLE, NONE),
    "base": Shares(Fraction(1, 2), Fraction(1, 4), of_sets=True),
    "medium": Shares(WHOLE, Fraction(3, 4)),
    "all": Shares(WHOLE, WHOLE),
    "human_validated": Shares(WHOLE, WHOLE),
}


@dataclass(frozen=True)
class PaperMixture:
    """One of the paper's data sets: a ``cfaug.data.mixture.pool.MixturePlan``.

    Args:
        name: the name of the data set; ``human_validated`` needs ``data.human_labels``.

    Raises:
        UserError: for a name that is not in the paper.
    """

    name: Literal["real", "base", "medium", "all", "human_validated"]

    def __post_init__(self) -> None:
        check_fields(self, "data.plan")

    @property
    def shares(self) -> Shares:
        """Its shares of both sources."""
        return DATA_SETS[self.name]

    @property
    def sources(self) -> tuple[bool, bool]:
        return self.shares.real > 0, self.shares.counterfactual > 0

    @property
    def needs_labels(self) -> bool:
        """Whether it uses only counterfactual images that people matched to their caption."""
        return self.name == "human_validated"

    def wanted(self, pool: Pool, validation: float) -> Wanted:
        """Return the number of training and validation rows of each source, at its share."""
        real, counterfactual = map(len, self._chosen(pool))
        total = real + counterfactual
        if not total:
            raise UserError(f"data.plan={self.name}: the sources hold nothing that it could draw")
        return share_out(total, counterfactual, Fraction(counterfactual, total), validation)

    def draw(self, pool: Pool, validation: float) -> Mixture:
        """Draw the data set, keeping groups whole or splitting rows at random, as the pool says."""
        wanted = self.wanted(pool, validation)
        if pool.split == "group":
            return divide(pool, wanted)
        chosen = self._chosen(pool)
        rows = np.concatenate(
            [pair_rows(source, chosen[source]) for source in (REAL, COUNTERFACTUAL)]
        )
        # The split has other keys than the draw: otherwise rows drawn first would always be for
        # training.
        keys = [
            random_keys(chosen[source].astype(np.uint64), pool.seed, "mixture", "split", source)
            for source in (REAL, COUNTERFACTUAL)
        ]
        order = np.argsort(np.concatenate(keys), kind="stable")
        train, held = np.split(rows[order], [sum(wanted.train)])
        return assemble(pool, _by_source(train), _by_source(held), dropped=0)

    def _chosen(self, pool: Pool) -> tuple[np.ndarray, np.ndarray]:
        """Return the drawn rows of both sources before the split, int64, in drawn order."""
        real, counterfactual = pool.rows
        real = real[: half_up(self.shares.real * len(real))]
        share, source = self.shares.counterfactual, pool.sources[COUNTERFACTUAL]
        if source is None or not self.shares.of_sets:
            return real, counterfactual[: half_up(share * len(counterfactual))]
        if pool.split == "random":
            # A random order that keeps the sets whole.
            counterfactual = np.sort(counterfactual)
            sets = np.asarray(source.sets)[counterfactual].astype(np.uint64)
            keys = random_keys(sets, pool.seed, "mixture", "sets")
            counterfactual = counterfactual[sort_rows(keys)]
        sets = np.asarray(source.sets)[counterfactual]
        _, first, set_of_row = np.unique(sets, return_index=True, return_inverse=True)
        place_of_set = np.argsort(np.argsort(first))
        return real, counterfactual[place_of_set[set_of_row] < half_up(share * len(first))]


def _by_source(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[rows[:, 0] == source] for source in (REAL, COUNTERFACTUAL)]
