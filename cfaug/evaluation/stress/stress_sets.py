"""Photos with their reconstruction and their edits, as the rows of an index of joined sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.errors import UserError, name_some, say_once
from cfaug.core.types import CLUSTER, ITEM, ORIGINAL, RECONSTRUCTION
from cfaug.data.sources.class_folders import LABEL
from cfaug.evaluation.benchmark import cluster_rows
from cfaug.evaluation.cached_model import image_keys
from cfaug.evaluation.class_mapping import SHOWN

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.evaluation.class_mapping import Answers


EDITED, RANDOM = "edited", "random"
"""Names of the edits of a stress test's main folder, and of edits of random words."""


@dataclass(frozen=True)
class JoinedSets:
    """One folder of photos, each with its reconstruction and edits.

    Attributes:
        name: the name of its edits in results, such as ``edited`` or ``random``.
        rows: the images' rows of the source, int64 (images,), set by set.
        photos: the row of each image's photo, for a photo its own row, int64 (images,).
        controls: the row of that photo's reconstruction, -1 if there is none, int64 (images,).
        kinds: the kind of each image's edit, text (images,); ``original`` for a photo.
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
        return ["edited" if is_edited else "unedited" for is_edited in counts.tolist()]

    @cached_property
    def keys(self) -> list[str]:
        """The key of each row, which identifies a photo across folders."""
        return [self.index.key(int(row)) for row in self.rows]

    @cached_property
    def class_column(self) -> str | None:
        """The extra column of the classes of photos without a label, ``None`` without one."""
        return class_column(self.index, self.photos)

    @cached_property
    def labels(self) -> list[str]:
        """The class of each row's photo."""
        return [label or "" for label in photo_classes(self.index, self.photos)]

    @cached_property
    def parts(self) -> list[str]:
        """The part of the test that each row belongs to."""
        names = np.where(self.is_photo, ORIGINAL, np.where(self.is_edit, self.name, RECONSTRUCTION))
        parts: list[str] = names.tolist()
        return parts

    def column(self, name: str) -> list[Any]:
        """Return an extra column of the source at ``rows``; all ``None`` where it has none."""
        if name not in self.index.extra_names:
            return [None] * len(self.rows)
        values: list[Any] = self.index.extra(name).take(self.rows).to_pylist()
        return values


def read_joined(name: str, index: Index, rows: np.ndarray | None, control: str) -> JoinedSets:
    """Find in each set the photo, its reconstruction and its edits.

    Args:
        name: the name of its edits in results, such as ``edited`` or ``random``.
        index: the source; the first member of a set that is not edited is its photo. In a source
            that does not say which members are edited, such as a list with image_0, image_1, the
            first member of each set is, and the others, of other images, are its edits.
        rows: the rows to use, of whole sets; ``None`` for all.
    """
    rows = np.arange(len(index)) if rows is None else np.sort(rows)
    kinds = np.full(len(rows), ORIGINAL, object)
    if "edit_kind" in index.extra_names:
        listed = index.extra("edit_kind").take(rows).to_pylist()
        kinds[:] = [ORIGINAL if kind is None else str(kind) for kind in listed]
    sets, starts, set_numbers = np.unique(
        np.asarray(index.sets)[rows], return_index=True, return_inverse=True
    )
    several = np.bincount(set_numbers, kinds == ORIGINAL, len(sets)) != 1
    marked = "edit_before" in index.extra_names  # as in our shards, and in edits of one's own
    if several.all() and not marked and _may_begin_with_photos(index, rows, starts):
        say_once(
            f"{index.source} does not say which images are edits: of each set the first image is "
            "taken as the photo, and the others as its edits"
        )
        is_first = np.zeros(len(rows), bool)
        is_first[starts] = True
        kinds = np.where(is_first, ORIGINAL, np.where(kinds == ORIGINAL, EDITED, kinds))
        # A list may have a line for each edit: the photo of several lines counts once.
        keys = [key.hex() for key in image_keys(index, rows[starts])]
        _, first_of, photo_of_set = np.unique(keys, return_index=True, return_inverse=True)
        _check_repeated(index, rows[starts], rows[starts[first_of]][photo_of_set])
        kept = ~is_first
        kept[starts[first_of]] = True
        set_numbers = photo_of_set[set_numbers][kept]
        rows, kinds, sets = rows[kept], kinds[kept], first_of
        several = np.zeros(len(sets), bool)
    if several.any():
        first = int(np.flatnonzero(np.isin(set_numbers, np.flatnonzero(several)))[0])
        raise UserError(
            f"{index.source}: {int(several.sum())} of {len(sets)} sets do not have exactly one "
            f"photo, such as that of {index.key(int(rows[first]))}: a set should hold a photo and "
            "its edits, as `python generate.py recipe=photo_edits` makes them. Edits of your own: "
            "folders original/ and edited/KIND/ with equal names, or a list with columns photo, "
            "edit, label and, where known, kind, before, after; with captions image_0 (the photo), "
            "caption_0, image_1 (an edit), caption_1, ..., label"
        )
    is_photo = kinds == ORIGINAL
    of_set = np.full(len(sets), -1)
    of_set[set_numbers[is_photo]] = rows[is_photo]
    control_of_set = np.full(len(sets), -1)
    is_control = (kinds == control) & ~is_photo
    control_of_set[set_numbers[is_control][::-1]] = rows[is_control][::-1]  # the first of several
    joined = JoinedSets(
        name, index, rows, of_set[set_numbers], control_of_set[set_numbers], kinds, control
    )
    if not joined.is_edit.any():
        raise UserError(
            f"{index.source}: none of its {len(rows)} images is edited, so there is nothing to "
            "compare: name shards in which edits were accepted, or edits of your own: folders "
            "original/ and edited/KIND/ with equal names, or a list of photos and edits "
            "(docs/own_edits.md)"
        )
    classes = photo_classes(index, of_set)
    bare = [row for row, label in zip(of_set.tolist(), classes, strict=True) if label is None]
    if bare:
        raise UserError(
            f"{index.source}: {len(bare)} photos have no class, such as {index.key(bare[0])}; a "
            "classifier is tested on labelled photos: of a list, a column called one of "
            f"{', '.join(LABEL)} has it"
        )
    _warn_of_unchanged(joined)
    return joined


