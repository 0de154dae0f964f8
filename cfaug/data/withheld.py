"""A share of the counterfactual sets kept out of training and validation, as a test set.

The COCO-Counterfactuals paper withholds 30 % of the pairs (section A.1, Table 5): 5,223 pairs of
17,410, so that 56 % of all rows train and 14 % validate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfaug.data.exact import decimal, half_up
from cfaug.data.keys import among, random_keys, sorted_rows
from cfaug.data.mixture import Rows
from cfaug.errors import UserError


@dataclass(frozen=True)
class Withheld:
    """What was kept out.

    Attributes:
        rows: of the test set, int64, ascending; whole sets.
        groups: of these rows, uint64, ascending, each once: no row of them may be trained on.
    """

    rows: np.ndarray
    groups: np.ndarray

    def allowed(self, groups: np.ndarray) -> np.ndarray:
        """Say which rows, of any source, may be trained on: those of other groups, bool (n,)."""
        return ~among(np.asarray(groups), self.groups)


def withhold(source: Rows, share: float) -> Withheld:
    """Choose ``share`` of the sets: the same for every seed, so that results can be compared.

    Sets are taken group by group in one random order, and exactly ``share`` of them, rounded half
    up; of the group at the end some sets may be neither trained on nor tested.

    Args:
        source: index of the counterfactual source.
        share: of its sets, in (0, 1).

    Raises:
        UserError: if that is no set, or all of them.
    """
    groups, sets = np.asarray(source.groups), np.asarray(source.sets)
    starts = np.flatnonzero(np.r_[True, sets[1:] != sets[:-1]])
    wanted = half_up(decimal(share) * len(starts))
    if not 0 < wanted < len(starts):
        raise UserError(
            f"data.withheld={share} of {len(starts)} counterfactual sets is {wanted}: "
            "choose a share that leaves some on either side"
        )
    order = sorted_rows(random_keys(groups[starts], 0, "withheld"))
    chosen = np.zeros(len(starts), bool)
    chosen[order[:wanted]] = True
    lengths = np.diff(np.r_[starts, len(sets)])
    rows = np.flatnonzero(np.repeat(chosen, lengths))
    return Withheld(rows, np.unique(groups[rows]))
