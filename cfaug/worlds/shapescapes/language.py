"""The language of the world as parts of a caption editor, without a model or a download.

A vocabulary distinguishes nouns from adjectives and fills a blank with other words of the same
kind, so that the editor of real captions turns "a red ball on the beach" into "a red cat on the
beach".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import generator
from cfaug.core.validation import Seed
from cfaug.editing.edit_checks import KIND_CORRECT, LABEL_KEPT
from cfaug.editing.protocols import Blank, CaptionEdit, Fill, VariationRequest, Variations, Verdict
from cfaug.editing.rule_edits import NO_PLACE, NO_RULE
from cfaug.editing.sentence import split
from cfaug.worlds.shapescapes.settings import (
    COLOURS,
    DOMAINS,
    FRAMES,
    PHOTO,
    PLACES,
    SUBJECTS,
    WEATHER,
    CaptionWording,
    Factors,
    caption,
)

_OTHERS = {
    word: tuple(other for other in kind if other != word)
    for kind in (SUBJECTS, tuple(COLOURS))
    for word in kind
}
_TAGS = {
    **{
        word: "NN"
        for text in (*FRAMES, *PLACES.values())
        for word in split(text.replace("{}", "")).words
    },
    **dict.fromkeys(SUBJECTS, "NN"),
    **dict.fromkeys(COLOURS, "JJ"),
    **dict.fromkeys(("a", "an", "the", "this", "there"), "DT"),
    **dict.fromkeys(("on", "in", "of", "at"), "IN"),
    "is": "VBZ",
}


class VocabularyTagger:
    """A tagger of the world's words; an unknown word is a noun, as in common taggers."""

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        return [[_TAGS.get(word.lower(), "NN") for word in words] for words in sentences]

    def describe(self) -> dict[str, str]:
        return {"tagger": "ShapeScapes vocabulary"}


class VocabularyFiller:
    """A filler of blanks with the other words of the same kind, with equal probabilities.

    Nouns that are not subjects ("photo", "beach") get no fills: the world cannot draw their edits.
    """

    def fill(self, blanks: Sequence[Blank], top_k: int) -> list[list[Fill]]:
        """Return up to ``top_k`` other subjects, or other colours, in the vocabulary's order."""
        others = [_OTHERS.get(blank.word.lower(), ()) for blank in blanks]
        return [[Fill(word, 1 / len(words)) for word in words[:top_k]] for words in others]

    def describe(self) -> dict[str, str]:
        return {"filler": "ShapeScapes vocabulary"}


@dataclass(frozen=True)
class AttributeFiller:
    """A language model of attributes before nouns, which is independent of images.

    An empty blank before a noun gets the world's colours, with probabilities that depend on the
    noun alone: in language a green tree is more usual than a purple one, whatever a photo shows.
    Each noun's probabilities are drawn from a uniform Dirichlet distribution. Any other blank gets
    the words of ``VocabularyFiller``.
    """

    seed: Seed = 0
    """the seed of what is drawn"""

    def fill(self, blanks: Sequence[Blank], top_k: int) -> list[list[Fill]]:
        """Return each blank's ``top_k`` most probable words."""
        filled = VocabularyFiller().fill(blanks, top_k)
        for row, blank in enumerate(blanks):
            following = split(blank.text[blank.end :]).words
            noun = following[0].lower() if following else ""
            if not blank.word.strip() and _TAGS.get(noun) == "NN":
                rng = generator(self.seed, "attributes", noun)
                shares = rng.dirichlet(np.ones(len(COLOURS))).tolist()
                fills = map(Fill, COLOURS, shares)
                filled[row] = sorted(fills, key=lambda fill: -fill.probability)[:top_k]
        return filled

    def describe(self) -> dict[str, str]:
        return {"filler": f"ShapeScapes attributes, seed {self.seed}"}


class VocabularyEncoder:
    """Exact similarity of words: a text has cosine 1 with itself, and 0 with any other.

    It knows the words of the world and "brick wall"; an unknown text has cosine 0 with every text,
    even with itself.
    """

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return embeddings (texts, dim): of unit length, or 0 for an unknown text."""
        known = {word: column for column, word in enumerate([*_TAGS, "brick wall"])}
        embeddings = np.zeros((len(texts), len(known)))
        for row, text in enumerate(texts):
            column = known.get(" ".join(text.lower().split()))
            if column is not None:
                embeddings[row, column] = 1
        return embeddings

    def describe(self) -> dict[str, str]:
        return {"encoder": "ShapeScapes vocabulary"}


# A parser and writer of captions of the world.
#
# The captions of this world have a grammar, so that the kind of an edit, its change, and whether it
# keeps the label are known exactly.

FACTOR_OF = {
    "subject": "subject",
    "adjective": "colour",
    "background": "background",
    "domain": "domain",
}
"""The factor of a scene that each of LANCE's kinds of edit changes; no scene has an object."""


@dataclass(frozen=True)
class Statement:
    """The claims of a caption about a scene; ``None`` for a factor that it does not mention.

    Attributes:
        domain: the medium, if the caption says "a sketch of" or "a photo of".
    """

    subject: str
    colour: str | None = None
    background: str | None = None
    domain: str | None = None

    def agrees(self, factors: Factors) -> bool:
        """Return whether all claims are true for a scene; no domain means a photo."""
        claims = {**vars(self), "domain": self.domain or PHOTO}
        return all(value in (None, getattr(factors, name)) for name, value in claims.items())

    def differing(self, other: Statement) -> tuple[str, ...]:
        """Return the names of the factors in which two statements differ."""
        return tuple(name for name, value in vars(self).items() if value != getattr(other, name))


