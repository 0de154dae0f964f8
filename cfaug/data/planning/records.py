"""What a plan is made of: rows of two sources, and which of them are trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

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


class Imaged(Rows, Protocol):
    """Rows that also say which image each of them shows."""

    @property
    def images(self) -> np.ndarray:
        """Number of each row's image; rows that share an image share it."""
        ...

    @property
    def source(self) -> str:
        """What was indexed, as the user named it."""
        ...


@dataclass(frozen=True)
class Join:
    """Which real rows are the originals of counterfactuals.

    Attributes:
        rows: of the real source, bool (rows,).
        missed: (key, caption) of every unedited member that no real row has, in order.
    """

    rows: np.ndarray
    missed: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class HeldOut:
    """The test set of an experiment: what no arm trains or validates on.

    Attributes:
        source: index it is a part of.
        rows: of that index, int64, ascending.
        images: how many different images these rows show.
        not_drawn: rows of the real, the counterfactual and the control's source that may not be
            drawn because they are of the same groups; the test set itself aside.
        copies: how many of ``not_drawn`` are of other groups by name, and show one of its images.
    """

    source: Imaged
    rows: np.ndarray
    images: int
    not_drawn: tuple[int, ...]
    copies: int


@dataclass(frozen=True)
class Mixture:
    """A plan.

    Attributes:
        train: (source, row) of every training example, int64 (n, 2); source 0 is real, and the real
            ones come first.
        validation: the same for those held out.
        counts: ``real`` + ``counterfactual`` = ``total`` = ``train``; ``validation``; ``dropped``,
            rows that were not drawn but whose group is in train, so that they may go nowhere else;
            ``held_out`` and ``held_out_images``, pairs and images of the test set, where one is;
            ``unchanged``, counterfactual sets of one caption, which count for nothing, where there
            are some.
        sources: the indexes the rows are of.
        join: how real captions were chosen, where they were.
        size: the total before the split, where it was drawn by ratio.
        held_out: what was kept out beforehand as a test set, where something was.
        visits: of each training example, how many places before it in ``train`` show the same one,
            int8 (n,), where examples are drawn several times an epoch; ``None``: each is once.
    """

    train: np.ndarray
    validation: np.ndarray
    counts: Mapping[str, int]
    sources: tuple[Rows | None, Rows | None]
    join: Join | None = None
    size: int | None = None
    held_out: HeldOut | None = None
    visits: np.ndarray | None = None
