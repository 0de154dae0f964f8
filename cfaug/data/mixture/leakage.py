"""Training and test apart: held-out rows, images that a test shows again, and names of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError, name_some
from cfaug.data.index.disk_format import group_code
from cfaug.data.mixture.question_rows import DigestOf, name_digest, read_digest
from cfaug.data.mixture.records import (
    decimal,
    half_up,
    hash_codes,
    is_among,
    list_distinct,
    random_keys,
    sort_rows,
)
from cfaug.data.questions import QuestionImage
from cfaug.data.sources.coco import COCO_NAME

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.near_duplicates import NearDuplicates

# The identity of images: several names of one image, and the photos of MS-COCO.


_JOINED: dict[tuple[Index, ...], list[np.ndarray]] = {}
"""The joined groups that are needed again: by the test set, and then by the plan."""


def join_groups(sources: Sequence[Index | None], *, again: bool = False) -> list[np.ndarray]:
    """Return the group codes of each source, uint64 (rows,), equal for groups that share an image.

    So no split separates two copies of an image, or a photo from a set that shows it under another
    name. Joined groups have the code of a group in the first source that has one: a source's groups
    stay unchanged unless other sources join them.

    Args:
        again: whether they are kept for the next call, eight bytes a row.
    """
    opened = tuple(source for source in sources if source is not None)
    joined = _JOINED.pop(opened, None) or _join_opened(opened)
    if again:
        _JOINED.clear()
        _JOINED[opened] = joined
    groups = iter(joined)
    return [np.empty(0, np.uint64) if source is None else next(groups) for source in sources]


def _join_opened(sources: tuple[Index, ...]) -> list[np.ndarray]:
    groups = [np.asarray(source.groups) for source in sources]
    linked = _links([source.contents for source in sources], groups)
    if not linked.size:
        return groups
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes, ends = np.unique(linked, return_inverse=True)
    first, second = ends.reshape(linked.shape)
    pairs = coo_array((np.ones(len(first), bool), (first, second)), shape=(len(nodes),) * 2)
    _, component = connected_components(pairs, directed=False)
    rank = np.full(len(nodes), len(sources))  # the first source that has the group
    places = []  # the rows whose groups are among the ascending nodes, and the places there
    for codes in groups:
        rows = np.flatnonzero(is_among(codes, nodes))
        places.append((rows, np.searchsorted(nodes, codes[rows])))
    for number, (_, at) in reversed(list(enumerate(places))):
        rank[at] = number
    order = np.lexsort((nodes, rank, component))
    starts = np.flatnonzero(np.r_[True, np.diff(component[order]) != 0])
    code = nodes[order][starts][component]
    joined = [codes.copy() for codes in groups]
    for codes, (rows, at) in zip(joined, places, strict=True):
        codes[rows] = code[at]
    return joined


def _links(contents: Sequence[np.ndarray], groups: Sequence[np.ndarray]) -> np.ndarray:
    """Return pairs of codes of groups that share an image, uint64 (2, links)."""
    hashes = [hash_codes(codes, 32).astype(np.uint32) for codes in contents]
    # Captions of one image are adjacent: a row that repeats the one before links nothing new.
    new = [
        np.r_[True, (image[1:] != image[:-1]) | (group[1:] != group[:-1])][: len(image)]
        for image, group in zip(contents, groups, strict=True)
    ]
    # Sorting halves of codes takes a twentieth of an argsort; of most sources little is left.
    ordered = np.concatenate([np.empty(0, np.uint32), *map(np.compress, new, hashes)])
    ordered.sort()
    again = list_distinct(ordered[1:][ordered[1:] == ordered[:-1]])
    some = [mask & is_among(short, again) for mask, short in zip(new, hashes, strict=True)]
    image, group = (
        np.concatenate([np.empty(0, np.uint64), *map(np.compress, some, columns)])
        for columns in (contents, groups)
    )
    order = np.argsort(image)
    image, group = image[order], group[order]
    same = (image[1:] == image[:-1]) & (group[1:] != group[:-1])
    return np.stack([group[:-1][same], group[1:][same]])


def count_joined_groups(sources: Sequence[Index | None]) -> int:
    """Return the number of groups that share an image with another group."""
    after = join_groups(sources)
    before = [
        np.empty(0, np.uint64) if source is None else np.asarray(source.groups)
        for source in sources
    ]
    pairs = list(zip(before, after, strict=True))
    joined = list_distinct(np.concatenate([new[new != old] for old, new in pairs]))
    members = [old[is_among(new, joined)] for old, new in pairs]
    return len(list_distinct(np.concatenate(members)))


LARGEST_ID = 581_929
"""The largest image id of COCO 2014 and 2017."""


@lru_cache
def _ids_by_code() -> tuple[np.ndarray, np.ndarray]:
    """Return the ascending codes of all COCO ids, and their ids: 0.6 s, once a process."""
    ids = np.arange(1, LARGEST_ID + 1)
    codes = np.fromiter((group_code(str(photo_id)) for photo_id in ids), np.uint64, len(ids))
    order = np.argsort(codes)
    return codes[order], ids[order]


def coco_ids(source: Index | QuestionPhotos, rows: np.ndarray | None = None) -> np.ndarray:
    """Return the COCO id of each row, int64 (rows,), -1 without one.

    Args:
        rows: the rows to look up; ``None`` is all.
    """

    def id_of(file: str) -> int:
        named = COCO_NAME.fullmatch(PurePath(file).stem)
        return int(named[1]) if named and 0 < int(named[1]) <= LARGEST_ID else -1

    chosen = np.arange(len(source.groups)) if rows is None else np.asarray(rows)
    groups = np.asarray(source.groups)[chosen]
    codes, ids = _ids_by_code()
    at = np.minimum(np.searchsorted(codes, groups), len(codes) - 1)
    photo_ids = np.where(codes[at] == groups, ids[at], -1)
    unnamed = np.flatnonzero(photo_ids < 0)
    if not len(unnamed):
        return photo_ids
    # A file with many images, such as a tar, is not named after one of them.
    files, first, of_row = np.unique(
        np.asarray(source.files)[chosen[unnamed]], return_index=True, return_inverse=True
    )
    by_file = np.fromiter(
        (id_of(source.file_name(int(row))) for row in chosen[unnamed][first]),
        np.int64, len(files),
    )  # fmt: skip
    photo_ids[unnamed] = by_file[of_row]
    return photo_ids


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
        near: the test images that nearly equal training images, before any were left out; ``None``
            if they were not looked for.
    """

    rows: np.ndarray
    ids: np.ndarray
    images: int
    equal: int
    checked: int
    total: int
    near: NearDuplicates | None = None

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


