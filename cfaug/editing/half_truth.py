"""Half-truths: a short true caption of a photo, and the same with one wrong detail added.

A wrong detail should make a caption worse. Dual encoders often score it higher, since the rest of
it is right and says more (Kargi et al., 2026, "Half-Truths Break Similarity-Based Retrieval"). A
set has two captions of one photo: the first, the caption's first noun phrase, is true; the second
has a detail more. The authors have a language model write details; here they are made by rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import MinLen

from cfaug.core.rng import generator
from cfaug.core.types import Edit, Edited, Example, Proposal
from cfaug.editing.absent_objects import COPULAS, NEGATIONS, ObjectEditor
from cfaug.editing.baselines.editor import pick, propose_by_kind
from cfaug.editing.negation import CATEGORY, add_object
from cfaug.editing.paraphrase import Phrases, find_phrases
from cfaug.editing.protocols import CHANGES, replaced_run
from cfaug.editing.sentence import Sentence, Slot
from cfaug.settings.read_if import ReadIf

Kind = Literal["object", "relation", "swap", "full"]
"""The kinds of details, and ``full``, their control."""

OPPOSITES: Mapping[str, str] = {
    "on top of": "under", "in front of": "behind", "in back of": "in front of",
    "next to": "far from", "close to": "far from", "left of": "right of", "right of": "left of",
    "on": "under", "under": "on top of", "underneath": "on top of", "beneath": "on top of",
    "above": "below", "below": "above", "over": "under", "behind": "in front of",
    "inside": "outside", "outside": "inside", "in": "outside", "into": "out of",
    "near": "far from", "beside": "far from", "up": "down", "down": "up",
}  # fmt: skip
"""Words for where a thing is, and words for somewhere else; the longest ones that apply are
replaced."""
MUTUAL = frozenset([
    "with", "near", "next", "close", "beside", "by", "alongside", "along", "against", "together",
    "around", "between", "among", "amongst", "from", "at",
])  # fmt: skip
"""Words of relations that may hold the other way round as well."""
TURNS = frozenset(["in", "up", "down", "over", "near", "beside", "next to", "close to"])
"""Words for a place that do not make a statement false if its things change places."""
JOINTS = frozenset(["each", "other", "while", "when", "one", "all", "both", "as"])
"""Words after which something else is said."""
VAGUE = frozenset([
    "distance", "background", "foreground", "middle", "front", "back", "side", "top", "bottom",
    "way", "day", "night", "left", "right", "other",
])  # fmt: skip
"""Nouns that name no thing that something could be in relation to."""
APART = ("CC", "W", "VBZ", "VBP", "VBD", "MD", "EX", "PRP")
"""Tags of words that begin a statement of its own, so that two nouns are not in one relation."""


@dataclass(frozen=True)
class HalfTruth(ObjectEditor):
    """Writes a short true caption of a photo, and the same caption with one wrong detail.

    Args:
        kinds: the kinds of details. ``object`` adds an object that the photo does not show ("a dog
            and an umbrella"). ``relation`` adds what the caption says of the first thing, with the
            opposite of its place ("a dog under a sofa", of "a dog on a sofa"). ``swap`` adds it
            with both things exchanged ("a horse riding a man"). ``full``, the control, adds it as
            it is, so that the longer caption is true as well.
    """

    kinds: Annotated[Sequence[Kind], MinLen(1)] = ("object", "relation", "swap")
    objects: Annotated[
        Annotated[Sequence[str], MinLen(1)] | None, ReadIf({"kinds": ("object",)})
    ] = None

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the proposals for the first text of each example, in order."""
        return propose_by_kind(
            examples, self.tagger, "half truth", self.seed, self.kinds, self._propose,
            only_one=self.per == "caption",
        )  # fmt: skip

    def _propose(
        self,
        kind: Kind,
        example: Example,
        sentence: Sentence,
        tags: Sequence[str],
        _: np.random.Generator,
    ) -> Proposal | None:
        """Return the short caption and a longer one; ``None`` where a kind does not apply."""
        phrases = find_phrases(sentence, tags)
        if phrases.subject is None or NEGATIONS & {word.lower() for word in sentence.words}:
            return None
        first = phrases.phrase(phrases.subject)
        if "".join(tags[first.last + 1 : first.last + 2]).startswith("DT"):
            return None  # a verb was taken for a noun: "zebras share a field"
        short = _finish(sentence, _text(sentence, first))
        change = {"operation": str(kind)}
        if kind == "object":
            absent = self.absent_objects(example)
            if not absent:
                return None
            # A draw by its purpose: the object does not depend on the other kinds.
            rng = generator(self.seed, "half truth object", example.key)
            change["object"] = absent[pick(rng, len(absent))]
            longer = add_object(short, change["object"], "no")[0]
        else:
            second = _related(phrases, first)
            if second is None:
                return None
            if kind == "full":
                longer = _finish(sentence, _text(sentence, Slot(first.first, second.last)))
            elif kind == "swap":
                exchanged = _exchange(phrases, first, second)
                if exchanged is None:
                    return None
                longer = exchanged
            else:
                moved = next(_move(phrases, first, second, self.lists.places), None)
                if moved is None:
                    return None
                longer, change["before"], change["after"] = moved
        if longer == short:
            return None
        before, after = replaced_run(short, longer)
        edits = (None, Edit(kind, before, after))
        details = ({CATEGORY: kind}, {CATEGORY: kind, CHANGES: [change]})
        return Proposal(example, (short, longer), edits, details=details)


def _text(sentence: Sentence, slot: Slot) -> str:
    start, end = slot.span(sentence)
    return sentence.text[start:end]


def _finish(sentence: Sentence, text: str) -> str:
    """Return a part of a caption with the case of its beginning, and its full stop."""
    if sentence.text[:1].isupper():
        text = text[:1].upper() + text[1:]
    return f"{text}." if sentence.text.rstrip().endswith(".") else text


def _related(phrases: Phrases, first: Slot) -> Slot | None:
    """Return the phrase of the next noun, if words of a relation lie between it and the first."""
    words, tags = [word.lower() for word in phrases.sentence.words], phrases.tags
    for noun in phrases.nouns[1:]:
        behind = slice(noun.last + 1, noun.last + 2)
        if words[noun.last] in ("left", "right") and words[behind] == ["of"]:
            continue  # "to the left of a dog"
        second = phrases.phrase(noun)
        while tags[second.first].startswith("RB") and second.first < noun.first:
            second = Slot(second.first + 1, noun.last)  # "walking down the stairs"
        between = range(first.last + 1, second.first)
        related = bool(between) and all(
            words[i].isalpha() and words[i] not in JOINTS
            and (words[i] in COPULAS or not tags[i].startswith(APART))
            for i in between
        )  # fmt: skip
        # What a tagger takes for a verb after a noun belongs to it: "a grass covered field".
        goes_on = "".join(tags[behind]).startswith(("VBN", "VBD", "VBP", "NN", "JJ"))
        goes_on = goes_on or list(tags[behind]) == ["VB"]
        agrees = not (tags[first.last] == "NNS" and {"is", "was"} & {words[i] for i in between})
        fits = related and agrees and not goes_on and words[noun.last] not in VAGUE
        return second if fits else None
    return None


def _move(
    phrases: Phrases, first: Slot, second: Slot, places: frozenset[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the statement with the opposite place, the word for the place, and its opposite."""
    sentence = phrases.sentence
    words = [word.lower() for word in sentence.words]
    weather = phrases.weather()
    if weather is not None and weather[0] < sentence.spans[second.last][1]:
        return  # "in the rain", "on a sunny day"
    for before, after in sorted(OPPOSITES.items(), key=lambda pair: -len(pair[0].split())):
        run = before.split()
        for at in range(first.last + 1, second.first - len(run) + 1):
            if words[at : at + len(run)] != run:
                continue
            if before == "in" and words[second.last] not in places:
                continue  # "a man in a suit"
            start, end = sentence.spans[at][0], sentence.spans[at + len(run) - 1][1]
            last = sentence.spans[second.last][1]
            text = f"{sentence.text[sentence.spans[first.first][0] : start]}{after}"
            yield _finish(sentence, f"{text}{sentence.text[end:last]}"), before, after


def _exchange(phrases: Phrases, first: Slot, second: Slot) -> str | None:
    """Return the statement with both phrases exchanged; ``None`` if it may be true as well."""
    sentence, between = phrases.sentence, range(first.last + 1, second.first)
    words = {sentence.words[i].lower() for i in between}
    acts = any(phrases.tags[i] == "VBG" for i in between)
    if words & (MUTUAL | COPULAS) or not (acts or words & (OPPOSITES.keys() - TURNS)):
        return None
    if phrases.tags[second.first].startswith("PRP"):
        return None  # "making their way"
    subject, target = (_text(sentence, slot) for slot in (first, second))
    if subject.lower() == target.lower():
        return None
    if not phrases.tags[first.first].startswith("NNP"):
        subject = subject[:1].lower() + subject[1:]
    middle = _text(sentence, Slot(between[0], between[-1]))
    return _finish(sentence, f"{target} {middle} {subject}")
