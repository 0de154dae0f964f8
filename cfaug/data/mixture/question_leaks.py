"""Images of training questions that a question set uses again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cfaug.core.question_sets import AskedImage
from cfaug.data.index.table import group_code
from cfaug.data.mixture.leakage import Leaks, find_leaks
from cfaug.data.mixture.question_rows import DigestOf, name_digest, read_digest

COCO_ID = "coco_id"
"""The name of the COCO id in the ``extra`` of an image and its questions."""


class AskedPhotos:
    """The images of a question set in the form needed to find leaks; one row for each image.

    A group is a COCO id only if the set says so: other sets have numbers as groups, too.

    Args:
        images: the images, none of them missing.
        digest_of: a function that returns a digest of an image's content, equal for equal images.

    Attributes:
        groups: codes of the COCO ids, uint64, or of an empty text if the id is unknown.
        images: the numbers of the images.
        contents: codes of the images' bytes, uint64.
        files: the numbers of the files: each image is a file of its own.
    """

    def __init__(self, images: Sequence[AskedImage], digest_of: DigestOf = read_digest) -> None:
        self._asked = images
        self.groups = np.array([group_code(_coco_id(one)) for one in images], np.uint64)
        self.images = np.arange(len(images))
        self.files = np.arange(len(images))
        digests = [digest_of(one.image) for one in images if one.image is not None]
        self.contents = np.array(
            [int.from_bytes(bytes.fromhex(one)[:8], "little") for one in digests], np.uint64
        )

    def file_name(self, row: int) -> str:
        """Return the path of an image's file; empty if the image is inside another file."""
        file = getattr(self._asked[row].image, "file", None)
        return str(file) if isinstance(file, Path) else ""


def find_question_leaks(
    trained: Sequence[AskedImage], asked: Sequence[AskedImage]
) -> tuple[Leaks, set[str]]:
    """Find the images of a set that a run was trained on: equal bytes, or the same COCO photo.

    Args:
        trained: the images that the run learnt from.
        asked: the images of the set.

    Returns:
        The leaks, and the keys of the leaked images of the set.
    """
    first, other = ([one for one in own if one.image is not None] for own in (trained, asked))
    # Images of embedded worlds are compared by name, without drawing thousands for each run.
    drawn = all(getattr(one.image, "drawn", False) for one in (*first, *other))
    digest_of = name_digest if drawn else read_digest
    known, photos = AskedPhotos(first, digest_of), AskedPhotos(other, digest_of)
    leaks = find_leaks([(known, np.arange(len(first)))], photos)
    return leaks, {other[row].key for row in leaks.rows.tolist()}


def _coco_id(image: AskedImage) -> str:
    """Return the COCO id that a set gives for an image; empty without one."""
    for extra in (image.extra, *(one.extra for one in image.questions)):
        found = extra.get(COCO_ID)
        if isinstance(found, int | str) and not isinstance(found, bool):
            return str(found).strip().lstrip("0")
    return ""
