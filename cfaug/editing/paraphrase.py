"""Paraphrases by rules: another frame or word order, true whenever the caption is true.

They are hard positives: a model that learnt from similar but wrong captions tends to reject right
captions that look different (Kamath et al., 2024, The Hard Positive Truth about Vision-Language
Compositionality). Therefore such captions serve as a control, and as a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import MinLen

from cfaug.core.articles import right_articles
from cfaug.core.read_with import ReadWith
from cfaug.core.types import Edited, Example
from cfaug.core.validation import Seed, check_fields
from cfaug.editing.baselines.editor import MOST_WORDS, NO_CANDIDATE, TOO_LONG, draw_for, pick
from cfaug.editing.changed_text import propose_change
from cfaug.editing.phrases import LOCATIVE, MEDIUM, PARTITIVES
from cfaug.editing.protocols import Tagger
from cfaug.editing.sentence import Sentence, Slot, normalise, split
from cfaug.editing.stop_words import NLTK_STOP_WORDS
from cfaug.editing.synonyms import Synonyms

METHOD = "paraphrase"

Kind = Literal["frame", "order", "synonym"]
"""The kinds of paraphrase."""

FRAMES = ("a photo of {}", "a picture of {}", "this is {}", "an image of {}", "here is {}")
"""Frames for a caption that begins with its subject."""

PHOTOS = re.compile(
    r"^(?P<article>an?|the|this) (?P<medium>photo|photograph|picture|image) of (?=\w)", re.I
)
"""Frames that name the picture, which can replace each other."""

STATED = re.compile(r"^(?:this is|here is|there is) (?=an? )", re.I)
"""Frames that state the content, which can replace each other before "a"."""


@dataclass(frozen=True)
class Paraphrase:
    """Paraphrases a caption: its meaning stays, its wording changes.

    The rules are few and careful: a caption to which none applies gives no set.

    - ``frame``: "a dog on the grass" becomes "a photo of a dog on the grass", "a photo of a dog"
      becomes "this is a dog". It applies only to captions that begin with an article and are not a
      whole sentence.
    - ``order``: "a dog on the grass" becomes "on the grass, a dog", if the caption ends with its
      only place; "a dog and a cat" becomes "a cat and a dog", if they are the whole caption.
    - ``synonym``: a noun with a single sense in WordNet becomes another word of that sense. The
      rule is off by default, because it needs WordNet.

    Args:
        tagger: the part-of-speech tagger that finds nouns and places.
        kinds: the rules to use.
        per: ``caption`` makes one set of a caption, by one of the applicable rules with equal
            probability; ``kind`` makes one set for every applicable rule.
        synonyms: the synonyms from WordNet, for ``synonym``; ``None`` searches for WordNet.
        seed: the seed of the draws, together with the example's key.

    Raises:
        UserError: if a setting is invalid; it names the setting.
    """

    tagger: Tagger
    kinds: Annotated[Sequence[Kind], MinLen(1)] = ("frame", "order")
    per: Literal["caption", "kind"] = "caption"
    synonyms: Synonyms | None = None
    seed: Seed = 0

    read_with: ClassVar[ReadWith] = {"synonyms": {"kinds": ("synonym",)}}

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the proposals for the first text of each example, in order.

        Raises:
            UserError: if ``synonym`` is used and there is no WordNet on this machine.
        """
        sentences = [split(normalise(example.text)) for example in examples]
        tags = self.tagger.tag([one.words for one in sentences])
        draws = draw_for(self.seed, METHOD, examples)
        return [self._edit(*one) for one in zip(examples, sentences, tags, draws, strict=True)]

    def describe(self) -> dict[str, str]:
        """Return the description of the tagger, and the source of synonyms."""
        more = {"synonyms": "WordNet"} if "synonym" in self.kinds else {}
        return {**self.tagger.describe(), **more}

    def _edit(
        self, example: Example, sentence: Sentence, tags: Sequence[str], rng: np.random.Generator
    ) -> Edited:
        if len(sentence.words) > MOST_WORDS:
            return Edited((), {TOO_LONG: 0})
        found = {}
        for kind in self.kinds:
            choices = list(self._say(kind, sentence, tags))
            if choices:
                found[kind] = choices[pick(rng, len(choices))]
        counts: dict[str, int] = {kind: int(kind in found) for kind in self.kinds}
        chosen = list(found.items())
        if chosen and self.per == "caption":
            chosen = [chosen[pick(rng, len(chosen))]]
        proposals = [
            proposal
            for kind, text in chosen
            for proposal in propose_change(
                example, text, kind, changes=[{"operation": kind}], reason=NO_CANDIDATE
            ).proposals
        ]
        return Edited(tuple(proposals), counts)

    def _say(self, kind: Kind, sentence: Sentence, tags: Sequence[str]) -> Iterator[str]:
        if kind == "frame":
            yield from frames_of(sentence.text, tags)
        elif kind == "order":
            yield from orders_of(sentence, tags)
        else:
            yield from self._synonyms_in(sentence, tags)

    def _synonyms_in(self, sentence: Sentence, tags: Sequence[str]) -> Iterator[str]:
        known = self.synonyms or Synonyms()
        for slot, (word, tag) in enumerate(zip(sentence.words, tags, strict=True)):
            if tag != "NN" or word.lower() in NLTK_STOP_WORDS | PARTITIVES or not word.islower():
                continue
            senses = known.senses(word)
            names = {name for sense in senses for name in sense if name.isalpha()}
            if len(senses) == 1:  # a word with several senses may mean something else here
                for name in sorted(names - {word}):
                    start, end = Slot(slot, slot).span(sentence)
                    yield right_articles(f"{sentence.text[:start]}{name}{sentence.text[end:]}")