def _may_begin_with_photos(index: Index, rows: np.ndarray, starts: np.ndarray) -> bool:
    """Return whether the first image of each set may be a photo, and the others its edits.

    Sets of one image, and further images of the photo, are captions of a photo, not edits.

    Args:
        starts: the place in ``rows`` of each set's first row.
    """
    images, counts = np.asarray(index.images)[rows], np.diff(np.append(starts, len(rows)))
    shows_photo = images == np.repeat(images[starts], counts)
    return bool((counts > 1).all() and shows_photo.sum() == len(starts))


def _warn_of_unchanged(joined: JoinedSets) -> None:
    """Print a warning of edits that are their photo, byte for byte."""
    index = joined.index
    edits, photos = image_keys(index, joined.rows), image_keys(index, joined.photos)
    entries = zip(joined.rows.tolist(), edits, photos, joined.is_edit, strict=True)
    unchanged = [
        index.key(row) for row, edit, photo, is_edit in entries if is_edit and edit == photo
    ]
    if unchanged:
        say_once(
            f"warning: {index.source}: {len(unchanged):,} edits are their photo, byte for byte "
            f"({name_some(unchanged)}): nothing was edited, and they count as edits that cost "
            "nothing"
        )


def _check_repeated(index: Index, photos: np.ndarray, firsts: np.ndarray) -> None:
    """Refuse photos that are of another class in another line of a list.

    Args:
        photos: the row of the photo of each line, and ``firsts`` that of the first line with the
            same image, integers (lines,).
    """
    classes = photo_classes(index, photos), photo_classes(index, firsts)
    for row, label, other in zip(photos.tolist(), *classes, strict=True):
        if label != other:
            raise UserError(
                f"{index.source}: the photo {index.image_name(row)} is of the class {label!r} in "
                f"one line and {other!r} in another: which is right?"
            )


def class_column(index: Index, rows: np.ndarray) -> str | None:
    """Return the extra column with the classes of photos; ``None`` if all have a label."""
    if all(index.label(int(row)) is not None for row in rows):
        return None
    return next((name for name in index.extra_names if name.lower() in LABEL), None)


def photo_classes(index: Index, rows: np.ndarray) -> list[str | None]:
    """Return the class of each photo: its label, or the value of a list's column of classes."""
    classes = [index.label(int(row)) for row in rows]
    if (column := class_column(index, rows)) is None:
        return classes
    values = index.extra(column).take(rows).to_pylist()
    return [
        None if label is None and value in (None, "") else label or str(value)
        for label, value in zip(classes, values, strict=True)
    ]