def describe(factors: Factors) -> str:
    """Return a caption of the whole scene, including its domain.

    >>> describe(Factors("cat", "orange", "beach"))
    'a photo of an orange cat on the beach'
    >>> describe(Factors("cat", "orange", "beach", "sketch"))
    'a sketch of an orange cat on the beach'
    """
    return caption(factors, CaptionWording(FRAMES.index("a photo of {}")))


def parse(text: str) -> Statement | None:
    """Return the claims of a caption, or ``None`` if it is not a sentence of the world's grammar.

    Capitals, white space and a period at the end do not matter; "a" and "an" are both accepted.

    >>> parse("A sketch of a red ball on the beach.")
    Statement(subject='ball', colour='red', background='beach', domain='sketch')
    >>> parse("a cat")
    Statement(subject='cat', colour=None, background=None, domain=None)
    >>> parse("a red dog on the beach") is None
    True
    """
    match = _SENTENCE.fullmatch(_plain(text))
    if match is None:
        return None
    where = match["place"]
    background = None if where is None else next(k for k, v in PLACES.items() if v == where)
    return Statement(match["subject"], match["colour"], background, match["domain"])


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).removesuffix(".")


def _any(words: Iterable[str]) -> str:
    return "|".join(map(re.escape, words))


_SENTENCE = re.compile(
    rf"(?:an? (?P<domain>{_any(DOMAINS)}) of |"
    rf"{_any(frame.replace('{}', '') for frame in FRAMES if frame != '{}')})?"
    rf"an? (?:(?P<colour>{_any(COLOURS)}) )?(?P<subject>{_any(SUBJECTS)})"
    rf"(?: (?P<place>{_any(PLACES.values())}))?"
)


# Variations of the world's captions from its vocabulary, and exact checks of any variations.
#
# They need no model and no download, and the world can draw every edit.

VALUES: Mapping[str, tuple[str, ...]] = {
    "subject": SUBJECTS,
    "adjective": tuple(COLOURS),
    "background": tuple(PLACES),
    "background-location": tuple(background for background in PLACES if background not in WEATHER),
    "background-weather": WEATHER,
    "domain": DOMAINS,
}
"""The possible values for each prompt; the world has no objects."""


class WorldVariations:
    """A perturber that changes the subject, colour, place or domain of the world's captions."""

    def vary(self, requests: Sequence[VariationRequest]) -> list[Variations]:
        return [self._vary(request) for request in requests]

    def _vary(self, request: VariationRequest) -> Variations:
        statement = parse(request.caption)
        values = VALUES.get(request.prompt.name, VALUES.get(request.kind))
        if statement is None:
            return Variations(problem="no caption of the world")
        if values is None or request.kind not in FACTOR_OF:
            return Variations(problem=NO_RULE)
        factor = FACTOR_OF[request.kind]
        others = [value for value in values if value != _value(statement, factor)]
        order = generator(request.seed, "world").permutation(len(others))[: request.count].tolist()
        # The text before the phrase of a photo, such as "there is "; may be empty.
        frame = f"a {PHOTO} of "
        if statement.domain in (None, PHOTO):
            words = _plain(request.caption).split()
            frame = "".join(f"{word} " for word in words[: -len(_phrase(statement).split())])
        texts = []
        for i in order:
            new = replace(statement, **{factor: others[i]})
            is_photo = new.domain in (None, PHOTO)
            texts.append((frame if is_photo else f"a {new.domain} of ") + _phrase(new))
        return Variations(tuple(texts), "" if texts else NO_PLACE)

    def describe(self) -> dict[str, str]:
        return {"perturber": "ShapeScapes vocabulary"}


def _value(statement: Statement, factor: str) -> str | None:
    """Return a caption's value of a factor; no domain means a photo."""
    value: str | None = getattr(statement, factor)
    return value or PHOTO if factor == "domain" else value


def _phrase(statement: Statement) -> str:
    """Return the part of a caption after its frame."""
    shown = Factors(statement.subject, statement.colour or "red", statement.background or "beach")
    wording = CaptionWording(
        0, colour=statement.colour is not None, background=statement.background is not None
    )
    return caption(shown, wording)


def _changes(before: Statement, after: Statement, factor: str | None) -> bool:
    """Return whether two captions differ only in a factor, which the second one gives a value."""
    changed = [name for name in vars(before) if _value(before, name) != _value(after, name)]
    return changed == [factor] and _value(after, changed[0]) is not None


class WorldCheck:
    """A check of whether edits of the world's captions are of their kind, and keep the label.

    The check is exact, by the world's grammar. An edit is of its kind if it changes only the value
    of the kind's factor; it keeps the label if it has the same subject. An edit that is not a
    caption of the world is of no kind, and keeps the label if it names it. Edits of other captions,
    and kinds that LANCE does not have, are not judged. The world has no objects, so no edit is of
    the kind object. The notes are ``kind_correct`` and ``label_kept``; no edit is rejected.
    """

    name = "world"

    def judge(self, edits: Sequence[CaptionEdit]) -> list[Verdict]:
        return [Verdict("", self._notes(edit)) for edit in edits]

    def _notes(self, edit: CaptionEdit) -> dict[str, bool]:
        before, after = parse(edit.caption), parse(edit.text)
        if before is None:
            return {}
        notes = {}
        if edit.kind in (*FACTOR_OF, "object"):
            factor = FACTOR_OF.get(edit.kind)
            notes[KIND_CORRECT] = after is not None and _changes(before, after, factor)
        words = edit.text.lower().split()
        notes[LABEL_KEPT] = (
            before.subject in words if after is None else before.subject == after.subject
        )
        return notes

    def describe(self) -> dict[str, str]:
        return {"check": "ShapeScapes grammar"}
