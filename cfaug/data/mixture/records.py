"""What a plan is made of: the rows of two sources, random orders, exact shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np

from cfaug.core.rng import Name, derive

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.near_duplicates import NearDuplicates

# The records of a plan: the rows of two sources, and the choice among them.

REAL, COUNTERFACTUAL = 0, 1
Split = Literal["group", "random"]
Eligible = tuple[np.ndarray | None, np.ndarray | None]
"""Masks of the rows of each source that may be drawn, bool (rows,); ``None`` for all."""


@dataclass(frozen=True)
class Join:
    """The real rows that are originals of counterfactuals.

    Attributes:
        rows: whether each row of the real source is an original, bool (rows,).
        missed: (key, caption) of every unedited member without a real row, in order.
    """

    rows: np.ndarray
    missed: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class HeldOutTest:
    """The test set of an experiment, on which no arm trains or validates.

    Attributes:
        source: the index that contains the test set.
        rows: the rows of the test set in that index, int64, ascending.
        images: number of different images that these rows show.
        not_drawn: number of rows of the real, the counterfactual and the control's source that may
            not be drawn because they belong to the same groups, without the test set itself.
        copies: number of ``not_drawn`` rows whose groups have other names but show one of its
            images.
    """

    source: Index
    rows: np.ndarray
    images: int
    not_drawn: tuple[int, ...]
    copies: int


@dataclass(frozen=True)
class Mixture:
    """A plan: the examples to train and validate on.

    Attributes:
        train: (source, row) of every training example, int64 (n, 2); source 0 is real, and real
            examples come first.
        validation: (source, row) of every validation example, int64 (n, 2).
        counts: ``real`` + ``counterfactual`` = ``total`` = ``train``; ``validation``; ``dropped``,
            rows that were not drawn but whose group is in train, so that they cannot be used
            elsewhere; ``held_out`` and ``held_out_images``, pairs and images of the test set, if
            there is one; ``unchanged``, counterfactual sets of one caption, which are not used, if
            there are any.
        join: the choice of real captions that were edited; ``None`` if all were eligible.
        size: the total before the split, if drawn by ratio; otherwise ``None``.
        held_out: the test set that was kept out beforehand; ``None`` without one.
        visits: number of earlier places in ``train`` that show the same example, int8 (n,), if
            examples are drawn several times an epoch; ``None`` if each is drawn once.
        near: the images that might have been drawn and nearly equal an image of a test set that was
            kept out; ``None`` if they were not looked for.
        captions: the captions of which every epoch draws one for a photo of the real source, whose
            place in ``train`` its first one has; ``None`` if each is fixed.
    """

    train: np.ndarray
    validation: np.ndarray
    counts: Mapping[str, int]
    sources: tuple[Index | None, Index | None]
    join: Join | None = None
    size: int | None = None
    held_out: HeldOutTest | None = None
    visits: np.ndarray | None = None
    near: NearDuplicates | None = None
    captions: PhotoCaptions | None = None

    def rows_in(self, epoch: int, data_seed: int) -> np.ndarray:
        """Return ``train`` with the captions of an epoch, int64 (n, 2).

        Args:
            epoch: the number of the epoch, from 0.
            data_seed: the seed that draws the captions; it has no effect if each is fixed.
        """
        if self.captions is None:
            return self.train
        rows = self.train.copy()
        real = rows[:, 0] == REAL
        rows[real, 1] = self.captions.draw(rows[real, 1], data_seed, epoch)
        return rows


@dataclass(frozen=True)
class PhotoCaptions:
    """The rows of each photo of a source, of which an epoch draws one (``data.real_captions=one``).

    Attributes:
        photos: the code of each photo's bytes, uint64 (photos,), ascending.
        starts: the place of each photo's first row in ``rows``, int64 (photos,).
        sizes: the number of its rows, int64 (photos,).
        rows: the rows that may be drawn, int64 (m,), photo by photo, in the order of the source.
    """

    photos: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    rows: np.ndarray
    index: Index

    @staticmethod
    def of(index: Index, allowed: np.ndarray | None) -> PhotoCaptions:
        """Return the rows of each photo.

        Args:
            allowed: the rows that may be drawn, bool (rows,); ``None`` for all.
        """
        rows = np.arange(len(index)) if allowed is None else np.flatnonzero(allowed)
        codes = index.content_codes(rows) >> np.uint64(1)  # as batches tell images apart
        order = np.argsort(codes, kind="stable")
        photos, starts, sizes = np.unique(codes[order], return_index=True, return_counts=True)
        return PhotoCaptions(photos, starts, sizes, rows[order], index)

    @property
    def first(self) -> np.ndarray:
        """Which rows are the first of their photo, bool (rows of the source,)."""
        mask = np.zeros(len(self.index), bool)
        mask[self.rows[self.starts]] = True
        return mask

    def find(self, rows: np.ndarray) -> np.ndarray:
        """Return the place of each row's photo in ``photos``, int64 (n,)."""
        return np.searchsorted(self.photos, self.index.content_codes(rows) >> np.uint64(1))

    def draw(self, rows: np.ndarray, seed: int, epoch: int) -> np.ndarray:
        """Return a row of the photo of each row, int64 (n,).

        It depends on the seed, the epoch and the photo alone: neither on the other photos nor on
        what was drawn before.
        """
        at = self.find(rows)
        keys = random_keys(self.photos[at], seed, "caption of a photo", epoch)
        return self.rows[self.starts[at] + (keys % self.sizes[at].astype(np.uint64)).astype(int)]

    def expand(self, rows: np.ndarray) -> np.ndarray:
        """Return all rows of the photos of some rows, int64, ascending."""
        at = self.find(rows)
        spans = zip(self.starts[at].tolist(), self.sizes[at].tolist(), strict=True)
        return np.sort(np.concatenate([self.rows[a : a + n] for a, n in spans] or [rows]))