def check_same_photos(first: JoinedSets, other: JoinedSets) -> None:
    """Refuse two folders in which one key names photos of different classes.

    Such folders were made from different sources: sources that only number their photos use the
    same keys for different ones.
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


# The items of a stress test: one row per image; see ``cfaug.evaluation.stress.stress``.

PASSED_ON = {"prompt": "prompt", "f": "p", "severity": "severity"}
"""Columns that are copied from a source if it has them: the perturber's prompt, the share of
denoising steps with the photo's own self-attention, ``p`` of ``Draw``, and the strength of edits
that were made elsewhere."""


def item_columns(sets: JoinedSets, answers: Answers, shown: np.ndarray) -> dict[str, Any]:
    """Return the columns of the items of one folder.

    Args:
        answers: the classifier's answers to all images of the folder, in the order of its rows.
        shown: whether each image is an item, bool (images,).
    """
    index, rows, keys = sets.index, sets.rows, sets.keys
    photo = np.searchsorted(rows, sets.photos)
    control = np.where(sets.controls < 0, -1, np.searchsorted(rows, sets.controls))
    before, after = sets.column("edit_before"), sets.column("edit_after")
    texts = [index.text(int(row)) for row in rows]
    columns: dict[str, Any] = {
        ITEM: item_names(sets),
        CLUSTER: cluster_rows(index, rows),
        "set": sets.parts,
        "photo": [f"{ORIGINAL}/{keys[at]}" for at in photo],
        "photos": sets.counted,
        "kind": sets.kinds,
        "class": sets.labels,
        "before": ["" if word is None else str(word) for word in before],
        "after": ["" if word is None else str(word) for word in after],
        "text_before": [texts[at] for at in photo],
        "text": texts,
        "source": [index.source] * len(rows),
        "key": [key.rpartition("_")[0] for key in keys],
        "member": np.array([int(key.rpartition("_")[2]) for key in keys]),
        "image": [digest.hex() for digest in image_keys(index, rows)],
        "class_name": answers.class_name,
        "class_number": answers.number,
        **answers.hits,
        "rank": answers.rank,
        "p": answers.p,
        # NaN where there is nothing to compare with: a photo, a missing reconstruction.
        "p_photo": np.where(sets.is_photo, np.nan, answers.p[photo]),
        "p_reconstruction": np.where(sets.is_photo | (control < 0), np.nan, answers.p[control]),
    }
    columns["p_drop"] = columns["p_photo"] - answers.p
    columns["delta_p"] = np.abs(columns["p_drop"])
    for name, hits in answers.hits.items():
        k, of_photo = name.removeprefix("acc"), np.where(sets.is_photo, np.nan, hits[photo])
        columns[f"photo_{name}"] = of_photo
        columns[f"paired_drop{k}"] = of_photo - hits
        usual = np.where(sets.is_edit & (control >= 0), hits[control], np.nan)
        columns[f"net_drop{k}"] = usual - hits
    for n in range(min(SHOWN, answers.top.shape[1])):
        columns[f"top{n + 1}"] = answers.top[:, n]
        columns[f"top{n + 1}_p"] = answers.top_p[:, n]
    for name, column in PASSED_ON.items():
        if column in index.extra_names:
            columns[name] = sets.column(column)
    if "severity" in columns:
        levels = columns["severity"]
        columns["severity"] = [None if level is None else str(level) for level in levels]
    return {name: choose(values, shown) for name, values in columns.items()}


def item_names(sets: JoinedSets) -> list[str]:
    """Return the name of each row's item."""
    return [f"{part}/{key}" for part, key in zip(sets.parts, sets.keys, strict=True)]


def choose(values: Any, shown: np.ndarray) -> Any:
    """Return the values of a column that are shown."""
    if isinstance(values, np.ndarray):
        return values[shown]
    return [value for value, chosen in zip(values, shown, strict=True) if chosen]


def concatenate_columns(pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Concatenate the columns of items; ``None`` where a piece lacks a column."""
    names = dict.fromkeys(name for piece in pieces for name in piece)
    columns: dict[str, Any] = {}
    for name in names:
        values = [piece.get(name, [None] * len(piece[ITEM])) for piece in pieces]
        if all(isinstance(column, np.ndarray) for column in values):
            columns[name] = np.concatenate(values)
        else:
            columns[name] = [value for column in values for value in column]
    return columns
