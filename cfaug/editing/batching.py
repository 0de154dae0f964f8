"""Batches of texts of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def by_length(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield the rows in batches of similar length, of up to ``tokens`` tokens with padding.

    The longest rows come first, so that a lack of memory shows at once. A row longer than
    ``tokens`` is a separate batch.

    >>> list(by_length([2, 5, 2, 3], 6))
    [[1], [3, 0], [2]]
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist()
    start = 0
    while start < len(order):
        rows = max(1, tokens // max(1, lengths[order[start]]))
        yield order[start : start + rows]
        start += rows
