"""Caption edits without a model: by rules and word lists, and one fixed intervention for a class.

The rules replace nouns by others of their kind (from word lists, then WordNet's sister terms), add
or exchange adjectives, append or exchange places and weather, and rename the medium.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from cfaug.core.binding import ReadWith
from cfaug.core.errors import UserError
from cfaug.core.protocols import ChecksSource, Editor
from cfaug.core.rng import generator
from cfaug.core.types import ORIGINAL, RECONSTRUCTION, Edit, Edited, Example, Proposal
from cfaug.core.validation import check_fields
from cfaug.core.words import indefinite_article
from cfaug.editing.paraphrase import MEDIUM, Phrases, find_phrases
from cfaug.editing.protocols import Tagger, VariationRequest, Variations
from cfaug.editing.sentence import Sentence, Slot, copy_case, replace_slot, split
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


# One intervention applied to every caption of a class, to test whether an insight generalises.
#
# In LANCE, appendix B and Figure 9, "photo" becomes "painting" in the captions of every class.

NAMED = 5
"""Number of classes that an error names."""
Where = Literal["end", "start"]
OTHER_CLASS, NOT_THERE = "another class", "words not found"


@dataclass(frozen=True)
class FixedEdit:
    """An editor that makes the same change to every caption to which it applies.

    Args:
        kind: the kind of the edit, such as ``domain``, by which pages and metrics group edits.
        after: the new words.
        before: the words to replace, at their first occurrence in a caption, ignoring case; "a"
            before them becomes "an" where the new words need it. If empty, ``after`` is added to
            the caption.
        where: the place of added words: ``end`` or ``start`` of the caption.
        labels: the classes whose examples are edited; empty for all classes.

    Raises:
        UserError: if an argument is invalid; it names the argument.
    """

    kind: str
    after: str
    before: str = ""
    where: Where = "end"
    labels: Sequence[str] = ()
    _before: tuple[str, ...] = field(init=False, repr=False, compare=False)

    read_with: ClassVar[ReadWith] = {"where": {"before": ("",)}}

    def __post_init__(self) -> None:
        if not self.kind.strip() or not self.after.strip():
            raise UserError(
                "a fixed edit needs a kind and the new words: recipe.editor.editor.after=..."
            )
        check_fields(self, "recipe.editor.editor")
        words = tuple(word.lower() for word in split(self.before).words)
        object.__setattr__(self, "_before", words)
        if " ".join(self.before.lower().split()) == " ".join(self.after.lower().split()):
            raise UserError(
                f"recipe.editor.editor.after={self.after} is what recipe.editor.editor.before says"
            )

    def check_source(self, examples: Sequence[Example]) -> None:
        """Refuse classes without any example."""
        there = sorted({example.label for example in examples if example.label is not None})
        for label in self.labels:
            if label not in there:
                near = difflib.get_close_matches(label, there, NAMED, 0.4) or there[:NAMED]
                raise UserError(
                    f"recipe.editor.editor.labels: no example is of the class {label!r}; among the "
                    f"{len(there)} classes there are {', '.join(map(repr, near)) or 'none'}"
                )

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the edit of each example's first text, or the reason why there is none."""
        return [self._edit(example) for example in examples]

    def describe(self) -> dict[str, str]:
        """Return an empty mapping: a plain rule."""
        return {}

    def _edit(self, example: Example) -> Edited:
        if self.labels and example.label not in self.labels:
            return _rejected(OTHER_CLASS)
        sentence = split(example.text)
        text, edit = self._apply(sentence)
        if edit is None:
            return _rejected(NOT_THERE)
        details: tuple[Mapping[str, str], ...] = ({}, {"intervention": self._said})
        texts = (sentence.text, text)
        return Edited((Proposal(example, texts, (None, edit), details=details),))

    @property
    def _said(self) -> str:
        return f"{self.before} -> {self.after}" if self._before else f"+ {self.after}"

    def _apply(self, sentence: Sentence) -> tuple[str, Edit | None]:
        """Return the edited text and the edit; ``None`` if the text lacks the words to replace."""
        if not self._before:
            return self._add(sentence.text), Edit(self.kind, "", self.after)
        lowered = [word.lower() for word in sentence.words]
        count = len(self._before)
        for first in range(len(lowered) - count + 1):
            if tuple(lowered[first : first + count]) == self._before:
                slot = Slot(first, first + count - 1)
                start, end = slot.span(sentence)
                old = sentence.text[start:end]
                after = self.after if old[0].islower() else self.after[:1].upper() + self.after[1:]
                edited = replace_slot(sentence, slot, after, article=True)
                return edited.text, Edit(self.kind, old, after)
        return sentence.text, None

    def _add(self, text: str) -> str:
        if self.where == "start":
            return f"{self.after} {text}"
        bare = text.rstrip(" .")
        return f"{bare} {self.after}{'.' * text.rstrip().endswith('.')}"


def _rejected(reason: str) -> Edited:
    return Edited((), {reason: 0})


@dataclass(frozen=True)
class AddReconstruction:
    """Adds a proposal without any edit before the proposals of another editor.

    The image editor's result for it is the method's reconstruction of the source image, whose
    losses are not due to an edit (LANCE, Table 2, "Reconstructed").

    Args:
        editor: the editor of the other proposals.
        always: whether examples without proposals get the control, too; examples without any words
            never do.
    """

    editor: Editor
    always: bool = True

    def check_source(self, examples: Sequence[Example]) -> None:
        """Let the editor refuse settings that name an entry that no example has."""
        if isinstance(self.editor, ChecksSource):
            self.editor.check_source(examples)

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the editor's result for each example, in order, with the control first."""
        return [
            self._add(example, edited)
            for example, edited in zip(examples, self.editor.edit(examples), strict=True)
        ]

    def _add(self, example: Example, edited: Edited) -> Edited:
        kinds = {
            edit.kind
            for proposal in edited.proposals
            for edit in proposal.edits
            if edit is not None
        }
        for taken in kinds & {ORIGINAL, RECONSTRUCTION}:
            raise UserError(
                f"recipe.editor: edits of the kind {taken!r} would be taken for what is not "
                "edited: choose another name for the kind"
            )
        text = " ".join(example.text.split())
        if not text or not (edited.proposals or self.always):
            return edited
        key = f"{example.key}-{RECONSTRUCTION}"
        nothing = Edit(RECONSTRUCTION, "", "")
        control = Proposal(example, (text, text), (None, nothing), key=key)
        return replace(edited, proposals=(control, *edited.proposals))

    def describe(self) -> dict[str, str]:
        """Return the editor's description."""
        return dict(self.editor.describe())


def is_control(proposal: Proposal) -> bool:
    """Return whether a proposal has several texts, all equal."""
    return len(proposal.texts) > 1 and len(set(proposal.texts)) == 1
