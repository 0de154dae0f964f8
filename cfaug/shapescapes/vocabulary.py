"""The vocabulary of scenes and of their captions.

A caption reads "a red ball on the beach"; the colour and the place may be left out, so that "a
ball" is a natural prompt for zero-shot classification. Other media than photos are named: "a sketch
of a red ball on the beach".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

SUBJECTS = ("ball", "cube", "star", "cone", "tree", "cat", "house", "fish", "heart", "ring")
"""The subjects; also the class names of zero-shot classification, in label order."""

Rgb = tuple[int, int, int]

COLOURS: Mapping[str, Rgb] = MappingProxyType(
    {
        "red": (214, 40, 40),
        "orange": (245, 130, 25),
        "yellow": (248, 216, 40),
        "green": (45, 160, 60),
        "blue": (40, 90, 220),
        "purple": (135, 50, 175),
        "pink": (248, 140, 190),
        "black": (25, 25, 30),
    }
)

PLACES: Mapping[str, str] = MappingProxyType(
    {
        "beach": "on the beach",
        "grass": "on the grass",
        "night": "at night",
        "snow": "in the snow",
        "brick": "in front of a brick wall",
        "water": "in the water",
        "road": "on the road",
        "curtain": "in front of a curtain",
    }
)
"""The words for each background in a caption."""

FRAMES = ("{}", "a photo of {}", "a picture of {}", "there is {}", "this is {}")
"""The caption templates; ``{}`` takes the noun phrase."""

PROMPTS = tuple(frame.replace("{}", "a {c}") for frame in FRAMES)
"""Zero-shot templates; ``{c}`` takes the class name."""

KINDS = ("subject", "colour", "background")
"""The factors of a photo, which are also the kinds of edit."""

WEATHER = ("night", "snow")
"""The backgrounds that are a time of day or weather; the others are places."""

PHOTO = "photo"

DOMAINS = (PHOTO, "sketch", "painting", "cartoon", "mosaic")
"""The media of scenes, by their names in captions: "a sketch of a red ball"."""


@dataclass(frozen=True)
class Factors:
    """The factors of a scene: one subject of one colour on one background, in one domain."""

    subject: str
    colour: str
    background: str
    domain: str = PHOTO


@dataclass(frozen=True)
class CaptionWording:
    """The wording of a caption: its frame, and whether it names the colour and the background."""

    frame: int = 0
    colour: bool = True
    background: bool = True


def draw_wording(
    rng: np.random.Generator, *, drop_colour: float, drop_background: float
) -> CaptionWording:
    """Draw a frame, and leave out the colour and the background with the given probabilities."""
    frame = int(rng.integers(len(FRAMES)))
    colour, background = rng.random(2)
    return CaptionWording(frame, bool(colour >= drop_colour), bool(background >= drop_background))


def caption(factors: Factors, wording: CaptionWording) -> str:
    """Return a scene's caption; a domain other than the photo is named in place of the frame.

    >>> caption(Factors("cat", "orange", "beach"), CaptionWording())
    'an orange cat on the beach'
    >>> short = CaptionWording(1, colour=False, background=False)
    >>> caption(Factors("cat", "orange", "beach"), short)
    'a photo of a cat'
    >>> caption(Factors("cat", "orange", "beach", "sketch"), CaptionWording(background=False))
    'a sketch of an orange cat'
    """
    noun = f"{factors.colour} {factors.subject}" if wording.colour else factors.subject
    phrase = f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
    if wording.background:
        phrase += f" {PLACES[factors.background]}"
    frame = FRAMES[wording.frame] if factors.domain == PHOTO else f"a {factors.domain} of {{}}"
    return frame.format(phrase)


def words() -> tuple[str, ...]:
    """Return every word of captions of photos and of prompts, sorted."""
    texts = [*FRAMES, *SUBJECTS, *COLOURS, *PLACES.values(), "a an"]
    return tuple(sorted({word for text in texts for word in text.replace("{}", "").split()}))


def words_of_domains() -> tuple[str, ...]:
    """Return ``words()``, followed by the words that only captions of other domains have."""
    known = words()
    return known + tuple(sorted(set(DOMAINS) - set(known)))
