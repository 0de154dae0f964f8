"""The plan of the work, made before the work begins: shards of captions, batches of candidates.

A plan is independent of parts, processes and remaining work: shard i is captions [i S, (i + 1) S),
and a batch is fixed by its place in the shard. Therefore the bytes are independent of them, too.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cfaug.core.errors import UserError
from cfaug.core.types import Draw, Edit, Proposal
from cfaug.generate.sampling import AnyDraws, Trial

T = TypeVar("T")


def shard_count(captions: int, per_shard: int) -> int:
    """Return the number of shards of ``captions`` captions.

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
    """Return the items of shard ``number``."""
    return items[number * per_shard : (number + 1) * per_shard]


@dataclass(frozen=True)
class CandidateSlice:
    """Candidates of one set that lie in the same batch.

    Attributes:
        place: the index of the set in the shard.
        first: the number of the first candidate; the others follow.
    """

    place: int
    first: int
    draws: tuple[Draw, ...]


Batch = tuple[CandidateSlice, ...]


NOT_DRAWN = Draw(0, 0.0, 0.0)
"""The draw of a set's only candidate if there are no random parameters."""


def count_candidates(draws: AnyDraws | None) -> int:
    """Return the number of candidates of a set that is not a control."""
    return 1 if draws is None else draws.candidates


def no_control(edits: Iterable[Edit | None]) -> bool:
    """Return false: no proposal is a control."""
    return False


@dataclass(frozen=True)
class ShardPlan:
    """The batches of a shard's candidates, round by round.

    A round is known after the earlier ones are scored; there is only one unless p is adaptive. A
    set's later rounds depend only on that set's earlier candidates.

    Args:
        draws: the distribution of candidates' random parameters; ``None`` for one candidate of each
            set without random parameters.
        size: the largest number of candidates in a batch.
        is_control: a function that returns, for a proposal's edits, whether the proposal needs only
            its first candidate.
        whole_examples: whether all sets of an example are drawn in one batch.
    """

    sets: Sequence[Proposal]
    draws: AnyDraws | None
    seed: int
    size: int
    is_control: Callable[[Iterable[Edit | None]], bool] = no_control
    whole_examples: bool = False

    def __post_init__(self) -> None:
        if self.rounds > 1 and self.whole_examples:
            raise UserError(
                "recipe.draws.p_law=adaptive(r) draws an example's candidates in rounds, and this "
                "image editor needs all of them at once: use p_law=stratified"
            )

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return 1 if self.draws is None else self.draws.learning_rounds

    def batches(
        self,
        number: int = 0,
        trials: Mapping[int, Sequence[Trial]] | None = None,
        lost: Collection[int] = (),
    ) -> list[Batch]:
        """Split the candidates of a round into batches of at most ``size``, in order.

        Candidates that share a seed stay in one batch, so that a family larger than ``size`` is a
        batch by itself; with ``whole_examples`` the same holds for an example.

        Args:
            number: the number of the round, from 0.
            trials: the earlier candidates of each set, in order, by the set's place.
            lost: the places of sets to leave out, because they failed in an earlier round.
        """
        trials = {} if trials is None else trials
        slices = [
            CandidateSlice(place, len(trials.get(place, ())), tuple(drawn))
            for place, one in enumerate(self.sets)
            if place not in lost and (drawn := self._draw(one, number, trials.get(place, ())))
        ]
        return self._cut(slices)

    def _draw(self, proposal: Proposal, number: int, trials: Sequence[Trial]) -> list[Draw]:
        control = self.is_control(proposal.edits)
        if self.draws is None or (control and number):
            return [] if number else [NOT_DRAWN]
        key = proposal.example.key if self.draws.per_example else proposal.key
        drawn = self.draws.draw(key, self.seed, number, trials)
        return drawn[:1] if control else drawn

    def _cut(self, slices: Sequence[CandidateSlice]) -> list[Batch]:
        cut: list[list[CandidateSlice]] = [[]]
        held = 0
        together = 1 if self.draws is None else self.draws.family
        example_of = [self.sets[one.place].example.key for one in slices]
        of_example = Counter[str]()
        for key, one in zip(example_of, slices, strict=True):
            of_example[key] += len(one.draws)
        for at, (key, one) in enumerate(zip(example_of, slices, strict=True)):
            begins = at == 0 or example_of[at - 1] != key
            for start in range(0, len(one.draws), together):
                family = one.draws[start : start + together]
                needed = len(family)
                if self.whole_examples:
                    needed = of_example[key] if begins and start == 0 else 0
                if held and needed and held + needed > self.size:
                    cut.append([])
                    held = 0
                held += len(family)
                last = cut[-1][-1] if cut[-1] else None
                if last is not None and last.place == one.place:
                    cut[-1][-1] = CandidateSlice(one.place, last.first, last.draws + family)
                else:
                    cut[-1].append(CandidateSlice(one.place, one.first + start, family))
        return [tuple(batch) for batch in cut if batch]


def digest(batch: Batch, sets: Sequence[Proposal]) -> str:
    """Return the sha256 of everything that a batch draws."""
    about = [_describe(one, sets[one.place]) for one in batch]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()


def _describe(one: CandidateSlice, proposal: Proposal) -> list[Any]:
    image = proposal.example.image
    source = [] if image is None else [image.digest]
    draws = [[d.seed, d.p, d.cfg, *sorted(d.parameters.items())] for d in one.draws]
    return [proposal.key, proposal.texts, one.first, *source, *draws]


def check_groups(groups: Mapping[int, Iterable[str]]) -> None:
    """Refuse groups that lie in several shards, because the best of each group cannot be found.

    Args:
        groups: the groups of each shard's examples, by the shard's number.
    """
    first: dict[str, int] = {}
    for number, names in groups.items():
        for name in names:
            if first.setdefault(name, number) != number:
                raise UserError(
                    f"recipe.selection.per=group: group {name!r} lies in shards {first[name]:05d} "
                    f"and {number:05d}, which are made apart; sort the source by group, or change "
                    "shards.sets_per_shard"
                )
