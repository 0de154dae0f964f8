"""The content of a source as examples for generation, whichever reader reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import numpy as np

from cfaug.core.errors import UserError, name_some
from cfaug.core.types import Example
from cfaug.data.index.index import Index
from cfaug.data.sources.row import NEGATIVES


@dataclass(frozen=True)
class IndexedImage:
    """The image of a row: a ``cfaug.core.types.SourceImage``, read in place on demand.

    Attributes:
        index: the index of the source.
    """

    index: Index
    row: int

    @property
    def digest(self) -> str:
        """The digest of all bytes of the encoded image, hexadecimal."""
        return self.index.digests[self.index.images[self.row]].tobytes().hex()

    def read(self) -> bytes:
        """Return the encoded image, by one read of one range of one file."""
        return self.index.read_image(self.row)


def examples(index: Index, per: Literal["image", "text"] = "image") -> Iterator[Example]:
    """Yield the content of a source, in its order; no image is read.

    The key of an example is that of its (first) row, ``<set>_<member>``, its group the name with
    the code in ``Index.groups``, so that generated sets always stay with their example. ``extra``
    has the other columns of the (first) row, see ``Index.extra_row``, and under ``negatives`` the
    captions that are wrong about the image.

    Args:
        index: the index of the source.
        per: the unit of an example: ``image``, with all its captions, or ``text``, a caption with
            its image.
    """
    for _, rows in groupby(range(len(index)), key=lambda row: int(index.sets[row])):
        if per == "text":
            yield from (_example(index, [row]) for row in rows)
            continue
        images: dict[int, list[int]] = {}
        for row in rows:
            images.setdefault(int(index.images[row]), []).append(row)
        yield from (_example(index, together) for together in images.values())


def _example(index: Index, rows: list[int]) -> Example:
    first = rows[0]
    extra: dict[str, Any] = index.extra_row(first)
    if negatives := [text for row in rows for text in index.negatives(row)]:
        extra[NEGATIVES] = negatives
    return Example(
        key=index.key(first),
        group=index.group_name(first),
        texts=tuple(index.text(row) for row in rows),
        image=IndexedImage(index, first),
        label=index.label(first),
        extra=extra,
    )


# Sets of two texts on one image: the original text, and a method's edit of it.

NAMED = 3
"""Number of sets that a message names."""


def pair_rows(index: Index, rows: np.ndarray | None = None) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the keys of the sets, and the rows of their original and changed texts.

    Args:
        index: the index of the sets.
        rows: the rows to use, of whole sets; ``None`` is all.

    Returns:
        The keys, and int64 (sets, 2).
    """
    chosen = np.arange(len(index)) if rows is None else np.sort(rows)
    numbers, first, counts = np.unique(
        np.asarray(index.sets)[chosen], return_index=True, return_counts=True
    )
    if not len(numbers):
        raise UserError(f"{index.source} holds no set: generate some with python generate.py")
    _refuse(index, chosen[first[counts != 2]], len(numbers), "two members: a text before and after")
    order = np.argsort(np.asarray(index.sets)[chosen], kind="stable")
    pairs = chosen[order].reshape(-1, 2)
    images = np.asarray(index.images)[pairs]
    apart = index.digests[images[:, 0]] != index.digests[images[:, 1]]
    _refuse(index, pairs[apart.any(axis=1), 0], len(pairs), "one image that both texts share")
    keys = tuple(index.key(int(row)).rpartition("_")[0] for row in pairs[:, 0])
    refuse_duplicated_keys(index.source, keys)
    return keys, pairs


def _refuse(index: Index, wrong: np.ndarray, of: int, needed: str) -> None:
    if len(wrong):
        names = name_some((index.key(int(row)).rpartition("_")[0] for row in wrong), NAMED)
        raise UserError(
            f"{index.source}: {len(wrong)} of {of} sets do not have {needed} ({names}); the "
            "recipes xmai, deletion, eda, checklist and clare make such sets"
        )


def refuse_duplicated_keys(source: str, keys: Sequence[str]) -> None:
    """Refuse sets with equal keys.

    Args:
        source: the source of the sets, for the error.
    """
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        raise UserError(
            f"{source}: {len(twice)} keys of sets are duplicated, such as {twice[0]!r}: each set "
            "needs a key of its own"
        )