# Random orders of rows from 64-bit keys: pure functions of a seed and of the shuffled codes.
#
# A key is a keyed hash of a code, not a place in a permutation of all codes: it depends only on the
# seed and the code, so that plans with the same seed share their order, and no table is needed.


def random_keys(codes: np.ndarray, seed: int, *names: Name) -> np.ndarray:
    """Return a random 64-bit key for each code; equal codes have equal keys.

    The key is SplitMix64's finaliser applied to the code xor-ed with the stream's own seed.

    Args:
        codes: the codes, uint64 (n,).

    Returns:
        The keys, uint64 (n,).
    """
    key = np.asarray(codes, np.uint64) ^ np.uint64(derive(seed, *names))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key ^= key >> np.uint64(shift)
        key *= np.uint64(factor)
    key ^= key >> np.uint64(31)
    return key


def count_earlier(numbers: np.ndarray) -> np.ndarray:
    """Return the number of equal earlier entries for each entry.

    >>> count_earlier(np.array([4, 7, 4, 4])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    begins = np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)]
    first = np.maximum.accumulate(np.where(begins, np.arange(len(ordered)), 0))
    counts = np.empty(len(numbers), np.int64)
    counts[order] = np.arange(len(ordered)) - first
    return counts


def sort_rows(keys: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Return rows in the order of their keys, rows with equal keys in file order, int64 (n,).

    Eight times as fast as a stable argsort: the row replaces the key's lowest bits, and one plain
    sort does the rest. With 10 million rows, the remaining 41 bits confuse about one pair of
    groups: their rows are mixed, so that the keys may not ascend there and a cut may go through
    both groups. No group is split between train and validation by that (``is_among`` sorts the keys
    it searches).

    Args:
        mask: the rows to sort, bool (rows,); ``None`` is all.
    """
    bits = np.uint64(len(keys).bit_length())
    packed = keys >> bits << bits
    packed |= np.arange(len(keys), dtype=np.uint64)
    packed = packed if mask is None else packed[mask]
    packed.sort()
    packed &= (np.uint64(1) << bits) - np.uint64(1)
    return packed.view(np.int64)


def list_distinct(codes: np.ndarray) -> np.ndarray:
    """Return each code once, ascending, uint64.

    ``np.unique`` hashes, which takes several times as long for millions.

    Args:
        codes: the codes, uint64 (n,).
    """
    ordered = np.sort(codes)
    return ordered[np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)]]


AT_ONCE = 2**18
"""Number of keys that are hashed together, in the processor's cache."""
FEW = 2**18
"""Number of keys of which a table of hashes, 64 places for each, stays in the cache."""


def hash_codes(codes: np.ndarray, bits: int) -> np.ndarray:
    """Return the highest bits of each code's product with a large odd number, uint64 (n,)."""
    hashes = codes * np.uint64(0x9E3779B97F4A7C15)
    hashes >>= np.uint64(64 - bits)
    return hashes


def is_among(keys: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return which of ``keys`` are among ``others``, bool (n,).

    Args:
        keys: the keys to look for, unsigned (n,).
        others: the keys to search, unsigned; fastest if they are few, or ascending.
    """
    if not len(others) or not len(keys):
        return np.zeros(len(keys), bool)
    if (others[1:] < others[:-1]).any():  # searchsorted needs sorted keys
        others = np.sort(others)
    if len(others) > min(FEW, len(keys)):
        at = np.searchsorted(others, keys)
        at[at == len(others)] = 0
        return others[at] == keys
    # A search takes long, and a hash excludes most keys.
    bits = len(others).bit_length() + 6
    table, among = np.zeros(2**bits, bool), np.empty(len(keys), bool)
    table[hash_codes(others, bits)] = True
    for start in range(0, len(keys), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        among[part] = table[hash_codes(keys[part], bits)]
    maybe = np.flatnonzero(among)
    at = np.searchsorted(others, keys[maybe])
    at[at == len(others)] = 0
    among[maybe] = others[at] == keys[maybe]
    return among


# Exact arithmetic of shares: the decimal that a user typed, not the nearest binary float.


def decimal(number: float) -> Fraction:
    """Return a number as the decimal that a user typed.

    >>> decimal(0.6)
    Fraction(3, 5)
    """
    return Fraction(repr(float(number)))


def half_up(number: Fraction) -> int:
    """Round half up, exactly.

    >>> half_up(Fraction(5, 2)), half_up(Fraction(12, 5))
    (3, 2)
    """
    return (2 * number.numerator + number.denominator) // (2 * number.denominator)
