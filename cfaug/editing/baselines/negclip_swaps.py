"""NegCLIP's negative captions: two elements of one kind exchange places.

The method is that of Yuksekgonul et al., 2023, section 4.1, and of the authors' script (linked from
issue 13 of ``mertyg/vision-language-models-are-bows``). The elements are noun phrases of more than
two words, verb phrases, nouns, plural nouns, adverbs and adjectives. The script finds them with
spaCy, this module by the words' tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Literal, get_args

import numpy as np
from annotated_types import MinLen

from cfaug.core.types import Edited, Example
from cfaug.core.validation import Seed, check_fields
from cfaug.core.words import right_articles
from cfaug.editing.baselines.editor import MOST_WORDS, NO_CANDIDATE, TOO_LONG, draw_for, pick
from cfaug.editing.protocols import Tagger, propose_change
from cfaug.editing.sentence import Sentence, Slot, normalise, split

METHOD = "negclip_swaps"

Kind = Literal["noun_phrase", "verb_phrase", "noun", "plural_noun", "adverb", "adjective"]
"""The kinds of elements that exchange places, in the order of the authors' script."""

LONG_PHRASE = 3
"""Number of words of the shortest noun phrase that is exchanged (the script's ``> 2``)."""

_IN_CHUNK = ("JJ", "CD", "NN", "POS", "VBN")
_BEGINS = ("DT", "PRP$", "PDT")


