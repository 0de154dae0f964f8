"""What the answers say: Table 1, agreement, errors and what they have in common (COCO-CFs, A.3)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cfaug.annotation.answers import Answer
from cfaug.annotation.assignment import CHOICES, Item
from cfaug.caption_difference import altered_subjects
from cfaug.errors import UserError
from cfaug.metrics.agreement import coincidence_matrix, fleiss_kappa, krippendorff_alpha
from cfaug.rng import derive

CORRECT, INCORRECT, NEITHER, BOTH = OUTCOMES = ("correct", "incorrect", "neither", "both")
"""An answer from the image's side, in the order of the paper's Table 1."""

HUMAN = frozenset({
    "girl", "boy", "man", "men", "woman", "guy", "kid", "person", "people", "child", "children",
    "couple", "group", "lady",
})  # fmt: skip
"""Words of the human taxonomy (COCO-CFs, A.3.2)."""


def outcome(item: Item, label: str) -> str:
    """Return whether an answer chose the image's own caption, the other one, neither or both."""
    if label in (NEITHER, BOTH):
        return label
    return CORRECT if label == item.own else INCORRECT


@dataclass(frozen=True)
class Tally:
    """A row of Table 1.

    Attributes:
        name: which images.
        images: how many were answered.
        answers: how many answers they got.
        counts: {outcome: images}; an image with several answers counts once, in equal parts.
    """

    name: str
    images: int
    answers: int
    counts: Mapping[str, float]

    def share(self, found: str) -> float:
        """Return the share of the images, ``nan`` without any."""
        return self.counts[found] / self.images if self.images else math.nan


@dataclass(frozen=True)
class Agreement:
    """How far several annotators of one image agree.

    Attributes:
        raters: answers to each image that Fleiss' kappa is over: as many as the images have that
            hold most of the answers; of two such numbers, the larger.
        images: how many images have so many.
        fleiss: over those; ``nan`` if fewer than two people answered anything.
        several: images with two or more answers, which alpha is over.
        alpha: Krippendorff's, nominal.
        disputed: of those, images whose answers differ.
        labels: share of the answers to the disputed ones by outcome.
        matrix: how often two answers to an image are a pair of outcomes, (4, 4), in the order of
            ``OUTCOMES``; an image counts as often as it has answers.
    """

    raters: int
    images: int
    fleiss: float
    several: int
    alpha: float
    disputed: int
    labels: Mapping[str, float]
    matrix: np.ndarray


@dataclass(frozen=True)
class Rate:
    """How often some images came out wrong: ``errors`` of ``images``."""

    images: int
    errors: int

    @property
    def share(self) -> float:
        """The share of errors, ``nan`` without images."""
        return self.errors / self.images if self.images else math.nan


