"""Variations of captions by rules and word lists, without a model or a download.

The rules replace nouns by others of their kind (from word lists, then WordNet's sister terms), add
or exchange adjectives, append or exchange places and weather, and rename the medium.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cfaug.core.rng import generator
from cfaug.core.words import indefinite_article
from cfaug.editing.paraphrase import MEDIUM, Phrases, find_phrases
from cfaug.editing.protocols import Tagger, VariationRequest, Variations
from cfaug.editing.sentence import Slot, copy_case, replace_slot, split
from cfaug.editing.word_lists import NounKind, WordLists
from cfaug.editing.wordnet import SisterTerms, WordNet

NO_RULE = "no rule"
NO_PLACE = "nothing to change"

PERSON, ANIMAL = "person", "animal"
"""The kinds of nouns with their own adjectives."""

MORE_PEOPLE = frozenset(["person", "people", "kid", "kids", "lady", "ladies", "guy", "guys"])
"""Words for people that are too vague to be offered as replacements."""

TANGIBLE = ("artifact", "organism", "food")
WHERE = ("location", "geological_formation", "body_of_water", "room", "building")
"""Words whose first senses in WordNet are hypernyms of drawable things, and of places."""

_THERE = re.compile(r"^\W*(?:there|this|it) (?:is|are|'s) ", re.IGNORECASE)

Rule = Callable[[Phrases, np.random.Generator], Iterator[str]]


@dataclass(frozen=True)
class RuleEdits:
    """Writes variations of any English caption by rules.

    Args:
        tagger: the part-of-speech tagger.
        wordnet: the source of kinds and sister terms for nouns that are in no list; ``None`` does
            not replace such nouns.
        lists: the word lists.
    """

    tagger: Tagger
    wordnet: WordNet | None = None
    lists: WordLists = field(default_factory=WordLists)

    def vary(self, requests: Sequence[VariationRequest]) -> list[Variations]:
        """Return up to the requested number of variations of each caption, drawn by its seed."""
        sentences = [split(request.caption) for request in requests]
        tags = self.tagger.tag([sentence.words for sentence in sentences])
        phrases = [find_phrases(*pair) for pair in zip(sentences, tags, strict=True)]
        return [self._vary(one, found) for one, found in zip(requests, phrases, strict=True)]

    def _vary(self, request: VariationRequest, phrases: Phrases) -> Variations:
        rules = self._rules
        rule = rules.get(request.prompt.name, rules.get(request.kind))
        if rule is None:
            return Variations(problem=NO_RULE)
        texts: dict[str, None] = {}
        for text in rule(phrases, generator(request.seed, "rules")):
            if text != request.caption:
                texts.setdefault(text)
            if len(texts) == request.count:
                break
        return Variations(tuple(texts), "" if texts else NO_PLACE)

    @property
    def _rules(self) -> dict[str, Rule]:
        return {
            "subject": lambda p, rng: self._swap(p, p.subject, rng),
            "object": lambda p, rng: self._swap(p, p.object, rng),
            "adjective": self._describe_noun,
            "background": self._place,
            "background-weather": self._weather,
            "domain": self._rename_medium,
        }

    def _swap(self, phrases: Phrases, noun: Slot | None, rng: np.random.Generator) -> Iterator[str]:
        """Yield captions with a noun replaced by another of its kind."""
        if noun is None:
            return
        noun = self._listed(phrases, self._head(phrases, noun))
        words = phrases.sentence.words[noun.first : noun.last + 1]
        whole, last = " ".join(words).lower(), words[-1].lower()
        for said, slot in ((whole, noun), (last, Slot(noun.last, noun.last))):
            others = self._others(said, plural=phrases.tags[slot.last].startswith("NNS"))
            if others:
                for other in _shuffled(others, rng):
                    shown = copy_case(other, phrases.sentence.words[slot.first])
                    yield replace_slot(phrases.sentence, slot, shown, article=True).text
                return

    def _head(self, phrases: Phrases, noun: Slot) -> Slot:
        """Return a run of nouns up to a person; the rest is a verb that looks like a noun."""
        words = [word.lower() for word in phrases.sentence.words]
        for last in range(noun.first, noun.last):
            if self._people & {words[last], " ".join(words[noun.first : last + 1])}:
                return Slot(noun.first, last)
        return noun

    def _listed(self, phrases: Phrases, noun: Slot) -> Slot:
        """Return a noun with the adjective before it if a list has both: "hot dog"."""
        words = phrases.sentence.words
        said = " ".join(words[max(0, noun.first - 1) : noun.last + 1]).lower()
        one = self.lists.singulars.get(said, said)
        if noun.first > phrases.start and any(one in kind.plurals for kind in self.lists.nouns):
            return Slot(noun.first - 1, noun.last)
        return noun

    @cached_property
    def _people(self) -> frozenset[str]:
        people = [kind.plurals for kind in self.lists.nouns if kind.name == PERSON]
        return MORE_PEOPLE | {w for plurals in people for pair in plurals.items() for w in pair}

    def _others(self, said: str, *, plural: bool) -> list[str]:
        """Return other nouns of a noun's kind, in the same number (singular or plural)."""
        kind = self._kind(said)
        many = said in self.lists.singulars or plural or said == "people"
        if kind is not None:
            pairs = list(kind.plurals.items())
            same = self._synonyms(said)
            pairs = [pair for pair in pairs if said not in pair and pair[0] not in same]
            return [plural_form if many else one for one, plural_form in pairs]
        if self._sisters is None or self.wordnet is None:
            return []
        # Sisters of abstract nouns cannot be drawn ("light": "ultraviolet").
        if not self._above(said) & self._tangible:
            return []
        return [word for word in self._sisters.sisters(said) if word != said]

    def _kind(self, said: str) -> NounKind | None:
        """Return the kind of a noun by the lists, or else by WordNet."""
        one = self.lists.singulars.get(said, said)
        if one in MORE_PEOPLE:
            return next((kind for kind in self.lists.nouns if kind.name == PERSON), None)
        for kind in self.lists.nouns:
            if one in kind.plurals:
                return kind
        if self.wordnet is None:
            return None
        above = self._above(said)
        return next((k for k in self.lists.nouns if above & self._anchors[k.name]), None)

    def _synonyms(self, word: str) -> set[str]:
        """Return the words of the first sense of a word, such as "refrigerator" for "fridge"."""
        senses = [] if self.wordnet is None else self.wordnet.senses(word, 1)
        return {name.replace("_", " ").lower() for sense in senses for name in sense.words}

    def _above(self, word: str) -> set[int]:
        """Return all hypernyms of the first sense of a word in WordNet."""
        if word not in self._known:
            assert self.wordnet is not None
            self._known[word] = self.wordnet.above(self.wordnet.senses(word, 1))
        return self._known[word]

    @cached_property
    def _known(self) -> dict[str, set[int]]:
        return {}

    @cached_property
    def _anchors(self) -> dict[str, set[int]]:
        """The hypernyms in WordNet of each kind of nouns."""
        return {kind.name: self._senses(*kind.above) for kind in self.lists.nouns}

    def _senses(self, *names: str) -> set[int]:
        """Return the first senses of some words."""
        assert self.wordnet is not None
        return {sense.offset for name in names for sense in self.wordnet.senses(name, 1)}

    @cached_property
    def _sisters(self) -> SisterTerms | None:
        return None if self.wordnet is None else SisterTerms(1, self.wordnet.folder)

    def _describe_noun(self, phrases: Phrases, rng: np.random.Generator) -> Iterator[str]:
        """Yield captions with an adjective of the subject or the object added or exchanged."""
        found = (phrases.subject, phrases.object)
        nouns = [self._head(phrases, one) for one in found if one is not None]
        # "to swing" is a verb that looks like a noun.
        nouns = [
            one for one in nouns if "to" not in phrases.sentence.words[one.first - 1 : one.first]
        ]
        ways = [text for noun in nouns for text in self._adjectives(phrases, noun)]
        yield from _shuffled(ways, rng)

    def _adjectives(self, phrases: Phrases, noun: Slot) -> Iterator[str]:
        words = phrases.sentence.words
        first = phrases.begin(noun)
        kind = self._kind(words[noun.last].lower())
        names = {"any"} | ({kind.name} if kind is not None else set())
        suits = [one for one in self.lists.adjectives if names & set(one.kinds)]
        if kind is not None and kind.name in (PERSON, ANIMAL):
            suits = [suit for suit in suits if kind.name in suit.kinds]
        # Within a run of nouns too: a tagger sees two nouns in "a metal pot".
        there = {word.lower(): i for i, word in enumerate(words[first : noun.last], first)}
        for group in suits:
            known = [there[word] for word in group.words if word in there]
            for adjective in group.words:
                if known and adjective not in there:
                    yield replace_slot(
                        phrases.sentence, Slot(known[0], known[0]), adjective, article=True
                    ).text
                elif not known:
                    shown = f"{copy_case(adjective, words[first])} {words[first]}"
                    if words[first][:1].isupper():
                        shown = f"{adjective[:1].upper()}{adjective[1:]} {words[first].lower()}"
                    yield replace_slot(
                        phrases.sentence, Slot(first, first), shown, article=True
                    ).text

    def _place(self, phrases: Phrases, rng: np.random.Generator) -> Iterator[str]:
        """Yield captions with another place, which replaces the last place or is added."""
        found = phrases.place(self._places(phrases))
        span = None if found is None else found.span(phrases.sentence)
        yield from _at_end(phrases, span, self.lists.lines("locations"), rng)

    def _weather(self, phrases: Phrases, rng: np.random.Generator) -> Iterator[str]:
        yield from _at_end(phrases, phrases.weather(), self.lists.lines("weather"), rng)

    def _places(self, phrases: Phrases) -> frozenset[str]:
        """Return the nouns that are places: those of the list, and some of the caption's."""
        if self.wordnet is None:
            return self.lists.places
        words = phrases.sentence.words
        named = {words[noun.last].lower() for noun in phrases.nouns}
        more = {word for word in named if self._above(word) & self._where}
        return self.lists.places | more

    @cached_property
    def _tangible(self) -> set[int]:
        return self._senses(*TANGIBLE)

    @cached_property
    def _where(self) -> set[int]:
        return self._senses(*WHERE)

    def _rename_medium(self, phrases: Phrases, rng: np.random.Generator) -> Iterator[str]:
        """Yield captions with another medium, which replaces the named one or is added in front."""
        text = phrases.sentence.text
        found = MEDIUM.match(text)
        rest = text if found is None else text[found.end() :].lstrip()
        if found is None:
            rest = _THERE.sub("", text)
            rest = rest if rest[1:2].isupper() else rest[:1].lower() + rest[1:]
        for medium in _shuffled(self.lists.lines("domains"), rng):
            if found is not None and medium.lower() == found["medium"].lower():
                continue
            article = indefinite_article(medium)
            shown = article.capitalize() if text[:1].isupper() else article
            yield f"{shown} {medium} of {rest}"

    def describe(self) -> dict[str, str]:
        """Return the tagger, the word lists, and whether WordNet is used."""
        about = f"rules, {self.lists.describe()}"
        about += ", WordNet" if self.wordnet is not None else ""
        return {"perturber": about, **self.tagger.describe()}


def _shuffled(words: Iterable[str], rng: np.random.Generator) -> list[str]:
    listed = list(words)
    return [listed[i] for i in rng.permutation(len(listed)).tolist()]


def _at_end(
    phrases: Phrases, span: tuple[int, int] | None, parts: Sequence[str], rng: np.random.Generator
) -> Iterator[str]:
    """Yield captions in which a phrase replaces a span, or is appended."""
    text = phrases.sentence.text
    body = text.rstrip(" .!")
    for part in _shuffled(parts, rng):
        if span is not None:
            yield f"{text[: span[0]]}{part}{text[span[1] :]}"
        elif part not in text:
            yield f"{body} {part}{text[len(body) :].strip()}"
