"""The identity of images: several names of one image, and the photos of MS-COCO."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import Protocol

import numpy as np

from cfaug.data.index.disk_format import group_code
from cfaug.data.mixture.records import is_among
from cfaug.data.sources.coco import COCO_NAME

# Images with several names: an image belongs to one group, whatever its name.


class Pictured(Protocol):
    """The parts of an index that are needed here."""

    @property
    def groups(self) -> np.ndarray:
        """Code of each row's group, uint64."""
        ...

    @property
    def contents(self) -> np.ndarray:
        """Code of each row's image by its bytes, uint64."""
        ...


def join_groups(sources: Sequence[Pictured | None]) -> list[np.ndarray]:
    """Return the group codes of each source, uint64 (rows,), equal for groups that share an image.

    So no split separates two copies of an image, or a photo from a set that shows it under another
    name. Joined groups have the code of a group in the first source that has one: a source's groups
    stay unchanged unless other sources join them.

    Args:
        sources: the indexes; ``None`` has no rows.
    """
    groups = [
        np.empty(0, np.uint64) if source is None else np.asarray(source.groups)
        for source in sources
    ]
    linked = _links(sources, groups)
    if not linked.size:
        return groups
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes, ends = np.unique(linked, return_inverse=True)
    first, second = ends.reshape(linked.shape)
    pairs = coo_array((np.ones(len(first), bool), (first, second)), shape=(len(nodes),) * 2)
    _, component = connected_components(pairs, directed=False)
    rank = np.full(len(nodes), len(sources))  # the first source that has the group
    places = [_places(own, nodes) for own in groups]
    for number, (at, found) in reversed(list(enumerate(places))):
        rank[at[found]] = number
    order = np.lexsort((nodes, rank, component))
    starts = np.flatnonzero(np.r_[True, np.diff(component[order]) != 0])
    code = nodes[order][starts][component]
    return [np.where(found, code[at], own) for own, (at, found) in zip(groups, places, strict=True)]


def _places(groups: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each group's place among the ascending nodes, and whether it is there."""
    at = np.minimum(np.searchsorted(nodes, groups), len(nodes) - 1)
    return at, nodes[at] == groups


def _links(sources: Sequence[Pictured | None], groups: Sequence[np.ndarray]) -> np.ndarray:
    """Return pairs of codes of groups that share an image, uint64 (2, links)."""
    contents = [
        np.empty(0, np.uint64) if source is None else np.asarray(source.contents)
        for source in sources
    ]
    image = np.concatenate([np.empty(0, np.uint64), *contents])
    group = np.concatenate([np.empty(0, np.uint64), *groups])
    # Captions of one image are adjacent: a row that repeats the one before links nothing new.
    new = np.ones(len(image), bool)
    new[1:] = (image[1:] != image[:-1]) | (group[1:] != group[:-1])
    image, group = image[new], group[new]
    ordered = np.sort(image)  # a tenth of the time of an argsort; most sources end here
    again = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    some = is_among(image, again)
    image, group = image[some], group[some]
    order = np.argsort(image)
    image, group = image[order], group[order]
    same = (image[1:] == image[:-1]) & (group[1:] != group[:-1])
    return np.stack([group[:-1][same], group[1:][same]])


def count_joined_groups(sources: Sequence[Pictured | None]) -> int:
    """Return the number of groups that share an image with another group."""
    before = [
        np.empty(0, np.uint64) if source is None else np.asarray(source.groups)
        for source in sources
    ]
    after = join_groups(sources)
    codes = [np.concatenate(groups) for groups in (before, after)]
    pairs = np.unique(np.stack(codes, axis=1), axis=0)
    _, sizes = np.unique(pairs[:, 1], return_counts=True)
    return int(sizes[sizes > 1].sum())


# The MS-COCO photo of a row, by the name of its group or of the image's file.
#
# Sources name the photo by its COCO id: as the group of a row (COCO, Karpathy, and everything made
# from their captions), or in the name of the image's file (``COCO_val2014_000000391895.jpg``,
# ``000000391895.jpg``).

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
