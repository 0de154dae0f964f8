"""Records of annotation: an image to ask about, and an answer about one."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cfaug.core.rng import derive


@dataclass(frozen=True, slots=True)
class Answer:
    """One annotator's answer about one image."""

    item: int
    annotator: str
    label: str


@dataclass(frozen=True)
class ImageItem:
    """One image to ask about.

    Attributes:
        member: the image's number in the set, from 0.
        texts: the captions of the set's members.
        stratum: pairs (attribute, value) that the image should show according to its source, in
            order; empty if the question has no strata.
        expected: the answer that an attention check asks for; empty for other items.
    """

    key: str
    member: int
    texts: tuple[str, ...]
    row: int
    text: str = ""
    stratum: tuple[tuple[str, str], ...] = ()
    expected: str = ""

    @property
    def name(self) -> str:
        """``<set>_<member>``, its name in indexes and label files."""
        return f"{self.key}_{self.member}"

    @property
    def texts_hash(self) -> str:
        """A hash of the captions, saved in every answer to tell which captions it was about."""
        return hashlib.blake2b(json.dumps(self.texts).encode(), digest_size=6).hexdigest()


Item = TypeVar("Item", bound=ImageItem)


def draw_each(
    items: Sequence[Item], groups: Sequence[Hashable], each: int, seed: int, stream: str
) -> list[Item]:
    """Return at most ``each`` items of every group, drawn by key, in their order."""
    keys = [derive(seed, stream, item.name) for item in items]
    taken = Counter[Hashable]()
    chosen = set()
    for i in sorted(range(len(items)), key=keys.__getitem__):
        taken[groups[i]] += 1
        if taken[groups[i]] <= each:
            chosen.add(i)
    return [item for i, item in enumerate(items) if i in chosen]
