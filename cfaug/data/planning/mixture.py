"""The exact mixture: which rows of which source are trained on, and which are held out.

The unit is an image-text pair. A plan is a pure function of two indexes, a ratio, a size and a
seed; it is integer arrays throughout, so that ten million rows are planned in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from cfaug.data.planning.duplicates import join_groups
from cfaug.data.planning.keys import is_among, random_keys, sort_rows
from cfaug.data.planning.rational import decimal, half_up
from cfaug.data.planning.settings import check_ratio
from cfaug.errors import UserError

if TYPE_CHECKING:
    from cfaug.data.planning.caption_matching import Join
    from cfaug.data.planning.holdout import HeldOut

REAL, COUNTERFACTUAL = 0, 1

Split = Literal["group", "random"]
Eligible = tuple[np.ndarray | None, np.ndarray | None]
"""Of each source, which rows may be drawn, bool (rows,); ``None`` is all."""


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
    def contents(self) -> np.ndarray:
        """Code of each row's image by its bytes, uint64; two rows with one go to one side."""
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
            rows that were not drawn but whose group is in train, so that they may go nowhere else;
            ``held_out`` and ``held_out_images``, pairs and images of the test set, where one is.
        sources: the indexes the rows are of.
        join: how real captions were chosen, where they were.
        size: the total before the split, where it was drawn by ratio.
        held_out: what was kept out beforehand as a test set, where something was.
    """

    train: np.ndarray
    validation: np.ndarray
    counts: Mapping[str, int]
    sources: tuple[Rows | None, Rows | None]
    join: Join | None = None
    size: int | None = None
    held_out: HeldOut | None = None


@dataclass(frozen=True)
class Wanted:
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


@dataclass(frozen=True)
class Pool:
    """The rows that a plan may draw, in the random order in which it draws them.

    Attributes:
        sources: the indexes.
        keys: of every row of each source, uint64; what has one key goes to one side of the split.
        rows: of each source, int64: those that may be drawn, in the order of their keys.
    """

    sources: tuple[Rows | None, Rows | None]
    keys: tuple[np.ndarray, np.ndarray]
    rows: tuple[np.ndarray, np.ndarray]

    @property
    def available(self) -> tuple[int, int]:
        """How many rows there are of either source."""
        return len(self.rows[REAL]), len(self.rows[COUNTERFACTUAL])


def make_pool(
    real: Rows | None,
    counterfactual: Rows | None,
    *,
    seed: int,
    split: Split = "group",
    eligible: Eligible = (None, None),
) -> Pool:
    """Put rows in a random order that depends on the seed and on their groups alone.

    Args:
        real: index of the real source, where one is needed.
        counterfactual: index of the counterfactual source, where one is needed.
        seed: ``data.seed``.
        split: ``group`` keeps groups whole, which both sources may share, and what shows one image
            together; ``random`` shuffles single rows.
        eligible: of each source, which rows may be drawn, bool (rows,); ``None`` is all.
    """
    sources = (real, counterfactual)
    keys, rows = [], []
    # The stream is not named after the source: groups that both share have one place, and arms
    # that share a data seed share their real rows.
    if split == "group":
        every = [random_keys(groups, seed, "mixture", "groups") for groups in join_groups(sources)]
    else:
        every = [_row_keys(one, source, seed) for source, one in enumerate(sources)]
    for source in range(len(sources)):
        keys.append(every[source])
        ordered, mask = sort_rows(keys[-1]), eligible[source]
        rows.append(ordered if mask is None else ordered[mask[ordered]])
    return Pool(sources, (keys[REAL], keys[COUNTERFACTUAL]), (rows[REAL], rows[COUNTERFACTUAL]))


def _row_keys(rows: Rows | None, source: int, seed: int) -> np.ndarray:
    count = 0 if rows is None else len(rows.groups)
    return random_keys(np.arange(count), seed, "mixture", "rows", source)


def choose_total(available: tuple[int, int], cf_ratio: float, size: int | None) -> int:
    """Return the total of a mixture by ratio, before the split.

    Raises:
        UserError: if there are not enough examples (it says how many there are).
    """
    largest = largest_size(*available, cf_ratio)
    total = largest if size is None else size
    if total > largest or total == 0:
        raise UserError(
            f"data.size={size} at data.cf_ratio={cf_ratio} asks for more than there is: "
            f"{available[REAL]} real and {available[COUNTERFACTUAL]} counterfactual examples make "
            f"at most data.size={largest}"
        )
    return total


def share_out(total: int, counterfactual: int, ratio: Fraction, validation: float) -> Wanted:
    """Divide a total between train, exactly its floor, and validation, each at the same ratio.

    Args:
        total: examples before the split.
        counterfactual: how many of them are.
        ratio: the share that is meant by that.
        validation: share held out, in [0, 1).

    Raises:
        UserError: if nothing is left to train on.
    """
    train = int((1 - decimal(validation)) * total)
    if train == 0:
        raise UserError(
            f"data.size={total} with data.validation={validation} leaves nothing to train on"
        )
    in_train = half_up(ratio * train)
    held_real = (total - counterfactual) - (train - in_train)
    return Wanted(
        (train - in_train, in_train), (max(0, held_real), max(0, counterfactual - in_train))
    )


def divide(pool: Pool, wanted: Wanted) -> Mixture:
    """Draw train, then validation from what shares no key with it.

    Each source's rows are taken in their order, so that only the last group is cut; train is exact,
    and validation takes what the other groups have, up to its share.

    Raises:
        UserError: if a validation split is asked for and no group is left for it.
    """
    train, held, dropped = [], [], 0
    for source in (REAL, COUNTERFACTUAL):
        drawn, rest = np.split(pool.rows[source], [wanted.train[source]])
        free = rest
        for one in (REAL, COUNTERFACTUAL):
            taken = pool.keys[one][pool.rows[one][: wanted.train[one]]]
            free = free[~is_among(pool.keys[source][free], taken)]
        dropped += len(rest) - len(free)
        train.append(pair_rows(source, drawn))
        held.append(pair_rows(source, free[: wanted.validation[source]]))
    if sum(wanted.validation) and not sum(map(len, held)):
        raise UserError(
            "no group is left for validation: the training split needs a row of every group. "
            "Ask for a smaller data.size, or data.validation=0 with trainer.checkpoint=last"
        )
    return assemble(pool, train, held, dropped)


def assemble(
    pool: Pool, train: Sequence[np.ndarray], held: Sequence[np.ndarray], dropped: int
) -> Mixture:
    """Count what was drawn of either source."""
    counts = {
        "real": len(train[REAL]),
        "counterfactual": len(train[COUNTERFACTUAL]),
        "total": sum(map(len, train)),
        "train": sum(map(len, train)),
        "validation": sum(map(len, held)),
        "dropped": dropped,
    }
    return Mixture(np.concatenate(train), np.concatenate(held), counts, pool.sources)


def plan_mixture(
    real: Rows | None,
    counterfactual: Rows | None,
    *,
    cf_ratio: float,
    size: int | None,
    seed: int,
    validation: float = 0.2,
    unedited_only: bool = False,
    split: Split = "group",
    eligible: Eligible = (None, None),
) -> Mixture:
    """Draw the training and validation rows of a mixture by ratio.

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
        split: ``random`` splits single rows instead of groups.
        eligible: as ``make_pool`` takes it.

    Raises:
        UserError: if there are not enough examples (it says how many there are).
    """
    check_ratio(cf_ratio)
    if unedited_only and counterfactual is not None:
        first = first_members(counterfactual)
        mask = eligible[COUNTERFACTUAL]
        eligible = (eligible[REAL], first if mask is None else first & mask)
    pool = make_pool(real, counterfactual, seed=seed, split=split, eligible=eligible)
    total, ratio = choose_total(pool.available, cf_ratio, size), decimal(cf_ratio)
    wanted = share_out(total, half_up(ratio * total), ratio, validation)
    return replace(divide(pool, wanted), size=total)


def first_members(source: Rows) -> np.ndarray:
    """Say which rows are the first of their set, bool (rows,)."""
    sets = np.asarray(source.sets)
    return np.r_[True, sets[1:] != sets[:-1]]


def pair_rows(source: int, rows: np.ndarray) -> np.ndarray:
    """Return (source, row) of each row, int64 (n, 2)."""
    found = np.empty((len(rows), 2), np.int64)
    found[:, 0], found[:, 1] = source, rows
    return found