Trained = Sequence[tuple["Index | QuestionPhotos", np.ndarray]]
"""(index, rows of it) of each source that was trained on."""


def find_equal_images(
    source: Index | QuestionPhotos, rows: np.ndarray | None, others: Trained
) -> np.ndarray:
    """Return which rows show an image that other rows show byte for byte, bool (rows,).

    Args:
        rows: the rows to check; ``None`` for all.
        others: (index, rows of it) for each source to compare.
    """
    chosen = np.arange(len(source.groups)) if rows is None else np.asarray(rows)
    shown = [np.asarray(index.contents)[which] for index, which in others]
    known = np.sort(np.concatenate([np.empty(0, np.uint64), *shown]))
    return is_among(np.asarray(source.contents)[chosen], known)


def find_leaks(
    trained: Trained, test: Index | QuestionPhotos, rows: np.ndarray | None = None
) -> Leaks:
    """Find the test rows whose image, or COCO photo (original or edited), was trained on.

    Args:
        trained: (index, rows of it that were trained on) for each source.
        rows: the rows of the test source; ``None`` for all.
    """
    chosen = np.arange(len(test.groups)) if rows is None else np.asarray(rows)
    images = np.asarray(test.images)[chosen]
    equal = find_equal_images(test, chosen, trained)
    tested = coco_ids(test, chosen)
    known = np.unique(
        np.concatenate([np.empty(0, np.int64), *(coco_ids(*part) for part in trained)])
    )
    photo = (tested >= 0) & np.isin(tested, known)
    return Leaks(
        rows=np.sort(chosen[photo | equal]),
        ids=np.unique(tested[photo]),
        images=len(np.unique(images[photo | equal])),
        equal=len(np.unique(images[equal])),
        checked=len(np.unique(images[tested >= 0])),
        total=len(np.unique(images)),
    )


@dataclass(frozen=True)
class Withheld:
    """The rows that are kept out as a test set.

    Attributes:
        rows: the rows of the test set, int64, ascending.
        groups: the groups of these rows, uint64, ascending, each once; no row of these groups may
            be trained on.
    """

    rows: np.ndarray
    groups: np.ndarray

    def find_allowed(self, groups: np.ndarray) -> np.ndarray:
        """Return which rows of any source may be trained on: those of other groups, bool (n,)."""
        return ~is_among(np.asarray(groups), self.groups)


