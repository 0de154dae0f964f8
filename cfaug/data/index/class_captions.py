"""Sources whose captions only name the class of their image, as those of class folders do."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from cfaug.data.index.index import Index
from cfaug.data.sources.values import class_caption


def captioned_classes(index: Index, rows: Iterable[int]) -> list[str] | None:
    """Return the classes of a source, sorted, if captions only name them; otherwise ``None``.

    Args:
        index: the source.
        rows: the rows whose captions are read.
    """
    for row in rows:
        label = index.label(int(row))
        if label is None or index.text(int(row)) != class_caption(label):
            return None
    return sorted({index.label(row) or "" for row in range(len(index))} - {""})


@lru_cache(maxsize=4)
def all_captioned_classes(index: Index) -> list[str] | None:
    """Return ``captioned_classes`` of every row, read once for all runs of a sweep."""
    return captioned_classes(index, range(len(index)))
