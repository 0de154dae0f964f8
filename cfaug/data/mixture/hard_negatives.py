"""The counterfactuals of pairs as wrong answers: the controls of training on them as examples.

An arm keeps the positive examples, steps and originals of the pairs; only the use of the
counterfactuals changes (``data.negatives``). Every set fills two places of an epoch:

=========  ======================  ==========================================================
negatives  two positive examples   wrong answers beside those of every batch
=========  ======================  ==========================================================
none       the original, twice     none: plain fine-tuning on the same captions and images
text       the original, twice     the counterfactual's caption, for every image of the batch
image      the original, twice     the counterfactual's image, for every caption of the batch
both       original,               none, since both are in one batch: each member's caption
           counterfactual          is wrong about the other's image, and right about its own
=========  ======================  ==========================================================

A source with wrong captions without an image (TROHN-Text, NegCLIP's list) fills one place for each
row: ``text`` uses these captions as the wrong answers, ``none`` leaves them out.

``text`` is NegCLIP's (Yuksekgonul et al., 2023, section 4.1) and TROHN-Text's, ``both`` is
TROHN-Img's, ``none`` is CLIP_COCO's part (Miranda et al., 2024, BiVLC, section 5 and
``CLIP_fine_tuning.py``). Theirs differ in the number of positive examples an epoch; here the
numbers are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.core.text import normalise_caption
from cfaug.data.grids import NEUTRAL
from cfaug.data.mixture.pool import first_members
from cfaug.data.mixture.records import COUNTERFACTUAL, Mixture, count_earlier
from cfaug.data.mixture.settings import Captions

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.settings import Negatives


WITH_IMAGES = ("image", "both")
"""Choices that need two images for each pair."""


def find_pairs(index: Index, negatives: Negatives) -> np.ndarray:
    """Return a mask of the rows that belong to pairs with different captions, bool (rows,).

    Sets of another size, and pairs of equal captions, neither of which is wrong about the other's
    image, are not drawn in any arm.

    From a source with negatives, the rows that have one are drawn.
    """
    if index.has_negatives:
        if negatives in WITH_IMAGES:
            raise UserError(
                f"data.negatives={negatives} needs an image of every counterfactual, and "
                f"{index.source} has wrong captions without one: choose data.negatives=text or none"
            )
        return np.array([bool(index.negatives(row)) for row in range(len(index.sets))], bool)
    sets = np.asarray(index.sets)
    sizes = np.bincount(sets) if len(sets) else sets
    paired = sizes[sets] == 2
    first = np.flatnonzero(paired & first_members(index)) if len(sets) else sets
    other = [
        normalise_caption(index.text(row)) != normalise_caption(index.text(row + 1))
        for row in first.tolist()
    ]
    first = first[np.array(other, bool)]
    if not len(first):
        raise UserError(
            f"data.negatives={negatives} needs pairs of an original and its counterfactual, and "
            f"data.counterfactual={index.source} has no set of two captions that differ: name a "
            "source of pairs, or data.negatives=null"
        )
    contents = np.asarray(index.contents) if negatives in WITH_IMAGES else np.arange(len(sets))
    same = np.flatnonzero(contents[first] == contents[first + 1])
    if len(same):
        raise UserError(
            f"data.negatives={negatives} needs an image of every counterfactual, and "
            f"{len(same):,} of {len(first):,} pairs of {index.source} show one image, such as "
            f"{index.key(int(first[same[0]]))}: choose data.negatives=text or none"
        )
    mask = np.zeros(len(sets), bool)
    mask[first] = mask[first + 1] = True
    return mask


def keep_whole_sets(index: Index, rows: np.ndarray) -> np.ndarray:
    """Return a mask of the rows that remain after dropping sets with a row that is left out.

    Args:
        rows: the rows that may be drawn, bool (rows,).
    """
    sets = np.asarray(index.sets)
    broken = np.zeros(int(sets[-1]) + 1 if len(sets) else 0, bool)
    broken[sets[~rows]] = True
    return rows & ~broken[sets]


def find_originals(index: Index, rows: np.ndarray) -> np.ndarray:
    """Return the first row of each row's set, int64 (n,)."""
    sets = np.asarray(index.sets)
    return np.searchsorted(sets, sets[rows], "left").astype(np.int64)


