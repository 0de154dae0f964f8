"""A parser and writer of captions of the world.

The captions of this world have a grammar, so that the kind of an edit, its change, and whether it
keeps the label are known exactly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cfaug.shapescapes.vocabulary import (
    COLOURS,
    DOMAINS,
    FRAMES,
    PHOTO,
    PLACES,
    SUBJECTS,
    CaptionWording,
    Factors,
    caption,
)

FACTOR_OF = {
    "subject": "subject",
    "adjective": "colour",
    "background": "background",
    "domain": "domain",
}
"""The factor of a scene that each of LANCE's kinds of edit changes; no scene has an object."""

_PHOTO_FRAMES = [frame for frame in FRAMES if frame != "{}"]


@dataclass(frozen=True)
class Statement:
    """The claims of a caption about a scene; ``None`` for a factor that it does not mention.

    Attributes:
        subject: the subject that is shown.
        colour: the subject's colour.
        background: the background.
        domain: the medium, if the caption says "a sketch of" or "a photo of".
    """

    subject: str
    colour: str | None = None
    background: str | None = None
    domain: str | None = None

    def agrees(self, factors: Factors) -> bool:
        """Return whether all claims are true for a scene; no domain means a photo."""
        said = {**vars(self), "domain": self.domain or PHOTO}
        return all(value in (None, getattr(factors, name)) for name, value in said.items())

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
    found = _SENTENCE.fullmatch(" ".join(text.lower().split()).removesuffix("."))
    if found is None:
        return None
    place = found["place"]
    background = None if place is None else next(k for k, v in PLACES.items() if v == place)
    return Statement(found["subject"], found["colour"], background, found["domain"])


def _any(words: object) -> str:
    assert isinstance(words, list | tuple)
    return "|".join(re.escape(word) for word in words)


_SENTENCE = re.compile(
    rf"(?:an? (?P<domain>{_any(DOMAINS)}) of |"
    rf"{'|'.join(re.escape(frame.replace('{}', '')) for frame in _PHOTO_FRAMES)})?"
    rf"an? (?:(?P<colour>{_any(tuple(COLOURS))}) )?(?P<subject>{_any(SUBJECTS)})"
    rf"(?: (?P<place>{_any(tuple(PLACES.values()))}))?"
)