@dataclass(frozen=True)
class Findings:
    """The answers to some images, and what follows from them.

    Attributes:
        items: the images that could be asked about.
        answers: each at most once an annotator and image.
    """

    items: Sequence[Item]
    answers: Sequence[Answer]

    @cached_property
    def by_item(self) -> dict[int, list[str]]:
        """The answers to each image, by its place, in the order of the source."""
        found: dict[int, list[str]] = {}
        for answer in sorted(self.answers, key=lambda a: (a.item, a.annotator)):
            found.setdefault(answer.item, []).append(answer.label)
        return found

    @cached_property
    def annotators(self) -> list[str]:
        """Who answered, numbers in their order."""
        names = {answer.annotator for answer in self.answers}
        return sorted(names, key=lambda n: (not n.isdecimal(), len(n) if n.isdecimal() else 0, n))

    def table_1(self) -> tuple[Tally, Tally, Tally]:
        """Return the rows of Table 1: images of original captions, of counterfactual ones, all."""
        return (
            self._tally("Generated from original caption", {0}),
            self._tally("Generated from counterfactual caption", {1}),
            self._tally("All images", {0, 1}),
        )

    def _tally(self, name: str, members: set[int]) -> Tally:
        own = {i: a for i, a in self.by_item.items() if self.items[i].member in members}
        counts = dict.fromkeys(OUTCOMES, 0.0)
        for i, labels in own.items():
            for label in labels:
                counts[outcome(self.items[i], label)] += 1 / len(labels)
        return Tally(name, len(own), sum(map(len, own.values())), counts)

    def is_validated(self, i: int) -> bool:
        """Say whether more than half of an image's answers chose its own caption."""
        labels = self.by_item[i]
        return 2 * labels.count(self.items[i].own) > len(labels)

    @cached_property
    def errors(self) -> list[int]:
        """Places of the images that were answered and not matched to their own caption.

        COCO-CFs, A.3: the annotator did not select the correct caption; of several, most did not.
        """
        return [i for i in self.by_item if not self.is_validated(i)]

    def sampled_errors(self, count: int, seed: int) -> list[int]:
        """Draw errors by key, in the order of the draw; all, if there are fewer.

        Raises:
            UserError: if ``count`` is no number from 1.
        """
        if type(count) is not int or count < 1:
            raise UserError(f"{count} errors cannot be sorted: choose 1 or more")
        keys = {i: derive(seed, "error", self.items[i].name) for i in self.errors}
        return sorted(keys, key=keys.__getitem__)[:count]

    def agreement(self) -> Agreement:
        """Measure agreement on the images that several annotators answered."""
        several = {i: labels for i, labels in self.by_item.items() if len(labels) > 1}
        times = Counter(map(len, several.values()))
        # One image that somebody more has answered is no reason to leave out all the others.
        raters = max(times, key=lambda n: (n * times[n], n), default=0)
        full = [labels for labels in several.values() if len(labels) == raters]
        disputed = {i: labels for i, labels in several.items() if len(set(labels)) > 1}
        outcomes = Counter(
            outcome(self.items[i], label) for i, labels in disputed.items() for label in labels
        )
        return Agreement(
            raters=raters,
            images=len(full),
            fleiss=fleiss_kappa([[labels.count(c) for c in CHOICES] for labels in full]),
            several=len(several),
            alpha=self._alpha(several),
            disputed=len(disputed),
            labels={name: outcomes[name] / max(1, outcomes.total()) for name in OUTCOMES},
            matrix=self._matrix(several),
        )

    def _alpha(self, several: Mapping[int, list[str]]) -> float:
        place = {i: row for row, i in enumerate(several)}
        column = {name: i for i, name in enumerate(self.annotators)}
        table = np.full((len(several), len(column)), np.nan)
        for answer in self.answers:
            if answer.item in place:
                row, who = place[answer.item], column[answer.annotator]
                table[row, who] = CHOICES.index(answer.label)
        return krippendorff_alpha(table)

    def _matrix(self, several: Mapping[int, list[str]]) -> np.ndarray:
        if not several:
            return np.zeros((len(OUTCOMES), len(OUTCOMES)))
        counts = np.array(
            [
                [[outcome(self.items[i], label) for label in labels].count(o) for o in OUTCOMES]
                for i, labels in several.items()
            ],
            np.float64,
        )
        return coincidence_matrix(counts)

    def altered_in_errors(self) -> list[tuple[str, str, int]]:
        """Return (before, after, errors) of the altered subjects, most errors first (Table 10)."""
        counts = Counter(altered_subjects(*self.items[i].texts) for i in self.errors)
        ordered = sorted(counts.items(), key=lambda found: (-found[1], found[0]))
        return [(before, after, count) for (before, after), count in ordered]

    def human(self) -> Rate:
        """Return how often images of a human subject came out wrong (COCO-CFs, A.3.2).

        An image is one if the altered subject of its own caption is a word of the taxonomy.
        """
        own = [i for i in self.by_item if self._subject(i) in HUMAN]
        return Rate(len(own), len(set(own) & set(self.errors)))

    def by_hyponymy(self, related: Callable[[str, str], bool]) -> tuple[Rate, Rate]:
        """Return how often images came out wrong whose subjects are kinds of each other, or not.

        Where one is a kind of the other both captions may fit an image (COCO-CFs, A.3.1).

        Args:
            related: says whether of two nouns one is a kind of the other.
        """
        wrong = set(self.errors)
        known: dict[tuple[str, str], bool] = {}
        counts = {True: [0, 0], False: [0, 0]}
        for i in self.by_item:
            subjects = altered_subjects(*self.items[i].texts)
            if subjects not in known:
                known[subjects] = related(*subjects)
            counts[known[subjects]][0] += 1
            counts[known[subjects]][1] += i in wrong
        return Rate(*counts[True]), Rate(*counts[False])

    def _subject(self, i: int) -> str:
        return altered_subjects(*self.items[i].texts)[self.items[i].member]

    def label_lines(self) -> Iterator[dict[str, object]]:
        """Yield every answer as ``data.human_labels`` reads it, in the order of the source."""
        for answer in sorted(self.answers, key=lambda a: (a.item, a.annotator)):
            item = self.items[answer.item]
            yield {
                "key": item.key,
                "member": item.member,
                "annotator": answer.annotator,
                "label": answer.label,
            }