@dataclass(frozen=True)
class NegclipSwaps:
    """Exchanges two elements of a caption, so that the same words have another meaning.

    All pairs of a kind that change the text are equally likely. The script draws a pair first and
    abandons the kind if that pair changes nothing; it exchanges every occurrence, and writes
    phrases in lower case.

    Args:
        tagger: the part-of-speech tagger that finds the elements.
        kinds: the kinds to exchange; a caption without two elements of any kind gives no set.
        per: ``caption`` makes one set of a caption, by an equally likely kind, as NegCLIP's
            training draws one of its negatives; ``kind`` makes one set for every applicable kind.
        repair_article: whether "a" becomes "an" where the new word needs it. It does not in the
            script, which reveals the edit to models that see only texts.
        seed: the seed of the draws, together with the example's key.

    Raises:
        UserError: if a setting is invalid; it names the setting.
    """

    tagger: Tagger
    kinds: Annotated[Sequence[Kind], MinLen(1)] = get_args(Kind)
    per: Literal["caption", "kind"] = "caption"
    repair_article: bool = False
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the proposals for the first text of each example, in order."""
        sentences = [split(normalise(example.text)) for example in examples]
        tags = self.tagger.tag([sentence.words for sentence in sentences])
        draws = draw_for(self.seed, METHOD, examples)
        return [self._edit(*one) for one in zip(examples, sentences, tags, draws, strict=True)]

    def describe(self) -> dict[str, str]:
        """Return the description of the tagger."""
        return self.tagger.describe()

    def _edit(
        self, example: Example, sentence: Sentence, tags: Sequence[str], rng: np.random.Generator
    ) -> Edited:
        if len(sentence.words) > MOST_WORDS:
            return Edited((), {TOO_LONG: 0})
        swaps = {kind: self._swap(kind, sentence, tags, rng) for kind in self.kinds}
        found = [(kind, *swap) for kind, swap in swaps.items() if swap is not None]
        if found and self.per == "caption":
            found = [found[pick(rng, len(found))]]
        proposals = [
            proposal
            for kind, text, exchanged in found
            for proposal in propose_change(
                example, text, kind,
                changes=[{"operation": f"swap {kind}", **exchanged}], reason=NO_CANDIDATE,
            ).proposals
        ]  # fmt: skip
        counts: dict[str, int] = {kind: int(swap is not None) for kind, swap in swaps.items()}
        return Edited(tuple(proposals), counts)

    def _swap(
        self, kind: Kind, sentence: Sentence, tags: Sequence[str], rng: np.random.Generator
    ) -> tuple[str, dict[str, str]] | None:
        """Return the text with two elements of a kind exchanged, and the elements, or ``None``."""
        slots = list(FINDERS[kind](sentence, tags))
        choices = []
        for first, second in combinations(slots, 2):
            text = exchange(sentence, first, second)
            text = right_articles(text) if self.repair_article else text
            if _letters(text) != _letters(sentence.text):
                words = [_text(sentence, slot) for slot in (first, second)]
                choices.append((text, dict(zip(("before", "after"), words, strict=True))))
        return choices[pick(rng, len(choices))] if choices else None


def exchange(sentence: Sentence, first: Slot, second: Slot) -> str:
    """Return a text in which two slots have exchanged their words.

    The new first word gets the capital of the old one, if that was the only capital of its word.

    Args:
        second: the slot after ``first``, without common words.

    >>> exchange(split("A dog near the cat."), Slot(0, 1), Slot(3, 4))
    'The cat near a dog.'
    """
    (a, b), (c, d) = first.span(sentence), second.span(sentence)
    text = sentence.text
    came, went = text[c:d], text[a:b]
    if a == 0 and went[:1].isupper() and not came[:1].isupper():
        # A word in capitals, such as TV, keeps them; the article "A" does not.
        word = went.split()[0]
        proper = len(word) > 1 and not word[1:].islower()
        came, went = came[:1].upper() + came[1:], went if proper else went[:1].lower() + went[1:]
    return f"{text[:a]}{came}{text[b:c]}{went}{text[d:]}"


def _text(sentence: Sentence, slot: Slot) -> str:
    start, end = slot.span(sentence)
    return sentence.text[start:end]


def _letters(text: str) -> str:
    """Return a text without case, full stops and commas: an exchange has to change the rest."""
    return " ".join(re.sub(r"[.,]", "", text).lower().split())


def _tagged(prefixes: tuple[str, ...]) -> Callable[[Sentence, Sequence[str]], Iterator[Slot]]:
    """Return a finder of single words with one of some tags."""

    def find(sentence: Sentence, tags: Sequence[str]) -> Iterator[Slot]:
        for i, (word, tag) in enumerate(zip(sentence.words, tags, strict=True)):
            if word[0].isalpha() and tag in prefixes:
                yield Slot(i, i)

    return find


def _noun_phrases(sentence: Sentence, tags: Sequence[str]) -> Iterator[Slot]:
    """Find noun phrases of more than two words: determiner, adjectives and numbers, nouns."""
    first, last = None, None
    for i, tag in enumerate([*tags, ""]):
        begins = tag in _BEGINS
        if first is not None and not begins and tag.startswith(_IN_CHUNK):
            last = i if tag.startswith("NN") else last
            continue
        if first is not None and last is not None and last - first + 1 >= LONG_PHRASE:
            yield Slot(first, last)
        first, last = (i if begins or tag.startswith(_IN_CHUNK) else None), None
        if tag.startswith("NN"):
            last = i


def _verb_phrases(sentence: Sentence, tags: Sequence[str]) -> Iterator[Slot]:
    """Find verb phrases: one or more verbs with the adverbs between them."""
    first, last = None, None
    for i, tag in enumerate([*tags, ""]):
        if tag.startswith("VB") and sentence.words[i][0].isalpha():
            first, last = (i if first is None else first), i
        elif not (tag.startswith(("RB", "MD")) and first is not None):
            if first is not None and last is not None:
                yield Slot(first, last)
            first, last = None, None


FINDERS: Mapping[str, Callable[[Sentence, Sequence[str]], Iterator[Slot]]] = {
    "noun_phrase": _noun_phrases,
    "verb_phrase": _verb_phrases,
    "noun": _tagged(("NN",)),
    "plural_noun": _tagged(("NNS",)),
    "adverb": _tagged(("RB", "RBR", "RBS")),
    "adjective": _tagged(("JJ", "JJR", "JJS")),
}
"""Finders of each kind's elements, which do not overlap and are in order."""
