"""The exact mixture: which rows of which source are trained on, and which are held out.

The unit is an image-text pair. A plan is a pure function of two indexes, a ratio, a size and a
seed; it is integer arrays throughout, so that ten million rows are planned in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cfaug.data.exact import decimal, half_up
from cfaug.data.keys import among, random_keys, sorted_rows
from cfaug.data.settings import check_ratio
from cfaug.errors import UserError

REAL, COUNTERFACTUAL = 0, 1


class Rows(Protocol):
    """What a plan needs of an index."""

    @property
    def groups(self) -> np.ndarray:
        """Code of each row's group, uint64."""
        ...

    @property
    def sets(self) -> np.ndarray:
        """Number of each row's set."""
        ...

    @property
    def files(self) -> np.ndarray:
        """Number of the file each row lies in."""
        ...


@dataclass(frozen=True)
class Mixture:
    """A plan.

    Attributes:
        train: (source, row) of every training example, int64 (n, 2); source 0 is real, and the real
            ones come first.
        validation: the same for those held out.
        counts: ``real`` + ``counterfactual`` = ``total`` = ``train``; ``validation``; ``dropped``,
            rows that were not drawn but whose group is in train, so that they may go nowhere else.
        sources: the indexes the rows are of.
    """

    train: np.ndarray
    validation: np.ndarray
    counts: Mapping[str, int]
    sources: tuple[Rows | None, Rows | None]


@dataclass(frozen=True)
class _Wanted:
    """How many rows of each source go to train and validation."""

    train: tuple[int, int]
    validation: tuple[int, int]


def largest_size(real: int, counterfactual: int, cf_ratio: float) -> int:
    """Return the largest total at a ratio without repetition.

    >>> largest_size(17410, 34820, 0.6)  # the paper's medium (COCO-CFs, section B.3.1)
    43525
    """
    ratio = decimal(cf_ratio)
    limits = []
    if ratio < 1:
        limits.append(real / (1 - ratio))
    if ratio > 0:
        limits.append(counterfactual / ratio)
    return int(min(limits))


def _wanted(
    available: tuple[int, int], cf_ratio: float, size: int | None, validation: float
) -> _Wanted:
    largest = largest_size(*available, cf_ratio)
    total = largest if size is None else size
    if total > largest or total == 0:
        raise UserError(
            f"data.size={size} at data.cf_ratio={cf_ratio} asks for more than there is: "
            f"{available[REAL]} real and {available[COUNTERFACTUAL]} counterfactual examples make "
            f"at most data.size={largest}"
        )
    ratio = decimal(cf_ratio)
    train = int((1 - decimal(validation)) * total)
    if train == 0:
        raise UserError(
            f"data.size={total} with data.validation={validation} leaves nothing to train on"
        )
    in_train = half_up(ratio * train)
    in_all = half_up(ratio * total)
    held_real, held_cf = (total - in_all) - (train - in_train), in_all - in_train
    return _Wanted((train - in_train, in_train), (max(0, held_real), max(0, held_cf)))


def plan_mixture(
    real: Rows | None,
    counterfactual: Rows | None,
    *,
    cf_ratio: float,
    size: int | None,
    seed: int,
    validation: float = 0.2,
    unedited_only: bool = False,
) -> Mixture:
    """Draw the training and validation rows.

    Groups, which both sources may share, are put in one random order that depends on the seed
    alone. Each source's rows are taken in that order, so whole groups are drawn and only the last
    is cut; a group that gives a row to train gives none to validation. Train counts are exact;
    validation takes what the other groups have, up to its share.

    Args:
        real: index of the real source; not needed at ratio 1.
        counterfactual: index of the counterfactual source; not needed at ratio 0.
        cf_ratio: share of train from ``counterfactual``, in [0, 1].
        size: total before the split; ``None`` is the largest without repetition.
        seed: ``data.seed``.
        validation: share held out, in [0, 1).
        unedited_only: of the counterfactual source, take the first member of each set only.

    Raises:
        UserError: if there are not enough examples (it says how many there are).
    """
    check_ratio(cf_ratio)
    sources = (real, counterfactual)
    keys = [_group_keys(one, seed) for one in sources]
    ordered = [sorted_rows(key) for key in keys]
    if unedited_only and counterfactual is not None:
        sets, rows = np.asarray(counterfactual.sets), ordered[COUNTERFACTUAL]
        first_of_set = np.r_[True, sets[1:] != sets[:-1]]
        ordered[COUNTERFACTUAL] = rows[first_of_set[rows]]
    available = (len(ordered[REAL]), len(ordered[COUNTERFACTUAL]))
    wanted = _wanted(available, cf_ratio, size, validation)
    train, held, dropped = [], [], 0
    for source, other in ((REAL, COUNTERFACTUAL), (COUNTERFACTUAL, REAL)):
        rest = ordered[source][wanted.train[source] :]
        free = rest
        for one in (source, other):
            drawn = keys[one][ordered[one][: wanted.train[one]]]
            free = free[~among(keys[source][free], drawn)]
        dropped += len(rest) - len(free)
        train.append(_pairs(source, ordered[source][: wanted.train[source]]))
        held.append(_pairs(source, free[: wanted.validation[source]]))
    if sum(wanted.validation) and not sum(map(len, held)):
        raise UserError(
            "no group is left for validation: the training split needs a row of every group. "
            "Ask for a smaller data.size, or data.validation=0 with trainer.checkpoint=last"
        )
    counts = {
        "real": len(train[REAL]),
        "counterfactual": len(train[COUNTERFACTUAL]),
        "total": sum(map(len, train)),
        "train": sum(map(len, train)),
        "validation": sum(map(len, held)),
        "dropped": dropped,
    }
    return Mixture(np.concatenate(train), np.concatenate(held), counts, sources)


def _group_keys(rows: Rows | None, seed: int) -> np.ndarray:
    """Give every row the key of its group: sorting by it shuffles whole groups.

    Arms that share a data seed so share their real rows.
    """
    if rows is None:
        return np.empty(0, np.uint64)
    return random_keys(rows.groups, seed, "mixture", "groups")


def _pairs(source: int, rows: np.ndarray) -> np.ndarray:
    found = np.empty((len(rows), 2), np.int64)
    found[:, 0], found[:, 1] = source, rows
    return found
