"""Which texts go through a model together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def by_length(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield the rows in batches of like length, the longest first, padding included in ``tokens``.

    The longest come first so that what does not fit into memory fails at once. A row longer than
    ``tokens`` is a batch of its own.

    >>> list(by_length([2, 5, 2, 3], 6))
    [[1], [3, 0], [2]]
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist()
    start = 0
    while start < len(order):
        rows = max(1, tokens // max(1, lengths[order[start]]))
        yield order[start : start + rows]
        start += rows
