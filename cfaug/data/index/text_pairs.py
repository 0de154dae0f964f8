"""Sets of two texts on one image: the original text, and a method's edit of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from cfaug.core.errors import UserError, name_some
from cfaug.data.index.index import Index

NAMED = 3
"""Number of sets that a message names."""


def pair_rows(index: Index, rows: np.ndarray | None = None) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the keys of the sets, and the rows of their original and changed texts.

    Args:
        index: the index of the sets.
        rows: the rows to use, of whole sets; ``None`` is all.

    Returns:
        The keys, and int64 (sets, 2).

    Raises:
        UserError: if there is no set, a set does not have two texts on one image, or a key is
            duplicated.
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
        keys: the keys of the sets.

    Raises:
        UserError: if a key is duplicated.
    """
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        raise UserError(
            f"{source}: {len(twice)} keys of sets are duplicated, such as {twice[0]!r}: each set "
            "needs a key of its own"
        )
