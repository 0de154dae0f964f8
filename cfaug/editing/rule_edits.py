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
from typing import Annotated, Literal

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.protocols import ChecksSource, Editor
from cfaug.core.rng import generator
from cfaug.core.types import ORIGINAL, RECONSTRUCTION, Edit, Edited, Example, Proposal
from cfaug.core.validation import check_fields
from cfaug.data.captions import indefinite_article, right_articles
from cfaug.editing.paraphrase import MEDIUM, Phrases, find_phrases
from cfaug.editing.protocols import Tagger, VariationRequest, Variations
from cfaug.editing.sentence import Slot, copy_case, normalise, replace_slot, split
from cfaug.editing.word_lists import NounKind, WordLists
from cfaug.editing.wordnet import WordNet
from cfaug.settings.read_if import ReadIf

NO_RULE = "no rule"
NO_PLACE = "nothing to change"
PERSON, ANIMAL = "person", "animal"
"""The kinds of nouns with their own adjectives."""
MORE_PEOPLE = frozenset(["person", "people", "kid", "kids", "lady", "ladies", "guy", "guys"])
"""Words for people that are too vague to be offered as replacements."""
Rule = Callable[[Phrases, np.random.Generator], Iterator[str]]


@dataclass(frozen=True)
class RuleEdits:
    """Writes variations of any English caption by rules.

    Args:
        wordnet: the source of kinds and sister terms for nouns that are in no list; ``None`` does
            not replace such nouns.
    """

    tagger: Tagger
    """the tagger of parts of speech"""
    wordnet: WordNet | None = None
    lists: WordLists = field(default_factory=WordLists)
    """the words that replace others"""

    def vary(self, requests: Sequence[VariationRequest]) -> list[Variations]:
        """Return up to the requested number of variations of each caption, drawn by its seed."""
        rules: dict[str, Rule] = {
            "subject": lambda phrases, rng: self._swap(phrases, phrases.subject, rng),
            "object": lambda phrases, rng: self._swap(phrases, phrases.object, rng),
            "adjective": self._describe_noun,
            "background": self._place,
            "background-weather": lambda phrases, rng: _at_end(
                phrases, phrases.weather(), self.lists.lines("weather"), rng
            ),
            "domain": self._rename_medium,
        }
        sentences = [split(request.caption) for request in requests]
        tags = self.tagger.tag([sentence.words for sentence in sentences])
        answers = []
        for request, sentence, sentence_tags in zip(requests, sentences, tags, strict=True):
            rule = rules.get(request.prompt.name, rules.get(request.kind))
            if rule is None:
                answers.append(Variations(problem=NO_RULE))
                continue
            texts: dict[str, None] = {}
            for text in rule(
                find_phrases(sentence, sentence_tags), generator(request.seed, "rules")
            ):
                if text != request.caption:
                    texts.setdefault(text)
                if len(texts) == request.count:
                    break
            answers.append(Variations(tuple(texts), "" if texts else NO_PLACE))
        return answers

    def _swap(self, phrases: Phrases, noun: Slot | None, rng: np.random.Generator) -> Iterator[str]:
        """Yield captions with a noun replaced by another of its kind, in the same number."""
        if noun is None:
            return
        noun = self._head(phrases, noun)
        sentence = phrases.sentence
        words = [word.lower() for word in sentence.words]
        wider = " ".join(words[max(0, noun.first - 1) : noun.last + 1])
        if noun.first > phrases.start and self._listed_kind(wider) is not None:
            noun = Slot(noun.first - 1, noun.last)  # an adjective that is part of it: "hot dog"
        for slot in (noun, Slot(noun.last, noun.last)):
            name = " ".join(words[slot.first : slot.last + 1])
            kind = self._kind(name)
            others: list[str] = []
            if kind is not None:
                plural = phrases.tags[slot.last].startswith("NNS")
                many = name in self.lists.singulars or plural or name == "people"
                # Not the words of its first sense: "refrigerator" for "fridge".
                senses = [] if self.wordnet is None else self.wordnet.senses(name, 1)
                same = {word.replace("_", " ").lower() for sense in senses for word in sense.words}
                others = [
                    plural_form if many else singular
                    for singular, plural_form in kind.plurals.items()
                    if name not in (singular, plural_form) and singular not in same
                ]
            # Sisters of abstract nouns cannot be drawn ("light": "ultraviolet").
            elif self.wordnet is not None and self._is_a(name, "artifact", "organism", "food"):
                others = self.wordnet.sisters(name, 1)
            if others:
                for other in _shuffled(others, rng):
                    shown = copy_case(other, sentence.words[slot.first])
                    yield replace_slot(sentence, slot, shown, article=True).text
                return

    def _head(self, phrases: Phrases, noun: Slot) -> Slot:
        """Return a run of nouns up to a person; the rest is a verb that looks like a noun."""
        words = [word.lower() for word in phrases.sentence.words]
        for last in range(noun.first, noun.last):
            if self._people & {words[last], " ".join(words[noun.first : last + 1])}:
                return Slot(noun.first, last)
        return noun

    @cached_property
    def _people(self) -> frozenset[str]:
        people = [kind.plurals for kind in self.lists.nouns if kind.name == PERSON]
        return MORE_PEOPLE | {w for plurals in people for pair in plurals.items() for w in pair}

    def _listed_kind(self, noun: str) -> NounKind | None:
        singular = self.lists.singulars.get(noun, noun)
        return next((kind for kind in self.lists.nouns if singular in kind.plurals), None)

    def _kind(self, noun: str) -> NounKind | None:
        """Return the kind of a noun by the lists, or else by WordNet."""
        kinds = self.lists.nouns
        if self.lists.singulars.get(noun, noun) in MORE_PEOPLE:
            return next((kind for kind in kinds if kind.name == PERSON), None)
        if (listed := self._listed_kind(noun)) is not None:
            return listed
        return next((kind for kind in kinds if self._is_a(noun, *kind.above)), None)

    def _is_a(self, word: str, *names: str) -> bool:
        """Return whether the first sense of a word is the first sense of a name, or below it."""
        if self.wordnet is None:
            return False
        for each in (word, *names):
            if each not in self._senses:
                senses = self.wordnet.senses(each, 1)
                self._senses[each] = {s.offset for s in senses}, self.wordnet.above(senses)
        return any(self._senses[name][0] & self._senses[word][1] for name in names)

    @cached_property
    def _senses(self) -> dict[str, tuple[set[int], set[int]]]:
        """{word: the offset of its first sense, and those of the sense and its hypernyms}."""
        return {}

    def _describe_noun(self, phrases: Phrases, rng: np.random.Generator) -> Iterator[str]:
        """Yield captions with an adjective of the subject or the object added or exchanged."""
        slots = (phrases.subject, phrases.object)
        nouns = [self._head(phrases, noun) for noun in slots if noun is not None]
        # "to swing" is a verb that looks like a noun.
        nouns = [n for n in nouns if "to" not in phrases.sentence.words[n.first - 1 : n.first]]
        yield from _shuffled((t for noun in nouns for t in self._adjectives(phrases, noun)), rng)

    def _adjectives(self, phrases: Phrases, noun: Slot) -> Iterator[str]:
        sentence = phrases.sentence
        words = sentence.words
        first = phrases.begin(noun)
        kind = self._kind(words[noun.last].lower())
        name = "any" if kind is None else kind.name
        kinds = {name} if name in (PERSON, ANIMAL) else {name, "any"}
        # Within a run of nouns too: a tagger sees two nouns in "a metal pot".
        there = {word.lower(): i for i, word in enumerate(words[first : noun.last], first)}
        for group in self.lists.adjectives:
            if not kinds & set(group.kinds):
                continue
            known = [there[word] for word in group.words if word in there]
            for adjective in group.words:
                if known and adjective not in there:
                    slot, shown = Slot(known[0], known[0]), adjective
                elif not known:
                    slot = Slot(first, first)
                    shown = f"{copy_case(adjective, words[first])} {words[first]}"
                    if words[first][:1].isupper():
                        shown = f"{adjective[:1].upper()}{adjective[1:]} {words[first].lower()}"
                else:
                    continue
                yield replace_slot(sentence, slot, shown, article=True).text

    def _place(self, phrases: Phrases, rng: np.random.Generator) -> Iterator[str]:
        """Yield captions with another place, which replaces the last place or is added."""
        above = ("location", "geological_formation", "body_of_water", "room", "building")
        named = {phrases.sentence.words[noun.last].lower() for noun in phrases.nouns}
        places = self.lists.places | {word for word in named if self._is_a(word, *above)}
        slot = phrases.place(places)
        span = None if slot is None else slot.span(phrases.sentence)
        yield from _at_end(phrases, span, self.lists.lines("locations"), rng)

    def _rename_medium(self, phrases: Phrases, rng: np.random.Generator) -> Iterator[str]:
        """Yield captions with another medium, which replaces the named one or is added in front."""
        text = phrases.sentence.text
        match = MEDIUM.match(text)
        if match is not None:
            rest = text[match.end() :].lstrip()
        else:
            rest = re.sub(r"^\W*(?:there|this|it) (?:is|are|'s) ", "", text, flags=re.IGNORECASE)
            rest = rest if rest[1:2].isupper() else rest[:1].lower() + rest[1:]
        for medium in _shuffled(self.lists.lines("domains"), rng):
            if match is None or medium.lower() != match["medium"].lower():
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
OTHER_CLASS, NOT_THERE = "another class", "words not found"


