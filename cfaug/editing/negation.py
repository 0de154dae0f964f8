"""Negation: captions that deny what a photo shows, or name what it does not show as not there.

Models of images and captions hardly read "no", "not" and "without" (NegBench, Alhamoud et al.,
2025; CC-Neg, Singh et al., 2024). A set has two captions of one photo, a true one and a false one,
that differ in their negation alone: the first member is true, the second, edited one is false.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import numpy as np
from annotated_types import MinLen

from cfaug.core.rng import generator
from cfaug.core.types import Edit, Edited, Example, Proposal
from cfaug.data.captions import indefinite_article, right_articles
from cfaug.editing.absent_objects import (
    COPULAS,
    COUNTS,
    NEGATIONS,
    ObjectEditor,
    shown_objects,
)
from cfaug.editing.baselines.editor import pick, propose_by_kind
from cfaug.editing.paraphrase import (
    COMPOUNDS,
    LOCATIVE,
    MEDIUM,
    PARTITIVES,
)
from cfaug.editing.protocols import CHANGES, replaced_run
from cfaug.editing.sentence import Sentence, copy_case
from cfaug.settings.read_if import ReadIf

Kind = Literal["statement", "absent", "present", "affirmed"]
"""The kinds of negation, and ``affirmed``, their control."""
Phrase = Literal["no", "without", "not"]
"""The words that say that an object is not there."""

CATEGORY = "category"
"""The column by which tests report the kinds of negation."""


WITH_OBJECTS = ReadIf({"kinds": ("absent", "present", "affirmed")})


@dataclass(frozen=True)
class Negate(ObjectEditor):
    """Writes a true and a false caption of a photo that differ in a negation.

    Args:
        kinds: the kinds of sets. ``statement`` denies a part of the caption ("a man not riding a
            horse"), or drops a negation that it has. ``absent`` adds an object that the photo does
            not show: the caption with "and no umbrella" is true, with "and an umbrella" false.
            ``present`` adds an object of the photo: the other way round. ``affirmed``, the control,
            adds the object of ``absent`` without a negation: the caption is true, with "and an
            umbrella" it is false.
        phrases: the words that negate an added object, equally likely: "and no umbrella", "without
            an umbrella" (its opposite is "with an umbrella"), "but not an umbrella".
    """

    kinds: Annotated[Sequence[Kind], MinLen(1)] = ("statement", "absent")
    objects: Annotated[Annotated[Sequence[str], MinLen(1)] | None, WITH_OBJECTS] = None
    phrases: Annotated[Sequence[Phrase], MinLen(1), WITH_OBJECTS] = get_args(Phrase)

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the proposals for the first text of each example, in order."""
        return propose_by_kind(
            examples, self.tagger, "negation", self.seed, self.kinds, self._propose,
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
        """Return a true and a false caption; ``None`` where a kind does not apply.

        Draws are keyed by their purpose, so that each kind draws alike whatever the others are.
        """
        if kind == "statement":
            denials = list(deny(sentence, tags))
            if not denials:
                return None
            rng = generator(self.seed, "denial", example.key)
            text, operation = denials[pick(rng, len(denials))]
            return self._pair(kind, example, (sentence.text, text), {"operation": operation})
        shown = shown_objects(example) if "present" in self.kinds else []
        # The control adds what the negation of the same caption adds.
        rng = generator(self.seed, "present" if kind == "present" else "absent", example.key)
        if kind == "present":
            objects = self.names.absent([example.text], shown)
        else:
            objects = self.absent_objects(example)
        if not objects or not sentence.words:
            return None
        name = objects[pick(rng, len(objects))]
        phrase = self.phrases[pick(rng, len(self.phrases))]
        there, away = add_object(sentence.text, name, phrase)
        first = {"absent": away, "present": there, "affirmed": sentence.text}[kind]
        second = away if kind == "present" else there
        return self._pair(kind, example, (first, second), {"operation": phrase, "object": name})

    def _pair(
        self, kind: Kind, example: Example, texts: tuple[str, str], change: Mapping[str, str]
    ) -> Proposal:
        before, after = replaced_run(*texts)
        edits = (None, Edit(kind, before, after))
        details = ({CATEGORY: kind}, {CATEGORY: kind, CHANGES: [dict(change)]})
        return Proposal(example, texts, edits, details=details)


def add_object(text: str, name: str, phrase: Phrase) -> tuple[str, str]:
    """Return a caption with an object added as there, and as not there.

    >>> add_object("A dog.", "umbrella", "no")
    ('A dog and an umbrella.', 'A dog and no umbrella.')
    >>> add_object("a dog", "cat", "without"), add_object("a dog", "cat", "not")
    (('a dog with a cat', 'a dog without a cat'), ('a dog and a cat', 'a dog but not a cat'))
    """
    body = text.rstrip(" .!")
    stop = text[len(body) :].strip()
    some = f"{indefinite_article(name)} {name}"
    there, away = {
        "no": (f"and {some}", f"and no {name}"),
        "without": (f"with {some}", f"without {some}"),
        "not": (f"and {some}", f"but not {some}"),
    }[phrase]
    return f"{body} {there}{stop}", f"{body} {away}{stop}"


def deny(sentence: Sentence, tags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield a caption with each of its parts denied, and the word that does so.

    A caption with a negation has it dropped instead: its opposite.

    Args:
        tags: the part of speech of each word, from a ``Tagger``.

    >>> from cfaug.editing.sentence import split
    >>> sentence = split("A man riding a horse.")
    >>> list(deny(sentence, ["DT", "NN", "VBG", "DT", "NN", "."]))
    [('No man riding a horse.', 'no'), ('A man not riding a horse.', 'not')]
    """
    words = [word.lower() for word in sentence.words]
    if not words:
        return
    if NEGATIONS & set(words):
        yield from _affirm(sentence, words, tags)
        return
    medium = MEDIUM.match(sentence.text)
    start = 0 if medium is None else sum(end <= medium.end() for _, end in sentence.spans)
    if words[start : start + 1] and words[start] in COUNTS and start + 1 < len(words):
        yield (
            _no(sentence, words, start, "No" if sentence.words[start][0].isupper() else "no"),
            "no",
        )
    for i in range(1, len(words)):
        before, behind = words[i - 1], words[i + 1 : i + 2]
        if not behind or not behind[0][0].isalnum():
            continue
        if words[i] in COPULAS and before == "there":
            yield _no(sentence, words, i + 1, "no"), "no"
        elif words[i] in COPULAS and before.isalpha():
            yield _insert(sentence, i + 1, "not"), "not"
        elif words[i] == "with" and not tags[i - 1].startswith(("VBN", "JJ", "RB", "VBD")):
            yield _without(sentence, words, i), "without"
        elif words[i] == "and" and tags[i - 1].startswith("NN") and behind[0] in COUNTS:
            yield _no(sentence, words, i + 1, "no"), "no"
        elif (
            tags[i] == "VBG" and words[i].endswith("ing") and tags[i - 1].startswith("NN")
            and words[i] not in COMPOUNDS
        ):  # fmt: skip
            yield _insert(sentence, i, "not"), "not"
        elif words[i] in LOCATIVE and tags[i] == "IN" and tags[i - 1].startswith("NN"):
            yield _insert(sentence, i, "not"), "not"


def _affirm(
    sentence: Sentence, words: Sequence[str], tags: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield a caption without one of its negations, if it has no other."""
    places = [i for i, word in enumerate(words) if word in NEGATIONS]
    if len(places) > 1:
        return
    (at,) = places
    start, end = sentence.spans[at]
    text, word = sentence.text, words[at]
    if word == "without":
        shown = "with"
    elif word == "no" and at + 1 < len(words):
        plural = tags[at + 1].startswith("NNS") or words[at + 1].endswith("s")
        shown = "some" if plural else indefinite_article(sentence.words[at + 1])
    elif word == "not" and at and at + 1 < len(words):
        yield f"{text[:start].rstrip()}{text[end:]}", "affirm"
        return
    else:  # "none", "nobody", "don't": other words would have to change
        return
    yield f"{text[:start]}{copy_case(shown, sentence.words[at])}{text[end:]}", "affirm"


def _no(sentence: Sentence, words: Sequence[str], at: int, no: str) -> str:
    """Return a caption with "no" in place of the words that count a noun."""
    last = at
    while last + 1 < len(words) and words[last] in COUNTS and words[last + 1] in COUNTS:
        last += 1
    if words[last] not in COUNTS:  # "there are people"
        return _insert(sentence, at, no)
    # "a group of people", "the side of a bus": no people, no bus.
    if words[last + 1 : last + 2] and words[last + 2 : last + 3] == ["of"]:
        noun = words[last + 1]
        if {noun, noun.removesuffix("s")} & PARTITIVES and last + 3 < len(words):
            last += 2 + (words[last + 3] in COUNTS)
    start, end = sentence.spans[at][0], sentence.spans[last][1]
    return f"{sentence.text[:start]}{no}{sentence.text[end:]}"


def _without(sentence: Sentence, words: Sequence[str], at: int) -> str:
    start, end = sentence.spans[at]
    if words[at + 1] in COUNTS - {"a", "an", "the"}:
        behind = sentence.spans[at + 1][1]
        return f"{sentence.text[:start]}without any{sentence.text[behind:]}"
    return f"{sentence.text[:start]}without{sentence.text[end:]}"


def _insert(sentence: Sentence, at: int, word: str) -> str:
    start = sentence.spans[at][0]
    return right_articles(f"{sentence.text[:start]}{word} {sentence.text[start:]}")
