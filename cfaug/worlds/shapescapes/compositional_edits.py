"""Pairs of pictures that differ by one edit, with their captions: replace, swap, add.

An edit is drawn for a picture in which it is possible; everything else stays unchanged. The *law*
of a picture draws its colours uniformly, or correlated with its shapes as in training captions
(with the world's bias), or always correlated. If the law is not uniform, most edits make a picture
that is rare in training captions, so that a reader of captions alone can tell the first from the
second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from cfaug.data.captions import right_articles
from cfaug.worlds.shapescapes.drawing import Scene, encode_png, render
from cfaug.worlds.shapescapes.settings import FRAMES, PLACES, Factors, WorldSettings, words
from cfaug.worlds.shapescapes.world import (
    FOUR,
    SHAPES,
    Gathering,
    Thing,
    World,
    pick,
    render_gathering,
)

CELLS = tuple((column, row) for column in range(2) for row in range(2))
PLACED = tuple((cell, other) for cell in CELLS for other in CELLS if cell != other)
"""The possible places of two things."""


@dataclass(frozen=True)
class PictureDistribution:
    """The distribution of pictures.

    Attributes:
        world: the world, with its colours, its backgrounds, and the home colour of each shape.
        bias: the probability that a thing has its home colour; ``None`` draws colours uniformly.
        keep_home: whether an edit of shapes or colours may leave every thing in its home colour.
    """

    world: World
    bias: float | None = None
    keep_home: bool = True

    @property
    def needs(self) -> frozenset[str]:
        """The parts that every caption must mention: the colours, if edits change home colours."""
        return frozenset() if self.keep_home else frozenset({"colours"})

    def colour(self, rng: np.random.Generator, shape: str, taken: Sequence[str] = ()) -> str:
        """Draw a colour for a thing that no other thing has."""
        known = [colour for colour in self.world.settings.colours if colour not in taken]
        home = self.home(shape)
        if self.bias is None or home not in known:
            return pick(rng, known)
        others = [colour for colour in known if colour != home]
        return home if rng.random() < self.bias else pick(rng, others)

    def home(self, shape: str) -> str:
        """Return the home colour of a shape."""
        return self.world.homes["colour"][shape]

    def is_strange(self, things: Sequence[Thing]) -> bool:
        """Return whether any thing is not in its home colour."""
        return any(thing.colour != self.home(thing.shape) for thing in things)


@dataclass(frozen=True)
class Side:
    """One of two pictures.

    Attributes:
        picture: the picture; its things are in the order in which its caption names them.
        relation: the relation of the first thing to the second in the caption.
        numbers: the numbers of its things, which an edit does not change.
    """

    picture: Picture
    relation: str | None = None
    numbers: tuple[int, int] = (0, 1)


@dataclass(frozen=True)
class Pair:
    """Two pictures that differ by an edit.

    Attributes:
        sides: the pictures before and after the edit.
        needs: the parts that both captions must mention: ``colours``, ``place``.
        at: the number of the edited thing.
        more: the part that only the second caption mentions, if that is the edit: ``colour`` (of
            the edited thing), ``place`` or ``relation``.
    """

    sides: tuple[Side, Side]
    words: tuple[str, str]
    needs: frozenset[str] = frozenset()
    at: int = 0
    more: str | None = None

    def describe(
        self, rng: np.random.Generator, *, drop_colour: float = 0.0, drop_background: float = 0.5
    ) -> tuple[PictureDescription, PictureDescription]:
        """Return the descriptions of both pictures, equal except for the edit.

        Args:
            drop_colour: the probability that captions leave out a thing's colour, if they may.
            drop_background: the probability that they leave out the place, if they may.
        """
        drawn = rng.random(3)
        coloured = ["colours" in self.needs or value >= drop_colour for value in drawn[:2]]
        with_place = "place" in self.needs or bool(drawn[2] >= drop_background)
        first, second = (
            PictureDescription(
                tuple(
                    (thing.shape, thing.colour if coloured[number] else None)
                    for thing, number in zip(side.picture.things, side.numbers, strict=False)
                ),
                side.relation,
                side.picture.background if with_place else None,
            )
            for side in self.sides
        )
        # Only the second caption mentions what is added.
        if self.more == "colour":
            things = list(first.things)
            things[self.at] = (things[self.at][0], None)
            first = replace(first, things=tuple(things))
        elif self.more == "place":
            first = replace(first, background=None)
        elif self.more == "relation":
            first = replace(first, relation=None)
        return first, second


def draw_picture(
    rng: np.random.Generator, law: PictureDistribution, count: int, *, alone: bool = False
) -> Picture:
    """Draw a picture of ``count`` things."""
    # Two shapes can have the same home colour, but the things of a picture differ in colour.
    while True:
        shapes = rng.permutation(SHAPES).tolist()[:count]
        if law.bias is None or len({law.home(shape) for shape in shapes}) == count:
            break
    colours: list[str] = []
    for shape in shapes:
        colours.append(law.colour(rng, shape, colours))
    cells = pick(rng, PLACED)
    things = [
        Thing(shape, colour, "large", *cell)
        for shape, colour, cell in zip(shapes, colours, cells, strict=False)
    ]
    return Picture(tuple(things), pick(rng, law.world.settings.backgrounds), alone)


def _relation(rng: np.random.Generator, picture: Picture) -> str | None:
    """Draw whether a caption mentions the relation of two things, and return the relation."""
    if len(picture.things) < 2 or rng.random() < 0.5:
        return None
    return pick(rng, relations(*picture.things))


def _replace(name: str) -> Callable[..., Pair]:
    """Return the edit that gives one thing another shape or colour."""

    def edit(rng: np.random.Generator, law: PictureDistribution, *, alone: bool = False) -> Pair:
        before = draw_picture(rng, law, 1 if alone else 2, alone=alone)
        at = int(rng.integers(len(before.things)))
        known = SHAPES if name == "shape" else law.world.settings.colours
        old = getattr(before.things[at], name)
        taken = {getattr(thing, name) for thing in before.things}
        left, right = before.things[:at], before.things[at + 1 :]
        changed = [
            (*left, _give(before.things[at], name, value), *right)
            for value in known
            if value not in taken
        ]
        things = pick(
            rng, [variant for variant in changed if law.keep_home or law.is_strange(variant)]
        )
        relation = _relation(rng, before)
        after = replace(before, things=things)
        needs = frozenset({"colours"}) if name == "colour" else law.needs
        words = (old, getattr(things[at], name))
        return Pair((Side(before, relation), Side(after, relation)), words, needs, at)

    return edit


def _give(thing: Thing, name: str, value: Any) -> Thing:
    return replace(thing, **{name: value})


def _replace_place(
    rng: np.random.Generator, law: PictureDistribution, *, alone: bool = False
) -> Pair:
    before = draw_picture(rng, law, 1 if alone else 2, alone=alone)
    others = [
        background
        for background in law.world.settings.backgrounds
        if background != before.background
    ]
    after = replace(before, background=pick(rng, others))
    relation = _relation(rng, before)
    words = (before.background, after.background)
    return Pair((Side(before, relation), Side(after, relation)), words, frozenset({"place"}))


def _replace_relation(rng: np.random.Generator, law: PictureDistribution) -> Pair:
    before = draw_picture(rng, law, 2)
    true = relations(*before.things)
    old = pick(rng, true)
    new = pick(rng, [relation for relation in CONVERSE if relation not in true])
    moved = [
        tuple(thing.at(cell) for thing, cell in zip(before.things, cells, strict=True))
        for cells in PLACED
    ]
    right = [pair for pair in moved if new in relations(*pair) and old not in relations(*pair)]
    # The first thing stays in its place if possible.
    still = [pair for pair in right if pair[0] == before.things[0]]
    after = replace(before, things=pick(rng, still or right))
    return Pair((Side(before, old), Side(after, new)), (old, new))


def _swap(name: str) -> Callable[..., Pair]:
    """Return the edit that exchanges the shapes or the colours of two things."""

    def edit(rng: np.random.Generator, law: PictureDistribution) -> Pair:
        before = draw_picture(rng, law, 2)
        first, second = before.things
        values = getattr(first, name), getattr(second, name)
        things = _give(first, name, values[1]), _give(second, name, values[0])
        relation = _relation(rng, before)
        sides = Side(before, relation), Side(replace(before, things=things), relation)
        return Pair(sides, (", ".join(values), ", ".join(values[::-1])), frozenset({"colours"}))

    return edit


def _swap_relation(rng: np.random.Generator, law: PictureDistribution) -> Pair:
    """Exchange the places of two things: the first thing becomes the second in the caption."""
    before = draw_picture(rng, law, 2)
    first, second = before.things
    relation = pick(rng, relations(first, second))
    things = second.at((first.column, first.row)), first.at((second.column, second.row))
    sides = Side(before, relation), Side(replace(before, things=things), relation, (1, 0))
    return Pair(sides, (f"{first.shape}, {second.shape}", f"{second.shape}, {first.shape}"))


def _add_subject(rng: np.random.Generator, law: PictureDistribution) -> Pair:
    after = draw_picture(rng, law, 2)
    if not law.keep_home:
        first, second = after.things
        taken = (first.colour, law.home(second.shape))
        known = [colour for colour in law.world.settings.colours if colour not in taken]
        after = replace(after, things=(first, replace(second, colour=pick(rng, known))))
    before = replace(after, things=after.things[:1])
    shapes = [thing.shape for thing in after.things]
    sides = Side(before), Side(after, _relation(rng, after))
    return Pair(sides, (shapes[0], ", ".join(shapes)), law.needs)


def _add_claim(inner: Callable[..., Pair], claim: str) -> Callable[..., Pair]:
    """Return the edit that adds a claim to a caption, which is false for the first picture."""
    return lambda rng, law: replace(inner(rng, law), more=claim)


EDITS: Mapping[str, Callable[..., Pair]] = {
    "replace_subject": _replace("shape"),
    "replace_colour": _replace("colour"),
    "replace_place": _replace_place,
    "replace_relation": _replace_relation,
    "swap_subject": _swap("shape"),
    "swap_colour": _swap("colour"),
    "swap_relation": _swap_relation,
    "add_subject": _add_subject,
}
"""Edits after which neither caption is true for the other picture, by category."""
CLAIMS: Mapping[str, Callable[..., Pair]] = {
    f"add_{claim}": _add_claim(EDITS[f"replace_{claim}"], claim)
    for claim in ("colour", "place", "relation")
}
"""Edits of the caption alone: the first is true for both pictures, the second only for its own. A
caption with a further claim is longer, so that the text alone reveals something."""
SINGLE: Mapping[str, Callable[..., Pair]] = {
    name: partial(EDITS[name], alone=True)
    for name in ("replace_subject", "replace_colour", "replace_place")
}
"""Edits of a single thing, which the zoo's diffusion model can draw."""


