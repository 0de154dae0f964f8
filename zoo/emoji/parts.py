"""Who sees which emoji: the parts of the pack, of which no two share a name."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from zoo.emoji.names import Emoji, Kind, Pair, Person, minimal_pairs

TRAINING_PAIRS: Mapping[Kind, int] = {"other": 150, "gender": 75, "tone": 75}
TEST_PAIRS: Mapping[Kind, int] = {"other": 100, "gender": 50, "tone": 50}
"""Pairs of each kind at most, for training and for tests."""
MORE = 300
HELD_OUT = 200
SEEN = 2
"""Names of ``train``, at least, that have a word of a name that is tested."""


@dataclass(frozen=True)
class Parts:
    """The parts of the pack, of which no two share a name.

    Attributes:
        train: names for training.
        more: as many more, drawn at random from the same names.
        pairs: minimal pairs for training; no name is in two pairs.
        names: held-out names, each word of which is also a word of names of ``train``.
        test_pairs: held-out minimal pairs, with the same property.
        people: the sets of people.
    """

    train: Sequence[Emoji]
    more: Sequence[Emoji]
    pairs: Sequence[Pair]
    names: Sequence[Emoji]
    test_pairs: Sequence[Pair]
    people: Sequence[Person]


def drop_alike(
    emoji: Iterable[Emoji], people: Sequence[Person], alike: Collection[tuple[str, str]]
) -> tuple[list[Emoji], list[Person], list[str]]:
    """Leave out every emoji that some artist draws like one that is kept.

    An occupation is left out whole if two of its people look alike. Of other emoji that look alike
    a member of a set is kept, or else the first in Unicode's order.

    Returns:
        The emoji and the people that are kept, and the occupations that are not.
    """
    occupations = {person.emoji.code: person.occupation for person in people}
    same = sorted(
        {occupations[a] for a, b in alike if occupations.get(a) == occupations.get(b, "")}
    )
    sets = [person for person in people if person.occupation not in same]
    members = {person.emoji.code for person in sets}
    gone = {code for code, occupation in occupations.items() if occupation in same}
    neighbours: dict[str, set[str]] = {}
    for a, b in alike:
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)
    kept: set[str] = set()
    every = list(emoji)
    for item in sorted(every, key=lambda item: (item.code not in members, item.order)):
        if item.code not in gone and not neighbours.get(item.code, set()) & kept:
            kept.add(item.code)
    return [item for item in every if item.code in kept], sets, same


def split(emoji: Sequence[Emoji], people: Sequence[Person]) -> Parts:
    """Divide the emoji among the parts, by a hash of their codes.

    What is tested is chosen last, among names whose words ``train`` keeps: a model cannot know a
    word that it never met.
    """
    members = {person.emoji.code for person in people}
    rest = [item for item in emoji if item.code not in members]
    pairs = sorted(minimal_pairs(rest), key=draw)
    taken: set[str] = set()

    def choose_pairs(
        most: Mapping[Kind, int], accept: Callable[[Emoji, Emoji], bool]
    ) -> list[Pair]:
        chosen: list[Pair] = []
        for pair in pairs:
            codes = {pair.first.code, pair.second.code}
            count = sum(other.kind == pair.kind for other in chosen)
            if not codes & taken and count < most[pair.kind] and accept(pair.first, pair.second):
                chosen.append(pair)
                taken.update(codes)
        return chosen

    trained = choose_pairs(TRAINING_PAIRS, lambda *_: True)
    singles = sorted((item for item in rest if item.code not in taken), key=draw)
    more = singles[:MORE]
    taken.update(item.code for item in more)
    words = Counter(chain.from_iterable(set(item.words) for item in singles[MORE:]))

    def hold_out(*names: Emoji) -> bool:
        """Say whether every word of the names stays known without them, and count without them."""
        less = Counter(chain.from_iterable(set(item.words) for item in names))
        if any(words[word] - number < SEEN for word, number in less.items()):
            return False
        words.subtract(less)
        return True

    tested = choose_pairs(TEST_PAIRS, hold_out)
    names: list[Emoji] = []
    for item in singles:
        if item.code not in taken and len(names) < HELD_OUT and hold_out(item):
            names.append(item)
            taken.add(item.code)
    train = [item for item in rest if item.code not in taken]
    return Parts(train, in_order(more), trained, in_order(names), tested, people)


def in_order(emoji: Iterable[Emoji]) -> list[Emoji]:
    """Return emoji in Unicode's order."""
    return sorted(emoji, key=lambda item: item.order)


def draw(item: Emoji | Pair) -> str:
    """Return a hash (hex) by which items are in random order, the same on every machine."""
    codes = [item.code] if isinstance(item, Emoji) else [item.first.code, item.second.code]
    return hashlib.sha256(" ".join(["emoji", *codes]).encode()).hexdigest()
