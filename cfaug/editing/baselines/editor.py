"""The shared code of the baselines, and easy data augmentation (EDA)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cfaug.core.rng import generator
from cfaug.core.types import Edited, Example
from cfaug.core.validation import Seed, Share, check_fields
from cfaug.editing.protocols import propose_change
from cfaug.editing.sentence import normalise
from cfaug.editing.word_lists import NLTK_STOP_WORDS
from cfaug.editing.wordnet import Synonyms

NO_WORDS = "no_words"
"""Reason of an unchanged text that has only punctuation."""
NO_CANDIDATE = "no_candidate"
"""Reason of an unchanged text to which no rule applies."""
TOO_LONG = "max_words"
"""Reason of an unchanged text that is longer than a caption."""
MOST_WORDS = 300
"""Largest number of words of a text to rewrite: every change searches the whole text, so that the
work grows with the square of its length. TextAttack has no limit; captions have about ten words."""


@dataclass(frozen=True)
class Rewriting:
    """A text after some changes.

    Attributes:
        words: the text after the changes.
        changes: the changes in order, as JSON: ``operation``, ``before`` and ``after``.
    """

    words: Words
    changes: tuple[dict[str, Any], ...] = field(default_factory=tuple)

    def then(self, words: Words, operation: str, before: str, after: str) -> Rewriting:
        """Return the text after one more change."""
        change = {"operation": operation, "before": before, "after": after}
        return Rewriting(words, (*self.changes, change))

    @property
    def reason(self) -> str:
        """The reason why the text is unchanged; meaningless if it is changed."""
        if len(self.words.spans) > MOST_WORDS:
            return TOO_LONG
        return NO_CANDIDATE if self.words.spans else NO_WORDS


Step = Callable[[Rewriting], Rewriting | None]
"""A function that makes one more change to a text; it returns ``None`` if no change applies."""


def rewrite(words: Words, share: float, step: Step) -> Rewriting:
    """Change a text until enough of its words are changed, like TextAttack's augmenters.

    Args:
        share: the share of its words to change; at least one word. Every step counts as one word,
            or as the number of words changed by then if that is larger: an inserted word counts
            together with the word after it, exchanged words count as two.
        step: the function that makes one change.

    Returns:
        The changed text; a text of more than ``MOST_WORDS`` words is returned unchanged.
    """
    done, count = Rewriting(words), 0
    if len(words.spans) > MOST_WORDS:
        return done
    wanted = count_changes(share, len(words.spans))
    while count < wanted:
        further = step(done)
        if further is None:
            break
        done, count = further, max(len(further.words.modified), count + 1)
    return done


def draw_for(seed: int, method: str, examples: Sequence[Example]) -> list[np.random.Generator]:
    """Return a random generator for each example, keyed by its key, the method and the seed."""
    return [generator(seed, method, example.key) for example in examples]


def pick(rng: np.random.Generator, count: int) -> int:
    """Return a uniformly random number from 0 to ``count - 1``."""
    return int(rng.integers(count))


def edit_examples(
    examples: Sequence[Example],
    kind: str,
    seed: int,
    change: Callable[[Words, np.random.Generator], Rewriting],
    *,
    keep_unchanged: bool,
) -> list[Edited]:
    """Return one proposal for the first text of each example, in order.

    Args:
        kind: the kind of the edits, which also keys their draws.
        seed: the seed of the draws, together with the example's key.
        change: the function that changes the words of one text.
        keep_unchanged: whether an unchanged text still has a proposal; see ``propose_change``.
    """
    edited = []
    for example, rng in zip(examples, draw_for(seed, kind, examples), strict=True):
        done = change(Words.read(normalise(example.text)), rng)
        edited.append(
            propose_change(
                example, done.words.text, kind,
                changes=done.changes, reason=done.reason, keep_unchanged=keep_unchanged,
            )
        )  # fmt: skip
    return edited


_RUN = re.compile(r"[\w'*@`˗×-]+")
"""Letters, digits and the signs that TextAttack 0.3.8 allows within a word."""
_NOT_FIRST = "'-_*@"
"""Signs that no word begins with; in version 0.3.8 a word may end with them."""


def word_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return the characters (start, end) of every word; punctuation is not a word.

    >>> word_spans("'tis a dog's -")
    ((1, 4), (5, 6), (7, 12))
    """
    found = []
    for match in _RUN.finditer(text):
        start = match.end() - len(match.group().lstrip(_NOT_FIRST))
        if start < match.end():
            found.append((start, match.end()))
    return tuple(found)


@dataclass(frozen=True)
class Words:
    """A text, the places of its words, and the changed ones among them.

    Attributes:
        spans: the characters (start, end) of every word.
        modified: the indices of the words that were changed or added: rules do not change them
            again, and are applied until there are enough.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    modified: frozenset[int] = frozenset()

    @classmethod
    def read(cls, text: str) -> Words:
        """Return a text with its words, all unchanged."""
        return cls(text, word_spans(text))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words."""
        return tuple(self.text[start:end] for start, end in self.spans)

    @property
    def unmodified(self) -> list[int]:
        """The numbers of the words that were not changed, in order."""
        return [i for i in range(len(self.spans)) if i not in self.modified]

    def replace(self, index: int, words: str) -> Words:
        """Replace one word by a text: another word, several words, or none.

        With a deleted word, the space before it is deleted, or after it for the first word. Later
        words that were changed stay marked as changed under their new indices.

        Args:
            index: the index of the word.
            words: the new text; empty deletes the word.

        >>> Words.read("a dog sits").replace(1, "big dog").modified
        frozenset({1, 2})
        """
        start, end = self.spans[index]
        before, after = self.text[:start], self.text[end:]
        new = len(word_spans(words))
        if new == 0 and after:
            if index == 0:
                after = after.removeprefix(" ")
            else:
                before = before.removesuffix(" ")
        shift = new - 1
        kept = {
            i if i < index else i + shift
            for i in self.modified
            if i != index or shift == 0
        }  # fmt: skip
        same = words == self.text[start:end]
        came = () if same else range(index, index + new)
        return Words(text := f"{before}{words}{after}", word_spans(text), frozenset((*kept, *came)))

    def insert(self, index: int, word: str) -> Words:
        """Insert a word before another; both then count as changed, as in TextAttack."""
        start, end = self.spans[index]
        return self.replace(index, f"{word} {self.text[start:end]}")


def count_changes(share: float, words: int) -> int:
    """Return the number of a text's words to change: a share of them, at least one.

    >>> count_changes(0.1, 9), count_changes(0.2, 15)
    (1, 3)
    """
    return max(int(share * words), 1)


# Easy data augmentation (Wei and Zou, 2019), as in TextAttack's ``EasyDataAugmenter``.

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
