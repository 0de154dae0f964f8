"""The order of an epoch: a pure function of the plan, the seeds and the epoch, never of workers."""

from __future__ import annotations

import numpy as np

from cfaug.core.rng import generator
from cfaug.data.mixture.records import COUNTERFACTUAL, Mixture, sort_rows


def epoch_order(
    mixture: Mixture,
    *,
    data_seed: int,
    seed: int,
    epoch: int,
    batch_size: int,
    stratify: bool = False,
    pairs_in_batch: bool = False,
    window: int | None = None,
) -> np.ndarray:
    """Return every position of ``mixture.train`` once, integers (n,), in the order of training.

    Args:
        epoch: the number of the epoch, from 0.
        batch_size: global batch size; only ``stratify`` and ``pairs_in_batch`` depend on it.
        stratify: whether every batch has its share of counterfactuals, rounded up or down;
            otherwise their number in a batch is hypergeometric.
        pairs_in_batch: whether members of one counterfactual set are in the same batch, as far as
            they fit; ``split_sets`` counts the rest. If ``mixture.visits`` has examples several
            times, all come once before any comes again, and in different batches if the examples
            fill at least two.
        window: number of files of each source in a window of shuffling, with the files in random
            order, so that only these are read at a time; ``None`` shuffles everything.
    """
    rng = generator(seed, "order", data_seed, epoch)
    n_real, n = mixture.counts["real"], len(mixture.train)
    positions = np.arange(n, dtype=_narrow(n))
    parts = positions[:n_real], positions[n_real:]
    shuffled = []
    for source, part in enumerate(parts):
        rows, shuffled_part = mixture.sources[source], rng.permutation(part)
        if window is not None and rows is not None and len(part):
            files = np.asarray(rows.files)[mixture.train[shuffled_part, 1]]
            window_of_file = rng.permutation(int(files.max()) + 1) // window
            # 16 bits if they suffice: NumPy sorts these by radix, an order of magnitude faster.
            narrow = np.min_scalar_type(int(window_of_file.max()))
            by_window = np.argsort(window_of_file.astype(narrow)[files], kind="stable")
            shuffled_part = shuffled_part[by_window]
        shuffled.append(shuffled_part)
    if mixture.visits is not None:
        shuffled = [_part_visits(part, mixture, mixture.visits, batch_size) for part in shuffled]
    if stratify:
        is_cf = _stratify(n, n - n_real, batch_size, rng)
    else:  # all arrangements are equally likely
        is_cf = rng.permutation(np.repeat([False, True], [n_real, n - n_real]))
    order = np.empty_like(positions)
    order[~is_cf], order[is_cf] = shuffled
    if not pairs_in_batch:
        return order
    first, members, starts, sizes = _sets(mixture)
    units = first[order]
    units = units[units >= 0]
    packed = units[pack(sizes[units], batch_size)]
    size = sizes[packed]
    places = np.repeat(starts[packed] - (np.cumsum(size, dtype=size.dtype) - size), size)
    places += np.arange(len(order), dtype=places.dtype)
    return members[places]


def _narrow(n: int) -> type[np.int32 | np.int64]:
    """Return a type of numbers up to n: with 20 million, an array of 64 bits takes 160 MB."""
    return np.int32 if n < 2**31 else np.int64


def _part_visits(
    shuffled: np.ndarray, mixture: Mixture, visits: np.ndarray, batch_size: int
) -> np.ndarray:
    """Move the first visits of all examples before the second ones, and so on.

    The last examples of one visit are also the last of the next, so that no batch has both.
    """
    parts: list[np.ndarray] = []
    for visit in range(int(visits[shuffled].max(initial=0)) + 1):
        mine = shuffled[visits[shuffled] == visit]
        if parts:
            rows = mixture.train[:, 1]
            late = np.isin(rows[mine], rows[parts[-1][-batch_size:]])
            mine = np.concatenate([mine[~late], mine[late]])
        parts.append(mine)
    return np.concatenate(parts)


