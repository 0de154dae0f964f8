"""The records of a plan: the rows of two sources, and the choice among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

REAL, COUNTERFACTUAL = 0, 1

Split = Literal["group", "random"]
Eligible = tuple[np.ndarray | None, np.ndarray | None]
"""Masks of the rows of each source that may be drawn, bool (rows,); ``None`` for all."""


class PlanRows(Protocol):
    """The parts of an index that a plan needs."""

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
        """Code of the bytes of each row's image, uint64; equal codes go to the same side."""
        ...

    @property
    def files(self) -> np.ndarray:
        """Number of each row's file."""
        ...


class Imaged(PlanRows, Protocol):
    """Rows with the number of the image that each of them shows."""

    @property
    def images(self) -> np.ndarray:
        """Number of each row's image; equal for rows that share an image."""
        ...

    @property
    def source(self) -> str:
        """The indexed source, as the user named it."""
        ...


@dataclass(frozen=True)
class Join:
    """The real rows that are originals of counterfactuals.

    Attributes:
        rows: whether each row of the real source is an original, bool (rows,).
        missed: (key, caption) of every unedited member without a real row, in order.
    """

    rows: np.ndarray
    missed: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class HeldOutTest:
    """The test set of an experiment, on which no arm trains or validates.

    Attributes:
        source: the index that contains the test set.
        rows: the rows of the test set in that index, int64, ascending.
        images: number of different images that these rows show.
        not_drawn: number of rows of the real, the counterfactual and the control's source that may
            not be drawn because they belong to the same groups, without the test set itself.
        copies: number of ``not_drawn`` rows whose groups have other names but show one of its
            images.
    """

    source: Imaged
    rows: np.ndarray
    images: int
    not_drawn: tuple[int, ...]
    copies: int


@dataclass(frozen=True)
class Mixture:
    """A plan: the examples to train and validate on.

    Attributes:
        train: (source, row) of every training example, int64 (n, 2); source 0 is real, and real
            examples come first.
        validation: (source, row) of every validation example, int64 (n, 2).
        counts: ``real`` + ``counterfactual`` = ``total`` = ``train``; ``validation``; ``dropped``,
            rows that were not drawn but whose group is in train, so that they cannot be used
            elsewhere; ``held_out`` and ``held_out_images``, pairs and images of the test set, if
            there is one; ``unchanged``, counterfactual sets of one caption, which are not used, if
            there are any.
        sources: the indexes of the rows.
        join: the choice of real captions that were edited; ``None`` if all were eligible.
        size: the total before the split, if drawn by ratio; otherwise ``None``.
        held_out: the test set that was kept out beforehand; ``None`` without one.
        visits: number of earlier places in ``train`` that show the same example, int8 (n,), if
            examples are drawn several times an epoch; ``None`` if each is drawn once.
    """

    train: np.ndarray
    validation: np.ndarray
    counts: Mapping[str, int]
    sources: tuple[PlanRows | None, PlanRows | None]
    join: Join | None = None
    size: int | None = None
    held_out: HeldOutTest | None = None
    visits: np.ndarray | None = None
