"""Photos with their reconstruction and their edits, as the rows of an index of joined sets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.types import ORIGINAL, RECONSTRUCTION

if TYPE_CHECKING:
    from cfaug.data.index import Index

EDITED, RANDOM = "edited", "random"
"""Names of the edits of a stress test's main folder, and of edits of random words."""

KIND = "edit_kind"
"""The column of an index with the kind of a member's edit, null if it is not edited."""


@dataclass(frozen=True)
class JoinedSets:
    """One folder of photos, each with its reconstruction and edits.

    Attributes:
        name: the name of its edits in results, such as ``edited`` or ``random``.
        index: the source.
        rows: the images' rows of the source, int64 (images,), set by set.
        photos: the row of each image's photo, for a photo its own row, int64 (images,).
        controls: the row of that photo's reconstruction, -1 if there is none, int64 (images,).
        kinds: the kind of each image's edit, text (images,); ``original`` for a photo.
        control: the kind of a reconstruction.
    """

    name: str
    index: Index
    rows: np.ndarray
    photos: np.ndarray
    controls: np.ndarray
    kinds: np.ndarray
    control: str

    @cached_property
    def is_photo(self) -> np.ndarray:
        """Whether each row is a photo, bool (images,)."""
        return self.rows == self.photos

    @cached_property
    def is_edit(self) -> np.ndarray:
        """Whether each row is an edit, neither photo nor reconstruction, bool (images,)."""
        return ~self.is_photo & (self.kinds != self.control)

    @cached_property
    def has_edit(self) -> np.ndarray:
        """Whether each row belongs to a photo with at least one edit, bool (images,)."""
        return np.isin(self.photos, self.photos[self.is_edit])

    @cached_property
    def counted(self) -> list[str]:
        """``edited`` for images of a photo with an edit, else ``unedited``.

        Photos of folders other than the main one are also ``unedited``, as drops are measured
        against the photos of the main folder.
        """
        counts = self.has_edit & ((self.name == EDITED) | ~self.is_photo)
        found: list[str] = np.where(counts, "edited", "unedited").tolist()
        return found

    @cached_property
    def keys(self) -> list[str]:
        """The key of each row, which identifies a photo across folders."""
        return [self.index.key(int(row)) for row in self.rows]

    @cached_property
    def labels(self) -> list[str]:
        """The class of each row's photo."""
        return [self.index.label(int(row)) or "" for row in self.photos]

    @cached_property
    def parts(self) -> list[str]:
        """The part of the test that each row belongs to."""
        names = np.where(self.is_photo, ORIGINAL, np.where(self.is_edit, self.name, RECONSTRUCTION))
        found: list[str] = names.tolist()
        return found

    def column(self, name: str) -> list[Any]:
        """Return an extra column of the source at ``rows``; all ``None`` where it has none."""
        if name not in self.index.extra_names:
            return [None] * len(self.rows)
        found: list[Any] = self.index.extra(name).take(self.rows).to_pylist()
        return found


def read_joined(name: str, index: Index, rows: np.ndarray | None, control: str) -> JoinedSets:
    """Find in each set the photo, its reconstruction and its edits.

    Args:
        name: the name of its edits in results, such as ``edited`` or ``random``.
        index: the source; the first member of a set that is not edited is its photo.
        rows: the rows to use, of whole sets; ``None`` for all.
        control: the kind of a reconstruction.

    Raises:
        UserError: if no image is edited, a set has no photo or several, or a photo no class.
    """
    rows = np.arange(len(index)) if rows is None else np.sort(rows)
    kinds = _kinds(index)[rows]
    is_photo = kinds == ORIGINAL
    sets, place = np.unique(np.asarray(index.sets)[rows], return_inverse=True)
    several = np.bincount(place, is_photo, len(sets)) != 1
    if several.any():
        first = int(np.flatnonzero(np.isin(place, np.flatnonzero(several)))[0])
        raise UserError(
            f"{index.source}: {int(several.sum())} of {len(sets)} sets do not have exactly one "
            f"photo, such as that of {index.key(int(rows[first]))}: a set should hold a photo and "
            "its edits, as `python generate.py recipe=lance` makes them"
        )
    of_set = np.full(len(sets), -1)
    of_set[place[is_photo]] = rows[is_photo]
    control_of_set = np.full(len(sets), -1)
    is_control = kinds == control
    control_of_set[place[is_control][::-1]] = rows[is_control][::-1]  # the first of several
    found = JoinedSets(name, index, rows, of_set[place], control_of_set[place], kinds, control)
    if not found.is_edit.any():
        raise UserError(
            f"{index.source}: none of its {len(rows)} images is edited, so there is nothing to "
            "compare: name shards in which edits were accepted"
        )
    bare = [row for row in of_set.tolist() if index.label(row) is None]
    if bare:
        raise UserError(
            f"{index.source}: {len(bare)} photos have no class, such as {index.key(bare[0])}; a "
            "classifier is tested on labelled photos"
        )
    return found


def check_same_photos(first: JoinedSets, other: JoinedSets) -> None:
    """Refuse two folders in which one key names photos of different classes.

    Such folders were made from different sources: sources that only number their photos use the
    same keys for different ones.

    Raises:
        UserError: naming the folders, the photo and its classes.
    """
    labels = {
        key: label
        for key, label, is_photo in zip(first.keys, first.labels, first.is_photo, strict=True)
        if is_photo
    }
    for key, label, is_photo in zip(other.keys, other.labels, other.is_photo, strict=True):
        if is_photo and labels.get(key, label) != label:
            raise UserError(
                f"the photo {key} is of the class {labels[key]!r} in {first.index.source}, and of "
                f"{label!r} in {other.index.source}: make both of the same data.source"
            )


def _kinds(index: Index) -> np.ndarray:
    """Return the kind of every row's edit, text (rows,); ``original`` where there is none."""
    if KIND not in index.extra_names:
        return np.full(len(index), ORIGINAL, object)
    kinds = [ORIGINAL if kind is None else str(kind) for kind in index.extra(KIND).to_pylist()]
    return np.array(kinds, object)