def _stratify(n: int, n_cf: int, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """Return which places are counterfactual, with their exact share up to each batch's end."""
    ends = np.minimum(np.arange(1, -(-n // batch_size) + 1) * batch_size, n)
    n_cf_before = (2 * n_cf * ends + n) // (2 * n)
    batch = np.arange(n) // batch_size
    position = np.arange(n) - batch * batch_size
    is_cf = position < np.diff(n_cf_before, prepend=0)[batch]
    whole = n - n % batch_size
    rng.permuted(
        is_cf[:whole].reshape(-1, batch_size), axis=1, out=is_cf[:whole].reshape(-1, batch_size)
    )
    rng.shuffle(is_cf[whole:])
    return is_cf


def _sets(mixture: Mixture) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the units of training: real examples, and sets of counterfactual ones.

    Returns:
        For each position, the unit of which it is the first member, or -1; and for each unit, the
        start of its members in the second array, and their number.
    """
    n_real, n = mixture.counts["real"], len(mixture.train)
    rows = mixture.sources[COUNTERFACTUAL]
    sets = np.empty(0, np.int64) if rows is None else np.asarray(rows.sets)
    set_of = sets[mixture.train[n_real:, 1]] if n > n_real else sets[:0]
    # Above the bits that a sort replaces.
    by_set = sort_rows(set_of.astype(np.uint64) << np.uint64(len(set_of).bit_length()))
    dtype, is_first = _narrow(n), np.ones(n, bool)
    is_first[n_real + 1 :] = np.diff(set_of[by_set]) != 0
    members = np.arange(n, dtype=dtype)
    members[n_real:] = by_set
    np.add(members[n_real:], n_real, out=members[n_real:])
    starts = np.flatnonzero(is_first).astype(dtype)
    first = np.full(n, -1, dtype)
    first[members[starts]] = np.arange(len(starts))
    return first, members, starts, np.diff(starts, append=dtype(n))


def split_sets(mixture: Mixture, order: np.ndarray, batch_size: int) -> int:
    """Count the counterfactual sets whose training members are not all in one batch."""
    rows = mixture.sources[COUNTERFACTUAL]
    if rows is None:
        return 0
    batch = np.empty(len(order), np.int64)
    batch[order] = np.arange(len(order)) // batch_size
    is_cf = mixture.train[:, 0] == COUNTERFACTUAL
    sets = np.asarray(rows.sets)[mixture.train[is_cf, 1]]
    by_set = np.lexsort((batch[is_cf], sets))
    sets, batches = sets[by_set], batch[is_cf][by_set]
    changes = (sets[1:] == sets[:-1]) & (batches[1:] != batches[:-1])
    return len(np.unique(sets[1:][changes]))


def rank_share(batch: np.ndarray, rank: int, world: int) -> np.ndarray:
    """Return a rank's part of a global batch; sizes differ by at most one, and may be 0.

    >>> [rank_share(np.arange(5), rank, 2).tolist() for rank in (0, 1)]
    [[0, 1, 2], [3, 4]]
    """
    return np.array_split(batch, world)[rank]


# Packing of sets of several examples into batches of equal size, without splitting any.

MANY = 4096
"""Number of units taken out of turn before the queue is rewritten without them."""


def pack(sizes: np.ndarray, batch_size: int) -> np.ndarray:
    """Reorder units so that, laid end to end, none crosses the end of a batch, if possible.

    Units keep their order, except that later ones that fit are taken first if the next one does not
    fit. A unit crosses the boundary only if none fits.

    Args:
        sizes: the sizes of the units, int (n,), each at least 1, in random order.

    Returns:
        A permutation of the units, int64 (n,).

    >>> pack(np.array([2, 2, 2, 1, 1, 2]), 5).tolist()
    [0, 1, 3, 2, 4, 5]
    """
    queue = np.arange(len(sizes), dtype=sizes.dtype)
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
        chosen: list[np.ndarray] = []
        for size, units in self._of_size.items():
            if size > room:
                continue
            begin = max(self._given[size], int(np.searchsorted(units, after, side="right")))
            chosen.append(units[begin : begin + room // size])
            self._given[size] = begin + len(chosen[-1])
            room -= size * len(chosen[-1])
        return np.concatenate(chosen) if chosen else np.empty(0, np.int64)
