"""What is to be done, before any of it is: shards of captions, batches of candidates.

A plan knows nothing of parts, of processes or of what is left to do: shard i is captions
[i S, (i + 1) S), a batch is what stands at its place in the shard. So bytes cannot depend on them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from cfaug.errors import UserError
from cfaug.generate.sampling import Draws
from cfaug.types import Draw, Proposal

T = TypeVar("T")


def check_part(part: int, parts: int) -> None:
    """Refuse a part that there is not.

    Raises:
        UserError: naming both numbers.
    """
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (part, parts))
    if not whole or not 0 <= part < parts:
        raise UserError(f"part={part} parts={parts}: part counts from 0 to parts - 1")


def shard_count(captions: int, per_shard: int) -> int:
    """Return how many shards so many captions make.

    >>> shard_count(201, 100)
    3
    """
    return -(-captions // per_shard)


def shards_of(part: int, parts: int, count: int) -> range:
    """Return the numbers of the shards that belong to a part.

    >>> list(shards_of(1, 3, 8))
    [1, 4, 7]
    """
    return range(part, count, parts)


def shard_slice(items: Sequence[T], number: int, per_shard: int) -> Sequence[T]:
    """Return what shard ``number`` is made of."""
    return items[number * per_shard : (number + 1) * per_shard]


@dataclass(frozen=True)
class CandidateSlice:
    """Candidates of one set that lie in the same batch.

    Attributes:
        place: of the set among the shard's.
        first: number of the first candidate; the others follow.
        draws: their chance.
    """

    place: int
    first: int
    draws: tuple[Draw, ...]


Batch = tuple[CandidateSlice, ...]


def batches(sets: Sequence[Proposal], draws: Draws, seed: int, size: int) -> list[Batch]:
    """Cut the candidates of a shard's sets into batches of at most ``size``, in order.

    Candidates that share a seed are never parted, so a family larger than ``size`` is a batch by
    itself.
    """
    cut: list[list[CandidateSlice]] = [[]]
    held = 0
    for place, one in enumerate(sets):
        drawn = draws.draw(one.key, seed)
        for first in range(0, len(drawn), draws.family):
            family = tuple(drawn[first : first + draws.family])
            if held and held + len(family) > size:
                cut.append([])
                held = 0
            held += len(family)
            last = cut[-1][-1] if cut[-1] else None
            if last is not None and last.place == place:
                cut[-1][-1] = CandidateSlice(place, last.first, last.draws + family)
            else:
                cut[-1].append(CandidateSlice(place, first, family))
    return [tuple(batch) for batch in cut if batch]


def digest(batch: Batch, sets: Sequence[Proposal]) -> str:
    """Return the sha256 of all that a batch is to draw."""
    about = [
        [sets[one.place].key, sets[one.place].texts, one.first]
        + [[d.seed, d.p, d.cfg] for d in one.draws]
        for one in batch
    ]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()
