"""The rows of a source that are edits, and the sets that an editor left unchanged.

An editor that changes only captions writes a set for every caption, with the same text twice if it
found nothing to change: such a set is never a counterfactual.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cfaug.core.errors import UserError
from cfaug.data.mixture.records import Imaged

if TYPE_CHECKING:
    import pyarrow as pa

EDIT_KIND = "edit_kind"
"""The column of the kind of a row's edit; null for an unedited row."""


class SaysEdits(Imaged, Protocol):
    """Rows that may say how they were edited."""

    @property
    def extra_names(self) -> Sequence[str]:
        """The names of the extra columns."""
        ...

    def extra(self, name: str) -> pa.ChunkedArray:
        """Return an extra column, (rows,)."""
        ...


def find_edited(index: SaysEdits) -> np.ndarray:
    """Return which rows are edits, bool (rows,).

    Raises:
        UserError: if the source lacks the column ``edit_kind``.
    """
    if EDIT_KIND not in index.extra_names:
        raise UserError(
            f"data.counterfactual_members=edited needs a source that says which members are edits, "
            f"and {index.source} has no column {EDIT_KIND!r}: shards of generate.py have it; or "
            "choose all or unedited"
        )
    return np.asarray(index.extra(EDIT_KIND).is_valid())


def find_unchanged(index: SaysEdits) -> np.ndarray | None:
    """Return which rows belong to sets of one image and several unedited captions.

    Returns:
        bool (rows,); ``None`` without such rows, as in a source without a column of edits.
    """
    if EDIT_KIND not in index.extra_names or not len(index.sets):
        return None
    sets, images = np.asarray(index.sets), np.asarray(index.images)
    starts = np.flatnonzero(np.r_[True, sets[1:] != sets[:-1]])
    sizes = np.diff(starts, append=len(sets))
    edited = np.logical_or.reduceat(find_edited(index), starts)
    one_image = np.minimum.reduceat(images, starts) == np.maximum.reduceat(images, starts)
    unchanged = (sizes > 1) & one_image & ~edited
    return np.repeat(unchanged, sizes) if unchanged.any() else None


def holds_counterfactuals(index: SaysEdits) -> bool:
    """Return whether a source has a set of several images, or an edited member."""
    if EDIT_KIND in index.extra_names and find_edited(index).any():
        return True
    sets, images = np.asarray(index.sets), np.asarray(index.images)
    return bool(((sets[1:] == sets[:-1]) & (images[1:] != images[:-1])).any())


def count_unchanged(index: SaysEdits) -> int:
    """Return the number of sets that ``find_unchanged`` finds."""
    rows = find_unchanged(index)
    return 0 if rows is None else len(np.unique(np.asarray(index.sets)[rows]))
