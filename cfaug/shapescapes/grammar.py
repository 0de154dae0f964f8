"""What a caption of the world says: read back from its words, and said anew.

The captions of this world have one grammar, so whether an edit of a caption is of its kind, whether
it kept the label and what it changed are known exactly.
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
    Factors,
    Wording,
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
    """What a caption says of a scene; ``None`` where it says nothing.

    Attributes:
        subject: what is shown.
        colour: the subject's.
        background: where it is.
        domain: by what means it is shown, where the caption says "a sketch of" or "a photo of".
    """

    subject: str
    colour: str | None = None
    background: str | None = None
    domain: str | None = None

    def agrees(self, factors: Factors) -> bool:
        """Say whether all that is said is true of a scene; a photo need not be called one."""
        said = {**vars(self), "domain": self.domain or PHOTO}
        return all(value in (None, getattr(factors, name)) for name, value in said.items())

    def differing(self, other: Statement) -> tuple[str, ...]:
        """Return the factors of which the two say different things."""
        return tuple(name for name, value in vars(self).items() if value != getattr(other, name))


def describe(factors: Factors) -> str:
    """Say all that a scene shows, its domain included.

    >>> describe(Factors("cat", "orange", "beach"))
    'a photo of an orange cat on the beach'
    >>> describe(Factors("cat", "orange", "beach", "sketch"))
    'a sketch of an orange cat on the beach'
    """
    return caption(factors, Wording(FRAMES.index("a photo of {}")))


def parse(text: str) -> Statement | None:
    """Return what a caption says, or ``None`` if it is not a sentence of the world's grammar.

    Capitals, white space and a period at the end do not matter; "a" and "an" are both taken.

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