def frames_of(text: str, tags: Sequence[str]) -> Iterator[str]:
    """Yield a caption in other frames, unless it is a whole sentence or has an unknown beginning.

    >>> list(frames_of("A photo of a cat.", ["DT", "NN", "IN", "DT", "NN", "."]))[0]
    'A picture of a cat.'
    """
    capital = text[:1].isupper()
    bare = PHOTOS.sub("", text) if PHOTOS.match(text) else STATED.sub("", text)
    framed = bare != text
    if not re.match(r"an? \w", bare, re.I) or (not framed and _states(text, tags)):
        return
    if not framed and MEDIUM.match(text):
        return  # a sketch must not be called a photo
    bare = bare[:1].lower() + bare[1:]
    for frame in FRAMES:
        said = frame.format(bare)
        if said.lower() != text.lower():
            yield said[:1].upper() + said[1:] if capital else said


def _states(text: str, tags: Sequence[str]) -> bool:
    """Return whether a caption is a sentence: it has a verb in the present or past tense."""
    return any(tag in ("VBZ", "VBP", "VBD", "MD") for tag in tags)


def orders_of(sentence: Sentence, tags: Sequence[str]) -> Iterator[str]:
    """Yield a caption in other orders: with the place first, or with two things exchanged.

    >>> from cfaug.editing.sentence import split
    >>> list(orders_of(split("a dog on the grass"), ["DT", "NN", "IN", "DT", "NN"]))
    ['on the grass, a dog']
    >>> list(orders_of(split("a dog and a cat"), ["DT", "NN", "CC", "DT", "NN"]))
    ['a cat and a dog']
    """
    words = [word.lower() for word in sentence.words]
    stop = sentence.text[-1:] if words and words[-1] == "." else ""
    end = len(words) - bool(stop)
    if end < 3 or words[0] not in ("a", "an", "the") or any(w in ",;:" for w in words[:end]):
        return
    inner = range(1, end)
    places = [i for i in inner if words[i] in LOCATIVE and tags[i].startswith(("IN", "TO", "RP"))]
    joints = [i for i in inner if words[i] == "and"]
    others = [i for i in inner if tags[i].startswith(("IN", "VB", "TO", "MD", "W", "CC"))]
    if len(places) == 1 and others == places and _is_phrase(tags[places[0] + 1 : end]):
        yield _turn(sentence, places[0], end, ", ", stop)
    if len(joints) == 1 and others == joints and words[joints[0] + 1] in ("a", "an"):
        yield _turn(sentence, joints[0] + 1, end, " and ", stop, without=1)


def _is_phrase(tags: Sequence[str]) -> bool:
    """Return whether words are a noun with its modifiers."""
    inside = ("DT", "JJ", "NN", "CD", "VBG", "VBN")  # "its tow" may refer to something before it
    return bool(tags) and tags[-1].startswith("NN") and all(t.startswith(inside) for t in tags)


def _turn(sentence: Sentence, at: int, end: int, joint: str, stop: str, *, without: int = 0) -> str:
    """Move the words from ``at`` to ``end`` to the front; drop ``without`` words before them."""
    text, spans = sentence.text, sentence.spans
    last = text[spans[at][0] : spans[end - 1][1]]
    first = text[: spans[at - 1 - without][1]]
    if first[:1].isupper():
        last, first = last[:1].upper() + last[1:], first[:1].lower() + first[1:]
    return f"{last}{joint}{first}{stop}"