@dataclass(frozen=True)
class FixedEdit:
    """An editor that makes the same change to every caption to which it applies.

    Args:
        kind: the kind of the edit, such as ``domain``, by which pages and metrics group edits.
        before: the words to replace, at their first occurrence in a caption, ignoring case; "a"
            before them becomes "an" where the new words need it. If empty, ``after`` is added to
            the caption.
        where: the place of added words: ``end`` or ``start`` of the caption.
        labels: the classes whose examples are edited; empty for all classes.
    """

    kind: str
    after: str
    """the text that replaces it"""
    before: str = ""
    where: Annotated[Literal["end", "start"], ReadIf({"before": ("",)})] = "end"
    labels: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.kind.strip() or not self.after.strip():
            raise UserError(
                "a fixed edit needs a kind and the new words: recipe.editor.editor.after=..."
            )
        check_fields(self, "recipe.editor.editor")
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
        change = f"{self.before} -> {self.after}" if self.before else f"+ {self.after}"
        results = []
        for example in examples:
            if self.labels and example.label not in self.labels:
                results.append(Edited((), {OTHER_CLASS: 0}))
                continue
            replaced = replace_words(example.text, self.before, self.after, self.where)
            if replaced is None:
                results.append(Edited((), {NOT_THERE: 0}))
                continue
            edited, old, after = replaced
            edits = (None, Edit(self.kind, old, after))
            details: tuple[Mapping[str, str], ...] = ({}, {"intervention": change})
            proposal = Proposal(example, (example.text, edited), edits, details=details)
            results.append(Edited((proposal,)))
        return results

    def describe(self) -> dict[str, str]:
        return {}