def hold_out(source: Index, share: float) -> Withheld:
    """Choose about ``share`` of the groups, each independently of all other rows.

    A group is held out if its key is among the lowest ``share`` of all keys, so that a photo stays
    on its side when others are added, removed or left out by a setting. If there are few groups,
    the two lowest are held out, because a test needs two.

    Args:
        source: the index of the real source, or of the counterfactual one if it is the only source.
        share: the share of groups to hold out, in (0, 1).
    """
    groups = np.asarray(source.groups)
    places = random_keys(groups, 0, "withheld")
    lowest = places.min()
    second = places.min(where=places > lowest, initial=np.uint64(2**64 - 1))
    last = max(int(decimal(share) * 2**64), int(second))
    chosen = places <= np.uint64(min(last, 2**64 - 1))
    if chosen.all():
        known = list_distinct(places)
        raise UserError(
            f"data.holdout={share} of {len(known)} groups (photos with all that was made of them) "
            "leaves nothing to train on: choose a smaller share, or data.holdout=0 and a test set "
            "of your own with benchmark=retrieval benchmark.data=FOLDER"
        )
    return Withheld(np.flatnonzero(chosen), np.unique(groups[chosen]))


def withhold(source: Index, share: float) -> Withheld:
    """Choose ``share`` of the sets, the same for every seed, so that results can be compared.

    Sets are taken group by group in one random order, and exactly ``share`` of them, rounded half
    up; some sets of the last group may be neither trained on nor tested.

    Args:
        share: the share of sets to hold out, in (0, 1).
    """
    groups, sets = np.asarray(source.groups), np.asarray(source.sets)
    starts = np.flatnonzero(np.r_[True, sets[1:] != sets[:-1]])
    wanted = half_up(decimal(share) * len(starts))
    if not 0 < wanted < len(starts):
        raise UserError(
            f"data.counterfactual_holdout={share} of {len(starts)} counterfactual sets is "
            f"{wanted}: choose a share that leaves some on either side"
        )
    order = sort_rows(random_keys(groups[starts], 0, "withheld"))
    chosen = np.zeros(len(starts), bool)
    chosen[order[:wanted]] = True
    lengths = np.diff(np.r_[starts, len(sets)])
    rows = np.flatnonzero(np.repeat(chosen, lengths))
    return Withheld(rows, np.unique(groups[rows]))


COCO_ID = "coco_id"
"""The name of the COCO id in the ``extra`` of an image and its questions."""


class QuestionPhotos:
    """The images of a question set in the form needed to find leaks; one row for each image.

    A group is a COCO id only if the set says so: other sets have numbers as groups, too.

    Args:
        images: the images, none of them missing.
        digest_of: a function that returns a digest of an image's content, equal for equal images.

    Attributes:
        groups: codes of the COCO ids, uint64, or of an empty text if the id is unknown.
        contents: codes of the images' bytes, uint64.
        files: the numbers of the files: each image is a file of its own.
    """

    def __init__(self, images: Sequence[QuestionImage], digest_of: DigestOf = read_digest) -> None:
        self._photos = images
        self.groups = np.array([group_code(_coco_id(image)) for image in images], np.uint64)
        self.images = np.arange(len(images))
        self.files = np.arange(len(images))
        digests = [digest_of(image.image) for image in images if image.image is not None]
        self.contents = np.array(
            [int.from_bytes(bytes.fromhex(digest)[:8], "little") for digest in digests], np.uint64
        )

    def file_name(self, row: int) -> str:
        """Return the path of an image's file; empty if the image is inside another file."""
        file = getattr(self._photos[row].image, "file", None)
        return str(file) if isinstance(file, Path) else ""


def _coco_id(image: QuestionImage) -> str:
    for extra in (image.extra, *(question.extra for question in image.questions)):
        coco_id = extra.get(COCO_ID)
        if isinstance(coco_id, int | str) and not isinstance(coco_id, bool):
            return str(coco_id).strip().lstrip("0")
    return ""


def find_question_leaks(
    trained: Sequence[QuestionImage], tested: Sequence[QuestionImage]
) -> tuple[Leaks, set[str]]:
    """Find the images of a set that a run was trained on: equal bytes, or the same COCO photo.

    Returns:
        The leaks, and the keys of the leaked images of the set.
    """
    first, other = (
        [image for image in images if image.image is not None] for images in (trained, tested)
    )
    # Images of embedded worlds are compared by name, without drawing thousands for each run.
    drawn = all(getattr(image.image, "drawn", False) for image in (*first, *other))
    digest_of = name_digest if drawn else read_digest
    known, photos = QuestionPhotos(first, digest_of), QuestionPhotos(other, digest_of)
    leaks = find_leaks([(known, np.arange(len(first)))], photos)
    return leaks, {other[row].key for row in leaks.rows.tolist()}
