"""Images that a run was trained on and a test set shows again: equal files, and photos of MS-COCO.

An equal file is found by the digest of its bytes, whatever it is called and wherever it lies; one
that was encoded anew is not. Of MS-COCO the photo itself is found. COCO-Counterfactuals is made of
captions of val2017; the 5,000 images of the Karpathy test split are of val2014, and about 12 % of
them are in val2017 as well. Sources name the photo by its COCO id: as the group of a row (COCO,
Karpathy, COCO-Counterfactuals, anything generated from them), or in the name of the image's file
(``COCO_val2014_000000391895.jpg``, ``000000391895.jpg``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Protocol

import numpy as np

from cfaug.data.index.table import group_code
from cfaug.data.planning.keys import is_among

LARGEST_ID = 581_929
"""The largest image id of COCO 2014 and 2017."""

COCO_NAME = re.compile(r"(?:COCO_(?:train|val|test)\d{4}_)?(\d{12})")
NAMED = 3
"""Ids that a message names."""


class Photos(Protocol):
    """What is needed of an index."""

    @property
    def groups(self) -> np.ndarray:
        """Code of each row's group, uint64."""
        ...

    @property
    def images(self) -> np.ndarray:
        """Number of each row's image."""
        ...

    @property
    def contents(self) -> np.ndarray:
        """Code of each row's image by its bytes, uint64."""
        ...

    @property
    def files(self) -> np.ndarray:
        """Number of the file each row's image lies in."""
        ...

    def file_name(self, row: int) -> str:
        """Return the path of the file a row's image lies in."""
        ...


@dataclass(frozen=True)
class Leaks:
    """What a test set shares with the rows a run was trained on.

    Attributes:
        rows: of the test source, int64 ascending, whose image or COCO photo was trained on.
        ids: COCO ids of the photos that were trained on, int64 ascending.
        images: how many images of the test set these rows show.
        equal: how many of these were trained on byte for byte; the others are other copies of a
            COCO photo, or its counterfactuals.
        checked: how many of the test set's images have a COCO id; of the others only equal bytes
            are found.
        total: how many images the test set has.
    """

    rows: np.ndarray
    ids: np.ndarray
    images: int
    equal: int
    checked: int
    total: int

    def __str__(self) -> str:
        """Say it in one line; empty where nothing was found."""
        if not self.images:
            return ""
        named = ", ".join(map(str, self.ids[:NAMED]))
        more = ", ..." if len(self.ids) > NAMED else ""
        ids = f" (COCO ids {named}{more})" if self.images > self.equal else ""
        return describe_leak(self.images, self.total, self.equal) + ids


def describe_leak(images: int, total: int, equal: int) -> str:
    """Say how much of a test set was trained on.

    >>> told(5, 5, 5)
    'all 5 test images were trained on'
    >>> told(1, 4, 0)
    '1 of 4 test images (25.0%) show COCO photos that were trained on'

    Args:
        images: of the test set that were trained on, themselves or as the same COCO photo.
        total: images of the test set.
        equal: those of ``images`` that were trained on byte for byte.
    """
    count = f"{images:,} of {total:,} test images ({images / total:.1%})"
    if images == total:
        count = f"all {total:,} test images"
    if not equal:
        return f"{count} show COCO photos that were trained on"
    others = images - equal
    rest = f", {others:,} of them as other copies or edits of a COCO photo" if others else ""
    return f"{count} were trained on{rest}"


@lru_cache
def _ids_by_code() -> tuple[np.ndarray, np.ndarray]:
    """Return (codes ascending, the ids they stand for) of every COCO id: 0.6 s, once a process."""
    ids = np.arange(1, LARGEST_ID + 1)
    codes = np.fromiter((group_code(str(one)) for one in ids), np.uint64, len(ids))
    order = np.argsort(codes)
    return codes[order], ids[order]


def coco_ids(source: Photos, rows: np.ndarray | None = None) -> np.ndarray:
    """Return the COCO id of each row, int64 (rows,), -1 where there is none.

    Args:
        source: an index.
        rows: which; ``None`` is all.
    """
    chosen = np.arange(len(source.groups)) if rows is None else np.asarray(rows)
    groups = np.asarray(source.groups)[chosen]
    codes, ids = _ids_by_code()
    at = np.minimum(np.searchsorted(codes, groups), len(codes) - 1)
    found = np.where(codes[at] == groups, ids[at], -1)
    unnamed = np.flatnonzero(found < 0)
    if not len(unnamed):
        return found
    # A file with many images, a tar, is named after none of them.
    files, first, of_row = np.unique(
        np.asarray(source.files)[chosen[unnamed]], return_index=True, return_inverse=True
    )
    by_file = np.fromiter(
        (_id_of_name(source.file_name(int(row))) for row in chosen[unnamed][first]),
        np.int64, len(files),
    )  # fmt: skip
    found[unnamed] = by_file[of_row]
    return found


def _id_of_name(file: str) -> int:
    """Return the COCO id that a file is named after, or -1.

    >>> _id_of_name("val2014/COCO_val2014_000000391895.jpg"), _id_of_name("00003.tar")
    (391895, -1)
    """
    found = COCO_NAME.fullmatch(PurePath(file).stem)
    return int(found[1]) if found and 0 < int(found[1]) <= LARGEST_ID else -1


Trained = Sequence[tuple[Photos, np.ndarray]]
"""(index, rows of it) of each source that was trained on."""


def find_equal_images(source: Photos, rows: np.ndarray | None, others: Trained) -> np.ndarray:
    """Say which rows show an image that some of the others show too, byte for byte, bool (rows,).

    Args:
        source: an index.
        rows: which; ``None`` is all.
        others: (index, rows of it) of each source that is compared.
    """
    chosen = np.arange(len(source.groups)) if rows is None else np.asarray(rows)
    shown = [np.asarray(index.contents)[which] for index, which in others]
    known = np.sort(np.concatenate([np.empty(0, np.uint64), *shown]))
    return is_among(np.asarray(source.contents)[chosen], known)


def find_leaks(trained: Trained, test: Photos, rows: np.ndarray | None = None) -> Leaks:
    """Find the test rows whose image was trained on, or whose COCO photo as itself or edited.

    Args:
        trained: (index, rows of it that were trained on) of each source.
        test: index of the test source.
        rows: of the test source; ``None`` is all.
    """
    chosen = np.arange(len(test.groups)) if rows is None else np.asarray(rows)
    images = np.asarray(test.images)[chosen]
    equal = find_equal_images(test, chosen, trained)
    tested = coco_ids(test, chosen)
    known = np.unique(np.concatenate([np.empty(0, np.int64), *(coco_ids(*one) for one in trained)]))
    photo = (tested >= 0) & np.isin(tested, known)
    return Leaks(
        rows=np.sort(chosen[photo | equal]),
        ids=np.unique(tested[photo]),
        images=len(np.unique(images[photo | equal])),
        equal=len(np.unique(images[equal])),
        checked=len(np.unique(images[tested >= 0])),
        total=len(np.unique(images)),
    )
