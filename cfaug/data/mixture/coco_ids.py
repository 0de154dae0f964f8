"""The MS-COCO photo of a row, by the name of its group or of the image's file.

Sources name the photo by its COCO id: as the group of a row (COCO, Karpathy, and everything made
from their captions), or in the name of the image's file (``COCO_val2014_000000391895.jpg``,
``000000391895.jpg``).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import PurePath
from typing import Protocol

import numpy as np

from cfaug.data.index.table import group_code
from cfaug.data.sources.coco import COCO_NAME

LARGEST_ID = 581_929
"""The largest image id of COCO 2014 and 2017."""


class PhotoColumns(Protocol):
    """The parts of an index that are needed here."""

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
        """Number of the file with each row's image."""
        ...

    def file_name(self, row: int) -> str:
        """Return the path of the file with a row's image."""
        ...


@lru_cache
def _ids_by_code() -> tuple[np.ndarray, np.ndarray]:
    """Return the ascending codes of all COCO ids, and their ids: 0.6 s, once a process."""
    ids = np.arange(1, LARGEST_ID + 1)
    codes = np.fromiter((group_code(str(one)) for one in ids), np.uint64, len(ids))
    order = np.argsort(codes)
    return codes[order], ids[order]


def coco_ids(source: PhotoColumns, rows: np.ndarray | None = None) -> np.ndarray:
    """Return the COCO id of each row, int64 (rows,), -1 without one.

    Args:
        source: the index.
        rows: the rows to look up; ``None`` is all.
    """
    chosen = np.arange(len(source.groups)) if rows is None else np.asarray(rows)
    groups = np.asarray(source.groups)[chosen]
    codes, ids = _ids_by_code()
    at = np.minimum(np.searchsorted(codes, groups), len(codes) - 1)
    found = np.where(codes[at] == groups, ids[at], -1)
    unnamed = np.flatnonzero(found < 0)
    if not len(unnamed):
        return found
    # A file with many images, such as a tar, is not named after one of them.
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
    """Return the COCO id in a file's name, or -1.

    >>> _id_of_name("val2014/COCO_val2014_000000391895.jpg"), _id_of_name("00003.tar")
    (391895, -1)
    """
    found = COCO_NAME.fullmatch(PurePath(file).stem)
    return int(found[1]) if found and 0 < int(found[1]) <= LARGEST_ID else -1
