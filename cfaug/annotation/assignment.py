"""The assignment of images to annotators, and their order, drawn by key to be reproducible.

COCO-CFs, section 4.1: every image is shown to at least one annotator, a tenth of them to three, so
34,820 images make 34,820 + 2 x 3,482 = 41,784 questions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Interval

from cfaug.annotation.question import AnnotationQuestion
from cfaug.annotation.records import ImageItem
from cfaug.core.errors import UserError
from cfaug.core.rng import derive, generator
from cfaug.core.validation import Positive, Seed, Share, check_fields
from cfaug.data.mixture.records import decimal, half_up
from cfaug.settings.read_if import GIVEN, ReadIf

if TYPE_CHECKING:
    from cfaug.data.index import Index


PREFIX = "annotate.assignment."
"""Prefix of the settings below on the command line."""


def items_of(index: Index, question: AnnotationQuestion) -> list[ImageItem]:
    """Return all items of a source for a question, in order.

    That is every image, or with ``show_caption`` every caption of every image.
    """
    items: list[ImageItem] = []
    starts = [0, *(np.flatnonzero(np.diff(index.sets)) + 1).tolist(), len(index)]
    for first, end in pairwise(starts):
        rows = range(first, end)
        names, images = [index.key(row) for row in rows], index.images[first:end].tolist()
        key = names[0].rpartition("_")[0]
        if question.captions or question.pictures == "set":
            count = len(question.captions) or len(names)
            whole = names == [f"{key}_{number}" for number in range(count)]
            if not whole or len(set(images)) < count:
                hint = ""
                if len(set(images)) == len(names) > count:
                    others = ",".join(f"edited_{number}" for number in range(1, len(names)))
                    hint = (
                        f"; annotate.question.captions=[original,{others}] offers those of "
                        f"{len(names)} images"
                    )
                raise UserError(
                    f"{index.source}: set {key!r} does not have {count} captions with an image "
                    f"each, which the question {question.title!r} compares{hint}"
                )
        texts = tuple(index.text(row) for row in rows)
        known: set[int] = set()
        for row, name, image, text in zip(rows, names, images, texts, strict=True):
            if question.show_caption or image not in known:
                known.add(image)
                items.append(ImageItem(key, int(name.rpartition("_")[2]), texts, row, text))
    return items if question.strata is None else question.strata.mark(index, items)


@dataclass(frozen=True)
class Assignment:
    """The distribution of the images over annotators.

    Args:
        annotators: number of people who answer; their names are 1, 2, ...
        annotators_per_item: number of annotators who answer each image of the overlap; the other
            images are answered once.
        overlap_fraction: share of the images that several people answer, to measure agreement.
        sample: number of images to ask about, drawn at random; ``None`` for all.

    Raises:
        UserError: if a value is out of range.
    """

    annotators: Annotated[int, Interval(ge=1, le=1000)] = 3
    annotators_per_item: Annotated[int, ReadIf({"overlap_fraction": GIVEN})] = 3
    overlap_fraction: Share = 0.1
    sample: Positive | None = None
    seed: Seed = 0
    """the seed of what is drawn"""

    def __post_init__(self) -> None:
        check_fields(self, "annotate.assignment")
        share, several = self.overlap_fraction, self.annotators_per_item
        if several < 2:
            raise _invalid(
                "annotators_per_item", several,
                f"agreement needs 2 or more; {PREFIX}overlap_fraction=0 asks everything once",
            )  # fmt: skip
        if share > 0 and several > self.annotators:
            raise _invalid(
                "annotators_per_item", several,
                f"{PREFIX}annotators={self.annotators} people answer; raise that, lower this, or "
                f"set {PREFIX}overlap_fraction=0",
            )  # fmt: skip

    def choose_items(self, items: Sequence[ImageItem]) -> list[ImageItem]:
        """Return the images to ask about, in the order of the source."""
        if self.sample is None or self.sample >= len(items):
            return list(items)
        return [items[i] for i in sorted(self._first(items, self.sample, "sample"))]

    def choose_overlap(self, items: Sequence[ImageItem]) -> set[int]:
        """Return the indices of the images that several people answer.

        Their number is the share of the images, rounded half up: 3,482 of 34,820.
        """
        count = half_up(decimal(self.overlap_fraction) * len(items))
        return set(self._first(items, count, "overlap"))

    def _first(self, items: Sequence[ImageItem], count: int, stream: str) -> list[int]:
        keys = [derive(self.seed, stream, item.name) for item in items]
        return sorted(range(len(items)), key=keys.__getitem__)[:count]

    def distribute(
        self, items: Sequence[ImageItem], to_everyone: Collection[int] = ()
    ) -> list[list[int]]:
        """Return the indices of every annotator's images, in the order shown.

        Loads differ by at most one. The group of annotators is drawn independently for each image.

        Args:
            to_everyone: indices of images that all annotators answer, such as those of a screening.
        """
        several = self.choose_overlap(items)
        # Images with several annotators come first, so that single ones can even out the loads.
        order = sorted(range(len(items)), key=lambda i: (i not in to_everyone, i not in several))
        load = np.zeros(self.annotators, np.int64)
        assigned: list[list[int]] = [[] for _ in range(self.annotators)]
        for i in order:
            chance = generator(self.seed, "who", items[i].name).random(self.annotators)
            count = self.annotators_per_item if i in several else 1
            count = self.annotators if i in to_everyone else count
            for who in np.lexsort((chance, load))[:count].tolist():
                load[who] += 1
                assigned[who].append(i)
        return [
            sorted(indices, key=lambda i, who=who: derive(self.seed, "order", who, items[i].name))  # type: ignore[misc]
            for who, indices in enumerate(assigned, 1)
        ]

    def is_reversed(self, annotator: int, item: ImageItem) -> bool:
        """Return whether an annotator sees the offered captions of an image in reverse order.

        The order is drawn for each annotator and image, so that a habit of choosing the first
        caption favours neither.
        """
        return derive(self.seed, "side", annotator, item.name) % 2 == 1

    def reversed_half(self, annotator: int, items: Sequence[ImageItem]) -> set[str]:
        """Return the names of the images whose captions an annotator sees in reverse order.

        Half of the images are drawn by key; half of an odd number is rounded down.

        Args:
            annotator: the number of the annotator, from 1.
        """
        drawn = sorted(items, key=lambda item: derive(self.seed, "half", annotator, item.name))
        return {item.name for item in drawn[: len(drawn) // 2]}


def _invalid(name: str, value: object, choices: str) -> UserError:
    return UserError(f"{PREFIX}{name}={value} is invalid: {choices}")
