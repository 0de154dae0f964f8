"""The rank of each text's photo: among all photos, and in batches as XMAI's authors ranked.

Their released notebook ranks 1,000 captions against the photos of these 1,000 pairs, in the order
of pandas' ``sample(frac=1, random_state=0)``; a photo that several captions share is a candidate
that many times, and a tie takes the best rank (``compat: code``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.messages import say
from cfaug.core.rng import generator
from cfaug.stats.ranking import Ties
from cfaug.stats.retrieval import text_standing

Compat = Literal["code"]


@dataclass(frozen=True)
class Embedded:
    """Texts of several kinds about the same photos, embedded to unit length.

    Attributes:
        texts: float32 (kinds, sets, dim): the original texts, then those of each method.
        photos: float32 (photos, dim), each photo once.
        photo_of_set: number of each set's photo, int64 (sets,).
    """

    texts: np.ndarray
    photos: np.ndarray
    photo_of_set: np.ndarray


def rank_in_gallery(found: Embedded) -> tuple[np.ndarray, np.ndarray]:
    """Rank every text's photo among all photos, each counted once.

    Returns:
        Reciprocal ranks, averaged over ties, and ranks, 1 + the number of photos that score higher;
        float64 (kinds, sets) each.

    Raises:
        ValueError: if an embedding is zero or not finite.
    """
    # One kind after the other: scaling all to unit length at once would need twice the memory.
    each = [text_standing(texts, found.photos, found.photo_of_set) for texts in found.texts]
    reciprocal = np.stack([where.reciprocal_ranks("mean") for where in each])
    return reciprocal, np.stack([where.above + 1.0 for where in each])


@dataclass(frozen=True)
class Batches:
    """Sets that are ranked together.

    Attributes:
        places: numbers of the sets in each batch.
        repeated: whether a photo is a candidate once for each of its texts in the batch.
        ties: the rank that equal scores take: ``min`` (the best), ``mean`` or ``max``.
    """

    places: tuple[np.ndarray, ...]
    repeated: bool
    ties: Ties


def make_batches(name: str, sets: int, size: int, seed: int, compat: Compat | None) -> Batches:
    """Divide sets into shuffled batches.

    Args:
        name: the benchmark's name, for messages.
        sets: number of sets.
        size: sets per batch: approximate, as batches have equal sizes; exact with ``code``, which
            drops the remainder.
        seed: the seed of the shuffle.
        compat: ``code`` follows the authors' notebook; ``None`` counts each photo once in a batch
            and averages over ties.

    Raises:
        UserError: if ``code`` would drop all sets.
    """
    if compat == "code":
        # The published numbers depend on pandas' order, so our keyed randomness is not used here.
        order = np.random.RandomState(seed).permutation(sets)
        whole = sets // size
        if not whole:
            raise UserError(
                f"{name}: compat=code drops the last batch if it is not whole, and {sets} sets are "
                f"fewer than benchmark.pairs_per_batch={size}: choose fewer, or "
                "benchmark.compat=null"
            )
        return Batches(tuple(order[: whole * size].reshape(whole, size)), True, "min")
    if sets < size:
        say(f"{name}: {sets:,} sets are fewer than a batch of {size:,}: one batch holds all")
    order = generator(seed, "insertion batches").permutation(sets)
    return Batches(tuple(np.array_split(order, max(1, round(sets / size)))), False, "mean")


def rank_in_batches(found: Embedded, batches: Batches) -> np.ndarray:
    """Rank every text's photo among those of its batch.

    Args:
        found: the embeddings.
        batches: the sets that are ranked together.

    Returns:
        Reciprocal ranks, float64 (kinds, sets); ``nan`` for sets in no batch.

    Raises:
        ValueError: if an embedding is zero or not finite.
    """
    kinds, sets, dim = found.texts.shape
    ranks = np.full((kinds, sets), np.nan)
    for places in batches.places:
        photos = found.photo_of_set[places]
        if batches.repeated:
            shown, own = photos, np.arange(len(places))
        else:
            shown, own = np.unique(photos, return_inverse=True)
        texts = found.texts[:, places].reshape(-1, dim)
        where = text_standing(texts, found.photos[shown], np.tile(own.reshape(-1), kinds))
        ranks[:, places] = where.reciprocal_ranks(batches.ties).reshape(kinds, len(places))
    return ranks


def drop_columns(
    original: np.ndarray, changed: np.ndarray, suffix: str = ""
) -> Mapping[str, np.ndarray]:
    """Return reciprocal ranks of the original and the changed texts, and their difference."""
    return {
        f"mrr_original{suffix}": original,
        f"mrr{suffix}": changed,
        f"mrr_drop{suffix}": original - changed,
    }