def find_words(text: str, words: str) -> Slot | None:
    """Return the first occurrence of some words in a text, ignoring case; ``None`` without one."""
    wanted = [word.lower() for word in split(words).words]
    there = [word.lower() for word in split(text).words]
    starts = range(len(there) - len(wanted) + 1) if wanted else ()
    first = next((i for i in starts if there[i : i + len(wanted)] == wanted), None)
    return None if first is None else Slot(first, first + len(wanted) - 1)


def replace_words(
    text: str, before: str, after: str, where: Literal["end", "start"] = "end"
) -> tuple[str, str, str] | None:
    """Return a text with its first occurrence of some words replaced, and both sides of the change.

    Args:
        before: the words to replace; empty adds ``after``.
        after: the new words; empty removes ``before``.
        where: the place of added words.

    Returns:
        The text, the replaced words and the new ones as they stand there; ``None`` if the words to
        replace are missing.

    >>> replace_words("A red ball.", "red", "orange"), replace_words("a red ball", "red", "")
    (('An orange ball.', 'red', 'orange'), ('a ball', 'red', ''))
    >>> replace_words("a ball.", "", "at night"), replace_words("a ball", "cat", "dog")
    (('a ball at night.', '', 'at night'), None)
    """
    if not before.strip():
        if where == "start":
            return f"{after} {text}", "", after
        return f"{text.rstrip(' .')} {after}{'.' * text.rstrip().endswith('.')}", "", after
    slot = find_words(text, before)
    if slot is None:
        return None
    sentence = split(text)
    start, end = slot.span(sentence)
    old = text[start:end]
    if not after.strip():
        rest = f"{text[:start].rstrip()} {text[end:].lstrip()}".strip()
        return right_articles(re.sub(r" (?=[.,!?])", "", rest)), old, ""
    after = after if old[0].islower() else after[:1].upper() + after[1:]
    return replace_slot(sentence, slot, after, article=True).text, old, after


@dataclass(frozen=True)
class AddReconstruction:
    """Adds a proposal without any edit before the proposals of another editor.

    The image editor's result for it is the method's reconstruction of the source image, whose
    losses are not due to an edit (LANCE, Table 2, "Reconstructed").

    Args:
        always: whether examples without proposals get the control, too; examples without any words
            never do.
    """

    editor: Editor
    """the editor of the other proposals"""
    always: bool = True

    def check_source(self, examples: Sequence[Example]) -> None:
        if isinstance(self.editor, ChecksSource):
            self.editor.check_source(examples)

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the editor's result for each example, in order, with the control first."""
        results = []
        for example, edited in zip(examples, self.editor.edit(examples), strict=True):
            edits = [edit for proposal in edited.proposals for edit in proposal.edits]
            kinds = {edit.kind for edit in edits if edit is not None}
            for taken in kinds & {ORIGINAL, RECONSTRUCTION}:
                raise UserError(
                    f"recipe.editor: edits of the kind {taken!r} would be taken for what is not "
                    "edited: choose another name for the kind"
                )
            text = normalise(example.text)
            if text and (edited.proposals or self.always):
                key = f"{example.key}-{RECONSTRUCTION}"
                nothing = Edit(RECONSTRUCTION, "", "")
                control = Proposal(example, (text, text), (None, nothing), key=key)
                edited = replace(edited, proposals=(control, *edited.proposals))
            results.append(edited)
        return results

    def describe(self) -> dict[str, str]:
        return dict(self.editor.describe())
