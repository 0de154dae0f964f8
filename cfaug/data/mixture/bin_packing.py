"""Packing of sets of several examples into batches of equal size, without splitting any."""

from __future__ import annotations

import numpy as np

MANY = 4096
"""Number of units taken out of turn before the queue is rewritten without them."""


def pack(sizes: np.ndarray, batch_size: int) -> np.ndarray:
    """Reorder units so that, laid end to end, none crosses the end of a batch, if possible.

    Units keep their order, except that later ones that fit are taken first if the next one does not
    fit. A unit crosses the boundary only if none fits.

    Args:
        sizes: the sizes of the units, int (n,), each at least 1, in random order.
        batch_size: the size of a batch.

    Returns:
        A permutation of the units, int64 (n,).

    >>> pack(np.array([2, 2, 2, 1, 1, 2]), 5).tolist()
    [0, 1, 3, 2, 4, 5]
    """
    queue = np.arange(len(sizes))
    taken = np.zeros(len(sizes), bool)
    later = _Later(sizes)
    packed: list[np.ndarray] = []
    at, ahead, carried = 0, 0, 0
    while at < len(queue):
        if carried >= batch_size:  # a set larger than a batch
            carried -= batch_size
            continue
        if ahead > MANY:
            queue = queue[at:]
            queue, at, ahead = queue[~taken[queue]], 0, 0
        room = batch_size - carried
        # Every unit has at least size 1, so this many overfill a batch even without those taken
        # before.
        span = queue[at : at + room + ahead + 1]
        free = span[~taken[span]]
        ends = np.cumsum(sizes[free])
        fit = int(np.searchsorted(ends, room, side="right"))
        packed.append(free[:fit])
        if fit == len(free):
            break
        following, carried = free[fit], 0
        passed = int(np.searchsorted(span, following))
        at, ahead = at + passed, ahead - (passed - fit)
        room -= int(ends[fit - 1]) if fit else 0
        if room:
            filling = later.fill(room, after=following)
            taken[filling] = True
            packed.append(filling)
            ahead += len(filling)
            room -= int(sizes[filling].sum())
        if room:
            packed.append(free[fit : fit + 1])
            at, carried = at + 1, int(sizes[following]) - room
    return np.concatenate(packed) if packed else queue


class _Later:
    """Finds units out of turn; each is returned once, units of equal size in their order."""

    def __init__(self, sizes: np.ndarray) -> None:
        self._of_size = {int(s): np.flatnonzero(sizes == s) for s in np.unique(sizes)[::-1]}
        self._given = dict.fromkeys(self._of_size, 0)

    def fill(self, room: int, *, after: int) -> np.ndarray:
        """Return units after ``after`` that fit into ``room`` together, large ones first."""
        found: list[np.ndarray] = []
        for size, units in self._of_size.items():
            if size > room:
                continue
            begin = max(self._given[size], int(np.searchsorted(units, after, side="right")))
            found.append(units[begin : begin + room // size])
            self._given[size] = begin + len(found[-1])
            room -= size * len(found[-1])
        return np.concatenate(found) if found else np.empty(0, np.int64)
