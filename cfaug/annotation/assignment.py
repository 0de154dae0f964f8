"""Who answers for which image, and in which order: drawn by key, so the same for everyone.

COCO-CFs, section 4.1: every image is shown to at least one annotator, a tenth of them to three, so
34,820 images make 34,820 + 2 x 3,482 = 41,784 questions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cfaug.data.planning.rational import decimal, half_up
from cfaug.errors import UserError
from cfaug.rng import derive, generator

if TYPE_CHECKING:
    from cfaug.data.index import Index

ORIGINAL, COUNTERFACTUAL, BOTH, NEITHER = CHOICES = (
    "original", "counterfactual", "both", "neither",
)  # fmt: skip
"""The four answers to the paper's question (COCO-CFs, section 4.1)."""

MAX_ANNOTATORS = 1000


@dataclass(frozen=True)
class Item:
    """One image to ask about.

    Attributes:
        key: of its set.
        member: 0 for the image of the original caption, 1 for that of the counterfactual one.
        texts: the original caption and the counterfactual one.
        row: where a source has it; its index in ``read_image``.
    """

    key: str
    member: int
    texts: tuple[str, str]
    row: int

    @property
    def name(self) -> str:
        """``<set>_<member>``, as indexes and label files call it."""
        return f"{self.key}_{self.member}"

    @property
    def texts_hash(self) -> str:
        """What an answer carries, so that it is not read as one about other captions."""
        return hashlib.blake2b(json.dumps(self.texts).encode(), digest_size=6).hexdigest()

    @property
    def own(self) -> str:
        """The answer that matches the image to its own caption."""
        return CHOICES[self.member]


def items_of(index: Index) -> list[Item]:
    """Return every image of a source of pairs, in order.

    Raises:
        UserError: if a set is no pair of two captions with an image each.
    """
    found = []
    for first in range(0, len(index), 2):
        rows = (first, first + 1)
        key, _, member = index.key(first).rpartition("_")
        if (
            member != "0"
            or first + 1 == len(index)
            or index.sets[first] != index.sets[first + 1]
            or (first + 2 < len(index) and index.sets[first + 2] == index.sets[first])
            or index.images[first] == index.images[first + 1]
        ):
            raise UserError(
                f"{index.source}: set {key!r} is no pair of two captions with an image each; the "
                "question is which of two captions describes an image"
            )
        texts = (index.text(first), index.text(first + 1))
        found += [Item(key, member, texts, row) for member, row in enumerate(rows)]
    return found


def check_whole(settings: object, *names: str) -> None:
    """Raise a UserError if one of some settings of ``annotate`` is no whole number."""
    for name in names:
        value = getattr(settings, name)
        if type(value) is not int:
            raise UserError(f"annotate.{name}={value} should be a whole number")


@dataclass(frozen=True)
class Assignment:
    """How the images are shared out.

    Args:
        annotators: how many people answer; they are called 1, 2, ...
        overlap: share of the images that ``raters`` people answer, for agreement.
        raters: how many that are; the other images are answered once.
        sample: ask about so many images only, drawn at random; ``None`` is all.
        seed: of every draw.

    Raises:
        UserError: naming what is out of range.
    """

    annotators: int = 3
    overlap: float = 0.1
    raters: int = 3
    sample: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "annotators", "raters", "seed", *["sample"] * (self.sample is not None))
        if isinstance(self.overlap, bool) or not isinstance(self.overlap, int | float):
            raise UserError(f"annotate.overlap={self.overlap} should be a number from 0 to 1")
        if not 1 <= self.annotators <= MAX_ANNOTATORS:
            raise UserError(
                f"annotate.annotators={self.annotators}: choose from 1 to {MAX_ANNOTATORS}"
            )
        if not 0 <= self.overlap <= 1:
            raise UserError(f"annotate.overlap={self.overlap} is a share: choose from 0 to 1")
        if self.raters < 2:
            raise UserError(
                f"annotate.raters={self.raters}: agreement needs 2 or more; annotate.overlap=0 "
                "asks everything once"
            )
        if self.overlap > 0 and self.raters > self.annotators:
            raise UserError(
                f"annotate.raters={self.raters} different people cannot answer one image where "
                f"annotate.annotators={self.annotators}: raise annotators, lower raters, or set "
                "annotate.overlap=0"
            )
        if self.sample is not None and self.sample < 1:
            raise UserError(f"annotate.sample={self.sample}: choose 1 or more, or null for all")

    def drawn(self, items: Sequence[Item]) -> list[Item]:
        """Return the images that are asked about, in the order of the source."""
        if self.sample is None or self.sample >= len(items):
            return list(items)
        return [items[i] for i in sorted(self._first(items, self.sample, "sample"))]

    def overlapping(self, items: Sequence[Item]) -> set[int]:
        """Return the places of the images that several people answer.

        Their number is the share of the images, rounded half up: 3,482 of 34,820.
        """
        return set(self._first(items, half_up(decimal(self.overlap) * len(items)), "overlap"))

    def _first(self, items: Sequence[Item], count: int, stream: str) -> list[int]:
        keys = [derive(self.seed, stream, item.name) for item in items]
        return sorted(range(len(items)), key=keys.__getitem__)[:count]

    def shared(self, items: Sequence[Item]) -> list[list[int]]:
        """Return for every annotator the places of their images, in the order they are shown.

        Loads differ by at most one. Who meets whom on an image is drawn anew for each.
        """
        several = self.overlapping(items)
        # Those with several raters first: single ones then even out the loads.
        order = sorted(range(len(items)), key=lambda i: i not in several)
        load = np.zeros(self.annotators, np.int64)
        found: list[list[int]] = [[] for _ in range(self.annotators)]
        for i in order:
            chance = generator(self.seed, "who", items[i].name).random(self.annotators)
            raters = self.raters if i in several else 1
            for who in np.lexsort((chance, load))[:raters].tolist():
                load[who] += 1
                found[who].append(i)
        return [
            sorted(own, key=lambda i, who=who: derive(self.seed, "order", who, items[i].name))  # type: ignore[misc]
            for who, own in enumerate(found, 1)
        ]

    def swapped(self, annotator: int, item: Item) -> bool:
        """Say whether an annotator sees the counterfactual caption above the original one.

        Drawn for everyone and every image, so that a habit of choosing the first favours neither.
        """
        return derive(self.seed, "side", annotator, item.name) % 2 == 1