def show_originals(mixture: Mixture, index: Index, negatives: Negatives) -> Mixture:
    """Return a mixture of pairs in the form for training an arm, with counts of wrong answers.

    All arms except ``both`` are trained on the originals, each as often as members of its set were
    drawn: the mixture numbers the visits of each example, and validation uses each example once.
    Counts are of places of an epoch: ``text_negatives`` of images that have their pair's wrong
    caption among their choices, ``image_negatives`` of captions that have its wrong image.

    Args:
        mixture: a mixture whose counterfactual rows belong to pairs, drawn by group.
    """
    train, held = mixture.train.copy(), mixture.validation.copy()
    drawn = train[:, 0] == COUNTERFACTUAL
    if index.has_negatives:
        lengths = [len(index.negatives(row)) for row in train[drawn, 1].tolist()]
        added = {"text_negatives": sum(lengths) if negatives == "text" else 0, "image_negatives": 0}
        return replace(mixture, counts={**mixture.counts, **added})
    sets = np.asarray(index.sets)[train[drawn, 1]]
    if negatives == "both":
        whole = int((np.unique(sets, return_counts=True)[1] == 2).sum())
        counts = {"text_negatives": 2 * whole, "image_negatives": 2 * whole}
        return replace(mixture, counts={**mixture.counts, **counts})
    train[drawn, 1] = find_originals(index, train[drawn, 1])
    of_pairs = held[:, 0] == COUNTERFACTUAL
    held[of_pairs, 1] = find_originals(index, held[of_pairs, 1])
    held = held[np.sort(np.unique(held, axis=0, return_index=True)[1])]
    visits = np.zeros(len(train), np.int8)
    visits[drawn] = count_earlier(sets)
    places = int(drawn.sum())
    counts = {
        "validation": len(held),
        "text_negatives": places if negatives == "text" else 0,
        "image_negatives": places if negatives == "image" else 0,
    }
    return replace(
        mixture, train=train, validation=held, visits=visits,
        counts={**mixture.counts, **counts},
    )  # fmt: skip


# The counterfactual of a pair, as a wrong answer for its original.


@dataclass(frozen=True)
class PairNegatives:
    """The parts of pairs' counterfactuals that are wrong answers for the rows of their originals.

    Attributes:
        kind: the parts in use: ``text`` for captions, ``image`` for images; others use none.
    """

    index: Index
    kind: Negatives

    def row(self, original: int) -> int:
        """Return the row of the counterfactual of an original: the second of its set."""
        return int(find_originals(self.index, np.array([original]))[0]) + 1

    def text(self, original: int) -> str:
        """Return the caption of the counterfactual of an original."""
        return self.index.text(self.row(original))


# The training captions of counterfactual sets: own, neutral or shuffled captions.


@dataclass(frozen=True)
class SetCaptions:
    """The training captions of a counterfactual source's images.

    Attributes:
        kind: the kind of captions: ``own``, as in the source; ``neutral``, the set's neutral prompt
            for all its images; or ``shuffled``, the captions of a set permuted among its images, so
            that the attributes in them are random and everything else is unchanged.
        seed: the seed of the permutations; a set's permutation depends only on it and on the key.
    """

    index: Index
    kind: Captions = "own"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind == NEUTRAL:
            require_neutral(self.index, f"data.counterfactual_captions={NEUTRAL}")

    def text(self, row: int) -> str:
        """Return the training caption of a row."""
        if self.kind == "own":
            return self.index.text(row)
        if self.kind == "shuffled":
            sets, key = self.index.sets, self.index.key(row).rpartition("_")[0]
            start, end = (int(np.searchsorted(sets, sets[row], s)) for s in ("left", "right"))
            order = generator(self.seed, "shuffled captions", key).permutation(end - start)
            return self.index.text(start + int(order[row - start]))
        prompt = self.neutral(row)
        if prompt is None:
            raise UserError(
                f"{self.index.source}: {self.index.key(row)} has no neutral prompt, which "
                f"data.counterfactual_captions={NEUTRAL} needs of every image"
            )
        return prompt

    def neutral(self, row: int) -> str | None:
        """Return the neutral prompt of a row's set, if it has one."""
        prompt: str | None = self.index.extra(NEUTRAL)[row].as_py()
        return prompt


def require_neutral(index: Index, setting: str) -> None:
    """Refuse a source that has no neutral prompts, which a setting needs."""
    if NEUTRAL not in index.extra_names:
        raise UserError(
            f"{setting} needs the neutral prompt of every set, and {index.source} has no column "
            f"{NEUTRAL!r}: recipes of grids write it with every member, and so may a "
            "list of your own; or leave the setting out"
        )
