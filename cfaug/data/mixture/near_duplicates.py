"""Images to train on that nearly equal images of a test, by their perceptual hashes.

Only training and test are compared with each other: within either, a counterfactual nearly equals
its own photo by design.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Interval

from cfaug.core.annotations import Means
from cfaug.core.perceptual_hash import WITHOUT, nearest_hashes
from cfaug.core.validation import check

if TYPE_CHECKING:
    from cfaug.data.index import Index

NearAction = Literal["refuse", "leave_out", "report"]
"""What is done with near-duplicates between training and test."""
NearDistance = Annotated[int, Interval(ge=0, le=24), Means("bits of 64")]
"""A number of bits; the hashes of different images differ in 32 of 64 on average."""
DEFAULT_DISTANCE = 8
"""Measured in docs/data.md: no two different photos are as near, most crops by 2 % are."""


@dataclass(frozen=True)
class NearRule:
    """Which images of training and test count as near-duplicates, and what is done with them."""

    action: NearAction
    distance: int = DEFAULT_DISTANCE

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> NearRule | None:
        """Return the rule of a node ``data``; ``None`` if near-duplicates are not looked for."""
        action = data.get("near_duplicates")
        distance = data.get("near_distance", DEFAULT_DISTANCE)
        check(action, NearAction | None, "data.near_duplicates")
        check(distance, NearDistance, "data.near_distance")
        return None if action is None else cls(action, distance)


Side = Literal["test", "training"]
Rows = tuple["Index", np.ndarray]
"""An index, and rows of it, int64."""


@dataclass(frozen=True)
class NearPair:
    """A training image and a test image, each as (index, row), and how many bits differ."""

    trained: tuple[Index, int]
    tested: tuple[Index, int]
    distance: int

    def __str__(self) -> str:
        """Name both images, and how many bits differ."""
        names = " and ".join(index.image_name(row) for index, row in (self.trained, self.tested))
        return f"{names} ({self.distance} bits)"


@dataclass(frozen=True)
class NearDuplicates:
    """The images of one side that nearly equal an image of the other, each with the nearest one.

    Attributes:
        pairs: a pair for each such image.
        checked: number of images of the side that was searched.
        unhashed: number of these that have too little structure for a hash: they are compared by
            their bytes alone.
        side: ``test``, whose images are searched for those that were trained on; or ``training``.
    """

    pairs: tuple[NearPair, ...]
    checked: int
    unhashed: int
    rule: NearRule
    side: Side

    @property
    def left_out(self) -> bool:
        """Whether these images were left out."""
        return self.rule.action == "leave_out"

    def rows(self, index: Index) -> np.ndarray:
        """Return a row of an index for each of its images that nearly equals another, int64."""
        ours = (pair.tested if self.side == "test" else pair.trained for pair in self.pairs)
        return np.array([row for source, row in ours if source is index], np.int64)

    def __str__(self) -> str:
        """Return a phrase on how many there are, and on how many could not be compared."""
        images = len(self.pairs)
        phrase = describe_near(self.side, images, self.checked, self.rule.distance, self.left_out)
        blank = f"; {self.unhashed:,} have too little structure for a hash" * bool(self.unhashed)
        return phrase + blank


def describe_near(side: str, images: int, checked: int, distance: int, left_out: bool) -> str:
    """Return a phrase on how many images of a side nearly equal images of the other.

    >>> describe_near("test", 1, 4, 8, False)
    '1 of 4 test images (25.0%) nearly equals a training image (at most 8 of 64 bits differ)'
    >>> describe_near("training", 20, 4000, 8, True)[:52]
    '20 of 4,000 training images (0.5%) nearly equal test'
    """
    other = "training" if side == "test" else "test"
    equal = f"equals a {other} image" if images == 1 else f"equal {other} images"
    share = f"{images:,} of {checked:,} {side} images ({images / max(1, checked):.1%})"
    phrase = f"{share} nearly {equal} (at most {distance} of 64 bits differ)"
    return f"{phrase} and {'is' if images == 1 else 'are'} left out" if left_out else phrase


def find_near_duplicates(
    searched: Sequence[Rows], others: Sequence[Rows], rule: NearRule, side: Side
) -> NearDuplicates:
    """Return the images of one side that nearly equal an image of the other.

    Args:
        searched: the rows whose images are looked up.
        others: the rows of the other side.
        side: the side that is searched.
    """
    shown = [(index, *_hashed_rows(index, rows)) for index, rows in others]
    known = np.concatenate([np.empty(0, np.uint64), *(hashes for _, _, hashes in shown)])
    starts = np.cumsum([0, *(len(hashes) for _, _, hashes in shown)])
    pairs, checked, unhashed = list[NearPair](), 0, 0
    for index, rows in searched:
        first, hashes = _hashed_rows(index, rows)
        checked += len(hashes)
        unhashed += int((hashes == WITHOUT).sum())
        near = nearest_hashes(hashes, known, rule.distance)
        for place, nearest, bits in zip(*(column.tolist() for column in near), strict=True):
            source = int(np.searchsorted(starts, nearest, side="right")) - 1
            other, theirs, _ = shown[source]
            ends = (index, int(first[place])), (other, int(theirs[nearest - starts[source]]))
            trained, tested = ends if side == "training" else ends[::-1]
            pairs.append(NearPair(trained, tested, bits))
    return NearDuplicates(tuple(pairs), checked, unhashed, rule, side)


def _hashed_rows(index: Index, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a row for each image that rows show, and the image's hash."""
    from cfaug.data.index.image_hashes import image_hashes

    images, first = np.unique(np.asarray(index.images)[rows], return_index=True)
    return np.asarray(rows)[first], image_hashes(index)[images]
