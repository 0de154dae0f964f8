"""Easy data augmentation (Wei and Zou, 2019), as in TextAttack's ``EasyDataAugmenter``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cfaug.core.types import Edited, Example
from cfaug.core.validation import Seed, Share, check_fields
from cfaug.editing.baselines.editor import (
    Rewriting,
    Words,
    edit_examples,
    pick,
    rewrite,
    word_spans,
)
from cfaug.editing.word_lists import NLTK_STOP_WORDS
from cfaug.editing.wordnet import Synonyms

KIND = "eda"
TRIES = 7
"""Largest number of words drawn for one place until one has synonyms (TextAttack)."""


@dataclass(frozen=True)
class EasyDataAugmentation:
    """Replaces words of a caption by synonyms, or deletes, swaps or inserts words.

    All four operations are tried, and all different resulting texts are equally likely.

    Args:
        share: the share of the words to change, rounded down, at least one word; 0.2 in XMAI
            (section 4.3), 0.1 in TextAttack. ``rewrite`` explains the count of changes.
        synonyms: the synonyms from WordNet. As in TextAttack, they have WordNet's form ("men":
            "man"), and stop words are protected only from replacement, "A" not at all.
        keep_unchanged: whether an unchanged text still has a proposal; see ``propose_change``.
        seed: the seed of the draws, together with the example's key.

    Raises:
        UserError: if a setting is invalid; it names the setting.
    """

    share: Share = 0.2
    synonyms: Synonyms = field(default_factory=Synonyms)
    keep_unchanged: bool = True
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal for the first text of each example, in order."""
        known = KnownSynonyms(self.synonyms)

        def change(words: Words, rng: np.random.Generator) -> Rewriting:
            return augment(words, self.share, known, rng)

        return edit_examples(examples, KIND, self.seed, change, keep_unchanged=self.keep_unchanged)

    def describe(self) -> dict[str, str]:
        """Return the source of the synonyms."""
        return {"synonyms": "WordNet"}


class KnownSynonyms:
    """The synonyms of words, looked up once each."""

    def __init__(self, synonyms: Synonyms) -> None:
        self._synonyms = synonyms
        self._known: dict[str, tuple[str, ...]] = {}

    def single(self, word: str) -> tuple[str, ...]:
        """Return the single words among the names of all senses, except the word itself, sorted."""
        if word not in self._known:
            names = {name for sense in self._synonyms.senses(word) for name in sense} - {word}
            self._known[word] = tuple(sorted(n for n in names if _is_single(n)))
        return self._known[word]

    def of_letters(self, word: str) -> tuple[str, ...]:
        """Return the single-word synonyms that consist of letters only."""
        return tuple(name for name in self.single(word) if name.isalpha())


def _is_single(name: str) -> bool:
    return "_" not in name and len(word_spans(name)) == 1


def augment(
    words: Words, share: float, synonyms: KnownSynonyms, rng: np.random.Generator
) -> Rewriting:
    """Return one of the four rewritings of a text; different texts are equally likely."""
    if not words.spans:
        return Rewriting(words)
    done = (
        rewrite(words, share, lambda one: _replace(one, synonyms, rng)),
        delete_words(words, share, rng),
        rewrite(words, share, lambda one: _swap(one, rng)),
        rewrite(words, share, lambda one: _insert(one, synonyms, rng)),
    )
    texts = {one.words.text: one for one in reversed(done)}
    return texts[sorted(texts)[pick(rng, len(texts))]]


def _replace(
    done: Rewriting, synonyms: KnownSynonyms, rng: np.random.Generator
) -> Rewriting | None:
    """Replace a word by a synonym; all pairs of word and synonym are equally likely."""
    words = done.words
    pairs = [
        (i, name)
        for i in words.unmodified
        if words.words[i] not in NLTK_STOP_WORDS
        for name in synonyms.single(words.words[i])
    ]
    if not pairs:
        return None
    index, name = pairs[pick(rng, len(pairs))]
    return done.then(words.replace(index, name), "synonym", words.words[index], name)


def _swap(done: Rewriting, rng: np.random.Generator) -> Rewriting | None:
    """Exchange an unchanged word with any other word."""
    words, free = done.words, done.words.unmodified
    if not free or len(words.spans) < 2:
        return None
    index = free[pick(rng, len(free))]
    other = pick(rng, len(words.spans) - 1)
    other += other >= index
    first, second = words.words[index], words.words[other]
    swapped = words.replace(index, second).replace(other, first)
    return done.then(swapped, "swap", first, second)


def _insert(done: Rewriting, synonyms: KnownSynonyms, rng: np.random.Generator) -> Rewriting | None:
    """Insert a synonym of a random word at a random place, unless a place finds no synonym.

    Every place draws its synonym before one of them is chosen: if one place finds none in seven
    draws, no word is inserted.
    """
    words, free = done.words, done.words.unmodified
    if not free:
        return None
    found = []
    for _ in free:
        name = _draw_synonym(words, synonyms, rng)
        if name is None:
            return done
        found.append(name)
    place = pick(rng, len(free))
    index, name = free[place], found[place]
    return done.then(words.insert(index, name), "insertion", "", name)


def _draw_synonym(words: Words, synonyms: KnownSynonyms, rng: np.random.Generator) -> str | None:
    """Return a random synonym of a random word that has any, after at most ``TRIES`` draws."""
    for _ in range(TRIES):
        names = synonyms.of_letters(words.words[pick(rng, len(words.spans))])
        if names:
            return names[pick(rng, len(names))]
    return None


# Random deletion of words: TextAttack's ``DeletionAugmenter`` with its default settings.

DELETION = "deletion"


@dataclass(frozen=True)
class RandomDeletion:
    """Deletes random words of a caption, all equally likely, stop words included.

    Args:
        share: the share of the words to delete, rounded down, at least one word; 0.1 in XMAI
            (section 4.3 and its notebook). A caption of one word stays unchanged.
        keep_unchanged: whether an unchanged text still has a proposal; see ``propose_change``.
        seed: the seed of the draws, together with the example's key.

    Raises:
        UserError: if a setting is invalid; it names the setting.
    """

    share: Share = 0.1
    keep_unchanged: bool = True
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal for the first text of each example, in order."""

        def change(words: Words, rng: np.random.Generator) -> Rewriting:
            return delete_words(words, self.share, rng)

        return edit_examples(
            examples, DELETION, self.seed, change, keep_unchanged=self.keep_unchanged
        )

    def describe(self) -> dict[str, str]:
        """Return an empty mapping: a plain rule."""
        return {}


def delete_words(words: Words, share: float, rng: np.random.Generator) -> Rewriting:
    """Delete a share of the words, one after another; the last remaining word stays."""

    def step(done: Rewriting) -> Rewriting | None:
        if len(done.words.spans) <= 1:
            return None
        index = pick(rng, len(done.words.spans))
        return done.then(done.words.replace(index, ""), DELETION, done.words.words[index], "")

    return rewrite(words, share, step)
