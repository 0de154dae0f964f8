"""The names and clusters of test items that are rows of an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cfaug.data.index import Index


def name_rows(index: Index, rows: np.ndarray) -> list[str]:
    """Return a unique name for each row: its key, with its number where keys are duplicated.

    Args:
        index: the source.
        rows: distinct rows of the source, integers (rows,).
    """
    names = [index.key(int(row)) for row in rows]
    if len(set(names)) == len(names):
        return names
    return [f"{name}#{row}" for name, row in zip(names, rows.tolist(), strict=True)]


def name_pairs(index: Index, rows_N2: np.ndarray) -> list[str]:
    """Return a unique name for each pair: its first row's, or its second's where a set has several.

    Args:
        index: the source.
        rows_N2: the rows of each pair, integers (pairs, 2), whose second rows are distinct.
    """
    first = rows_N2[:, 0]
    return name_rows(index, first if len(np.unique(first)) == len(first) else rows_N2[:, 1])


def cluster_rows(index: Index, rows: np.ndarray) -> list[str]:
    """Return the cluster of each row: its group, the photo or the original caption.

    Args:
        index: the source.
        rows: rows of the source, integers (rows,).
    """
    return [f"{code:016x}" for code in np.asarray(index.groups)[rows].tolist()]
