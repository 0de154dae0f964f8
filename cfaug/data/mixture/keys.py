"""Random orders of rows from 64-bit keys: pure functions of a seed and of the shuffled codes.

A key is a keyed hash of a code, not a place in a permutation of all codes: it depends only on the
seed and the code, so that plans with the same seed share their order, and no table is needed.
"""

from __future__ import annotations

import numpy as np

from cfaug.core.rng import Name, derive


def random_keys(codes: np.ndarray, seed: int, *names: Name) -> np.ndarray:
    """Return a random 64-bit key for each code; equal codes have equal keys.

    The key is SplitMix64's finaliser applied to the code xor-ed with the stream's own seed.

    Args:
        codes: the codes, uint64 (n,).
        seed: the seed of the stream.
        names: the names of the stream.

    Returns:
        The keys, uint64 (n,).
    """
    key = np.asarray(codes, np.uint64) ^ np.uint64(derive(seed, *names))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key ^= key >> np.uint64(shift)
        key *= np.uint64(factor)
    key ^= key >> np.uint64(31)
    return key


def sort_rows(keys: np.ndarray) -> np.ndarray:
    """Return rows in the order of their keys, rows with equal keys in file order, int64 (n,).

    Eight times as fast as a stable argsort: the row replaces the key's lowest bits, and one plain
    sort does the rest. With 10 million rows, the remaining 41 bits confuse about one pair of
    groups: their rows are mixed, so that the keys may not ascend there and a cut may go through
    both groups. No group is split between train and validation by that (``is_among`` sorts the keys
    it searches).
    """
    bits = np.uint64(len(keys).bit_length())
    packed = keys >> bits << bits | np.arange(len(keys), dtype=np.uint64)
    packed.sort()
    packed &= (np.uint64(1) << bits) - np.uint64(1)
    return packed.view(np.int64)


def is_among(keys: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return which of ``keys`` are among ``others``, bool (n,).

    Args:
        keys: the keys to look for, uint64 (n,).
        others: the keys to search, uint64; fastest if they are ascending.
    """
    if not len(others):
        return np.zeros(len(keys), bool)
    if (others[1:] < others[:-1]).any():  # searchsorted needs sorted keys
        others = np.sort(others)
    at = np.searchsorted(others, keys)
    at[at == len(others)] = 0
    return others[at] == keys
