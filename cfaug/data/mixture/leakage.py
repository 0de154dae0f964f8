"""Training images that a test set shows again: equal files, and photos of MS-COCO.

An equal file is found by the digest of its bytes, whatever its name and place, but not if it was
re-encoded. For MS-COCO the photo itself is found (``coco_ids``), because its releases overlap:
about 12 % of the 5,000 images of the Karpathy test split, which are of val2014, are in val2017 as
well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfaug.core.errors import name_some
from cfaug.data.mixture.coco_ids import PhotoColumns, coco_ids
from cfaug.data.mixture.keys import is_among

NAMED = 3
"""Number of ids that a message names."""


@dataclass(frozen=True)
class Leaks:
    """The overlap of a test set with the rows that a run was trained on.

    Attributes:
        rows: rows of the test source whose image or COCO photo was trained on, int64 ascending.
        ids: COCO ids of the photos that were trained on, int64 ascending.
        images: number of images of the test set that these rows show.
        equal: number of these images that are byte-identical to training images; the rest are other
            copies of a COCO photo, or its counterfactuals.
        checked: number of test images with a COCO id; for the others only equal bytes are found.
        total: number of test images.
    """

    rows: np.ndarray
    ids: np.ndarray
    images: int
    equal: int
    checked: int
    total: int

    def __str__(self) -> str:
        """Return the leaks in one line; empty if there are none."""
        if not self.images:
            return ""
        ids = f" (COCO ids {name_some(self.ids, NAMED)})" if self.images > self.equal else ""
        return describe_leak(self.images, self.total, self.equal) + ids


def describe_leak(images: int, total: int, equal: int) -> str:
    """Return a phrase on how much of a test set was trained on.

    >>> describe_leak(5, 5, 5)
    'all 5 test images were trained on'
    >>> describe_leak(1, 4, 0)
    '1 of 4 test images (25.0%) show COCO photos that were trained on'

    Args:
        images: number of test images that were trained on, themselves or as the same COCO photo.
        total: number of test images.
        equal: number of ``images`` that are byte-identical to training images.
    """
    count = f"{images:,} of {total:,} test images ({images / total:.1%})"
    if images == total:
        count = f"all {total:,} test images"
    if not equal:
        return f"{count} show COCO photos that were trained on"
    others = images - equal
    rest = f", {others:,} of them as other copies or edits of a COCO photo" if others else ""
    return f"{count} were trained on{rest}"


Trained = Sequence[tuple[PhotoColumns, np.ndarray]]
"""(index, rows of it) of each source that was trained on."""


def find_equal_images(source: PhotoColumns, rows: np.ndarray | None, others: Trained) -> np.ndarray:
    """Return which rows show an image that other rows show byte for byte, bool (rows,).

    Args:
        source: the index.
        rows: the rows to check; ``None`` for all.
        others: (index, rows of it) for each source to compare.
    """
    chosen = np.arange(len(source.groups)) if rows is None else np.asarray(rows)
    shown = [np.asarray(index.contents)[which] for index, which in others]
    known = np.sort(np.concatenate([np.empty(0, np.uint64), *shown]))
    return is_among(np.asarray(source.contents)[chosen], known)


def find_leaks(trained: Trained, test: PhotoColumns, rows: np.ndarray | None = None) -> Leaks:
    """Find the test rows whose image, or COCO photo (original or edited), was trained on.

    Args:
        trained: (index, rows of it that were trained on) for each source.
        test: the index of the test source.
        rows: the rows of the test source; ``None`` for all.
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