# Pictures of one or two things, and their captions.
#
# A picture shows one thing alone, like a scene of one subject, or one or two things in the four
# cells of a gathering. A caption names every thing in the picture, so that the number of named
# things is part of its meaning; colours, the place and the relation of two things may be left out.

CONVERSE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
"""The relations of one thing to another, and their converses."""


@dataclass(frozen=True)
class Picture:
    """The content of a picture.

    Attributes:
        things: one or two things, which differ in shape, colour and cell.
        alone: whether the only thing fills the picture, like a scene's subject.
    """

    things: tuple[Thing, ...]
    background: str
    alone: bool = False

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
        size, style = settings.image_size, settings.drawing_style()
        shown = self.shown(seed)
        if isinstance(shown, Scene):
            return encode_png(render(shown, size, style).pixels)
        return encode_png(render_gathering(shown, size, style))


def relations(first: Thing, second: Thing) -> tuple[str, ...]:
    """Return all true relations of one thing to another.

    >>> relations(Thing("ball", "red", "", 0, 1), Thing("cube", "blue", "", 1, 0))
    ('left of', 'below')
    """
    names = []
    if first.column != second.column:
        names.append("left of" if first.column < second.column else "right of")
    if first.row != second.row:
        names.append("above" if first.row < second.row else "below")
    return tuple(names)


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
        place_first: whether the place comes first: "on the beach there is a red ball".
    """

    frame: int = 0
    place_first: bool = False
    colour_after: bool = False


def say(description: PictureDescription, form: DescriptionForm = DescriptionForm()) -> str:
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
    named = [
        f"a {shape}" if colour is None
        else f"a {shape} that is {colour}" if form.colour_after
        else f"a {colour} {shape}"
        for shape, colour in description.things
    ]  # fmt: skip
    phrase, frame = f" {description.relation or 'and'} ".join(named), FRAMES[form.frame]
    if description.background is not None:
        where = PLACES[description.background]
        if form.place_first:
            frame = f"{where} there is {{}}"
        else:
            phrase = f"{phrase} {where}"
    return right_articles(frame.format(phrase))


def words_of_pictures() -> tuple[str, ...]:
    """Return ``words()``, followed by the words that only captions of several things contain."""
    known = words()
    more = {word for relation in CONVERSE for word in relation.split()} | {"and", "that"}
    return known + tuple(sorted(more - set(known)))
