"""Rows kept out of training and validation as a test set, by their groups: the same for every seed.

``data.holdout`` keeps out real photos, on which the arms of an experiment on the user's data are
compared; ``data.counterfactual_holdout`` keeps out counterfactual sets, as the COCO-Counterfactuals
paper does: 30 % of the pairs (section A.1, Table 5), 5,223 of 17,410, so that 56 % of all rows
train and 14 % validate. Both take groups in the same random order, so that together they keep out
as few as possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.data.mixture.keys import is_among, random_keys, sort_rows
from cfaug.data.mixture.rational import decimal, half_up
from cfaug.data.mixture.records import PlanRows

if TYPE_CHECKING:
    pass

LEAST_HELD_OUT = 2
"""The least number of groups that are held out: retrieval from a single image is not a test."""


@dataclass(frozen=True)
class Withheld:
    """The rows that are kept out as a test set.

    Attributes:
        rows: the rows of the test set, int64, ascending.
        groups: the groups of these rows, uint64, ascending, each once; no row of these groups may
            be trained on.
    """

    rows: np.ndarray
    groups: np.ndarray

    def find_allowed(self, groups: np.ndarray) -> np.ndarray:
        """Return which rows of any source may be trained on: those of other groups, bool (n,)."""
        return ~is_among(np.asarray(groups), self.groups)


def _places(groups: np.ndarray) -> np.ndarray:
    """Return the place of each group in the random order, a 64-bit key."""
    return random_keys(groups, 0, "withheld")


def hold_out(source: PlanRows, share: float) -> Withheld:
    """Choose about ``share`` of the groups, each independently of all other rows.

    A group is held out if its key is among the lowest ``share`` of all keys, so that a photo stays
    on its side when others are added, removed or left out by a setting. If there are few groups,
    the two lowest are held out, because a test needs two.

    Args:
        source: the index of the real source, or of the counterfactual one if it is the only source.
        share: the share of groups to hold out, in (0, 1).

    Raises:
        UserError: if nothing is left to train on.
    """
    groups = np.asarray(source.groups)
    places = _places(groups)
    known = np.unique(places)
    last = max(int(decimal(share) * 2**64), int(known[:LEAST_HELD_OUT].max()))
    chosen = places <= np.uint64(min(last, 2**64 - 1))
    if chosen.all():
        raise UserError(
            f"data.holdout={share} of {len(known)} groups (photos with all that was made of them) "
            "leaves nothing to train on: choose a smaller share, or data.holdout=0 and a test set "
            "of your own with benchmark=retrieval benchmark.data=FOLDER"
        )
    return Withheld(np.flatnonzero(chosen), np.unique(groups[chosen]))


def withhold(source: PlanRows, share: float) -> Withheld:
    """Choose ``share`` of the sets, the same for every seed, so that results can be compared.

    Sets are taken group by group in one random order, and exactly ``share`` of them, rounded half
    up; some sets of the last group may be neither trained on nor tested.

    Args:
        source: the index of the counterfactual source.
        share: the share of sets to hold out, in (0, 1).

    Raises:
        UserError: if that is less than one set, or all of them.
    """
    groups, sets = np.asarray(source.groups), np.asarray(source.sets)
    starts = np.flatnonzero(np.r_[True, sets[1:] != sets[:-1]])
    wanted = half_up(decimal(share) * len(starts))
    if not 0 < wanted < len(starts):
        raise UserError(
            f"data.counterfactual_holdout={share} of {len(starts)} counterfactual sets is "
            f"{wanted}: choose a share that leaves some on either side"
        )
    order = sort_rows(_places(groups[starts]))
    chosen = np.zeros(len(starts), bool)
    chosen[order[:wanted]] = True
    lengths = np.diff(np.r_[starts, len(sets)])
    rows = np.flatnonzero(np.repeat(chosen, lengths))
    return Withheld(rows, np.unique(groups[rows]))
