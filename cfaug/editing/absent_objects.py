"""Editors that may give a caption an object which its photo lacks, and which objects it lacks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from annotated_types import MinLen

from cfaug.core.errors import UserError
from cfaug.core.types import Example
from cfaug.core.validation import Seed, check_fields
from cfaug.data.detections import DETECTIONS, detections_of
from cfaug.editing.paraphrase import LOCATIVE, QUANTIFIERS
from cfaug.editing.protocols import Tagger
from cfaug.editing.sentence import split
from cfaug.editing.word_lists import WordLists
from cfaug.editing.wordnet import WordNet

NEGATIONS = frozenset(
    ["no", "not", "n't", "n\u2019t", "without", "never", "none", "nothing", "nobody"]
)
COPULAS = frozenset(["is", "are", "was", "were"])
COUNTS = QUANTIFIERS | {
    "a", "an", "the", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
}  # fmt: skip
"""Words before a noun in whose place "no" or "any" stands."""
SENSES = 2
"""Number of senses of a word that are compared, the most frequent first."""
TOP = ("artifact", "whole", "organism", "substance", "instrumentality", "causal_agent")
"""Words whose sense is above so many others that sharing it says nothing."""
FUNCTION_WORDS = COUNTS | NEGATIONS | COPULAS | LOCATIVE | {"with", "and", "of"}
"""Words of captions whose noun senses ("an ampere" for "a") are not meant."""


@dataclass(frozen=True)
class ObjectNames:
    """The names of objects, and the ways in which a text may name them.

    Args:
        objects: the objects, singular; ``None`` takes the word lists' nouns, but not people.
    """

    objects: Sequence[str] | None
    wordnet: WordNet
    lists: WordLists

    def absent(self, texts: Sequence[str], names: Iterable[str] | None = None) -> list[str]:
        """Return the objects that no text names: by a word, another word of it, or a kind of it.

        Args:
            names: the objects to choose from; ``None`` for all.
        """
        runs: set[str] = set()
        for text in texts:
            words = [word.lower() for word in split(text).words]
            runs.update(words)
            runs.update(f"{first} {second}" for first, second in itertools.pairwise(words))
        known = [self._known(run) for run in runs]
        named = frozenset().union(*(senses for senses, _ in known))
        above = frozenset().union(*(over for _, over in known))
        absent = []
        for name in self._all if names is None else names:
            senses, over = self._known(name)
            forms = {name, self._plurals.get(name, f"{name}s"), name.split()[-1]}
            if not (runs & forms or senses & above or over & named):
                absent.append(name)
        return absent

    @cached_property
    def _all(self) -> tuple[str, ...]:
        if self.objects is not None:
            blank = [name for name in self.objects if not name.strip()]
            if blank:
                raise UserError("recipe.editor.objects: a name is empty; remove it")
            return tuple(dict.fromkeys(name.strip().lower() for name in self.objects))
        kinds = [kind for kind in self.lists.nouns if kind.name != "person"]
        return tuple(dict.fromkeys(name for kind in kinds for name in kind.plurals))

    @cached_property
    def _plurals(self) -> dict[str, str]:
        return {name: many for kind in self.lists.nouns for name, many in kind.plurals.items()}

    def _known(self, word: str) -> tuple[frozenset[int], frozenset[int]]:
        """Return the most frequent senses of a noun, and these with all above them but the top."""
        if word not in self._senses:
            senses = self.wordnet.senses(word, SENSES) if word not in FUNCTION_WORDS else []
            over = self.wordnet.above(senses) - self._top
            self._senses[word] = frozenset(sense.offset for sense in senses), frozenset(over)
        return self._senses[word]

    @cached_property
    def _senses(self) -> dict[str, tuple[frozenset[int], frozenset[int]]]:
        return {}

    @cached_property
    def _top(self) -> set[int]:
        """The senses that are above nearly everything: "thing" names no umbrella."""
        return {
            offset for word in TOP for offset in self.wordnet.above(self.wordnet.senses(word, 1))
        }


@dataclass(frozen=True)
class ObjectEditor:
    """An editor of several kinds, some of which add an object that a photo does not show.

    Args:
        kinds: the kinds of sets.
        per: ``caption`` makes one set of a caption, by an equally likely kind; ``kind`` makes one
            set for every kind that applies.
        objects: the objects that may be added, singular; ``null`` takes the word lists' nouns, but
            not people. An object is absent if neither the photo's captions nor its detections name
            it, another word of it, or a kind of it. Without detections a photo may show it all the
            same.
    """

    tagger: Tagger
    """the tagger of parts of speech"""
    kinds: Sequence[str]
    per: Literal["caption", "kind"] = "caption"
    objects: Annotated[Sequence[str], MinLen(1)] | None = None
    wordnet: WordNet = field(default_factory=WordNet)
    """the source of kinds and synonyms of objects"""
    lists: WordLists = field(default_factory=WordLists)
    """the nouns that may be added and their plurals, and the nouns of places"""
    seed: Seed = 0
    """the seed of what is drawn"""

    needs_siblings: ClassVar[bool] = True  # what another caption names is there

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def describe(self) -> dict[str, str]:
        """Return the descriptions of the tagger and of the lists."""
        return {**self.tagger.describe(), "objects": self.lists.describe()}

    def absent_objects(self, example: Example) -> list[str]:
        """Return the objects that neither captions of an example's photo nor detections name."""
        shown = shown_objects(example) if DETECTIONS in example.extra else []
        return self.names.absent([*texts_about(example), *shown])

    @cached_property
    def names(self) -> ObjectNames:
        """The names of the objects that may be added."""
        return ObjectNames(self.objects, self.wordnet, self.lists)


def shown_objects(example: Example) -> list[str]:
    """Return the names of the detected objects, each once."""
    return list(dict.fromkeys(each.label.lower() for each in detections_of(example)))


def texts_about(example: Example) -> list[str]:
    """Return all captions of an example's photo; an editor has to say ``needs_siblings``."""
    return [*example.texts, *(str(text) for text in example.extra.get("siblings", ()))]
