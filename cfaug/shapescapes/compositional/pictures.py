"""Pictures of one or two things, and their captions.

A picture shows one thing alone, like a scene of one subject, or one or two things in the four cells
of a gathering. A caption names every thing in the picture, so that the number of named things is
part of its meaning; colours, the place and the relation of two things may be left out.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from PIL import Image

from cfaug.core.words import right_articles
from cfaug.shapescapes.gathering import FOUR, Gathering, Thing, render_gathering
from cfaug.shapescapes.scene import Scene, render
from cfaug.shapescapes.settings import WorldSettings
from cfaug.shapescapes.vocabulary import FRAMES, PLACES, Factors, words

CONVERSE: Mapping[str, str] = MappingProxyType(
    {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
)
"""The relations of one thing to another, and their converses."""

AND = "and"

THERE = FRAMES.index("there is {}")
"""The frame that a place can precede."""


@dataclass(frozen=True)
class Picture:
    """The content of a picture.

    Attributes:
        things: one or two things, which differ in shape, colour and cell.
        background: the background.
        alone: whether the only thing fills the picture, like a scene's subject.
    """

    things: tuple[Thing, ...]
    background: str
    alone: bool = False

    def record(self, seed: int) -> dict[str, Any]:
        """Return the picture as JSON, the record of a scene or of a gathering."""
        shown = self.shown(seed)
        return dict(shown.record())

    def shown(self, seed: int) -> Scene | Gathering:
        """Return the scene or gathering to draw.

        Args:
            seed: the seed of everything else: texture, places within the cells, light, noise.
        """
        if self.alone:
            (thing,) = self.things
            return Scene(Factors(thing.shape, thing.colour, self.background), seed)
        return Gathering(self.things, self.background, seed, FOUR)

    def draw(self, seed: int, settings: WorldSettings) -> bytes:
        """Return the encoded picture."""
        size, style = settings.image_size, settings.look()
        shown = self.shown(seed)
        if isinstance(shown, Scene):
            pixels = render(shown, size, style).pixels
        else:
            pixels = render_gathering(shown, size, style)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()


def relations(one: Thing, other: Thing) -> tuple[str, ...]:
    """Return all true relations of one thing to another.

    >>> relations(Thing("ball", "red", "", 0, 1), Thing("cube", "blue", "", 1, 0))
    ('left of', 'below')
    """
    found = []
    if one.column != other.column:
        found.append("left of" if one.column < other.column else "right of")
    if one.row != other.row:
        found.append("above" if one.row < other.row else "below")
    return tuple(found)


@dataclass(frozen=True)
class PictureDescription:
    """The meaning of a picture's caption.

    Attributes:
        things: the shape and colour of each thing, in the order in which they are named; a colour
            of ``None`` is left out.
        relation: the relation of the first thing to the second; ``None`` joins them by "and".
        background: the background; ``None`` is left out.
    """

    things: tuple[tuple[str, str | None], ...]
    relation: str | None = None
    background: str | None = None

    def turned(self) -> PictureDescription:
        """Return an equivalent description that names the two things in the other order."""
        relation = None if self.relation is None else CONVERSE[self.relation]
        return replace(self, things=self.things[::-1], relation=relation)


@dataclass(frozen=True)
class DescriptionForm:
    """The wording of a description.

    Attributes:
        frame: the index of the frame in ``FRAMES``.
        place_first: whether the place comes first: "on the beach there is a red ball".
        colour_after: whether colours follow: "a ball that is red".
    """

    frame: int = 0
    place_first: bool = False
    colour_after: bool = False


def say(said: PictureDescription, form: DescriptionForm = DescriptionForm()) -> str:
    """Return a description in words.

    >>> two = PictureDescription((("ball", "red"), ("cube", "orange")), "left of", "beach")
    >>> say(two)
    'a red ball left of an orange cube on the beach'
    >>> say(two, DescriptionForm(place_first=True))
    'on the beach there is a red ball left of an orange cube'
    >>> cube = PictureDescription((("ball", "red"), ("cube", None)))
    >>> say(cube, DescriptionForm(1, colour_after=True))
    'a photo of a ball that is red and a cube'
    """
    named = [_name(shape, colour, form) for shape, colour in said.things]
    phrase = f" {said.relation or AND} ".join(named)
    frame = FRAMES[form.frame]
    if said.background is not None:
        place = PLACES[said.background]
        if form.place_first:
            frame = f"{place} {FRAMES[THERE]}"
        else:
            phrase = f"{phrase} {place}"
    return right_articles(frame.format(phrase))


def _name(shape: str, colour: str | None, form: DescriptionForm) -> str:
    if colour is None:
        return f"a {shape}"
    return f"a {shape} that is {colour}" if form.colour_after else f"a {colour} {shape}"


def words_of_pictures() -> tuple[str, ...]:
    """Return ``words()``, followed by the words that only captions of several things contain."""
    known = words()
    said = {word for relation in CONVERSE for word in relation.split()} | {AND, "that"}
    return known + tuple(sorted(said - set(known)))
