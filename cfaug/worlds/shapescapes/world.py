"""The scenes of a world: the home map, distributions of factors with and without bias, gatherings.

A gathering is a scene of several objects, rendered by the same code as scenes of one subject.
Things stand in the cells of a grid, up to nine in three columns and rows or up to four in two, so
that relations and numbers are unambiguous. Each thing has a shape, a colour, a size and a cell; its
texture and its place within the cell are drawn from separate streams. So two gatherings with the
same seed differ only in the pixels that show the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.core.rng import derive, generator
from cfaug.worlds.shapescapes.drawing import (
    SUPERSAMPLING,
    Scene,
    cast_shadow,
    develop,
    draw_mask,
    paint_backdrop,
    paint_surface,
    rotation,
)
from cfaug.worlds.shapescapes.settings import (
    SKEWED,
    SUBJECTS,
    CaptionWording,
    Factors,
    Style,
    WorldSettings,
    edit_factors,
)

Choice = TypeVar("Choice")


def pick(rng: np.random.Generator, choices: Sequence[Choice]) -> Choice:
    """Draw one of some choices uniformly."""
    return choices[int(rng.integers(len(choices)))]


@dataclass(frozen=True)
class World:
    """The scenes of a world. Each part draws from its own random streams."""

    settings: WorldSettings

    @cached_property
    def homes(self) -> dict[str, dict[str, str]]:
        """Each subject's own value of every factor, whether the subject is bound to it or not.

        They are fresh permutations for every world seed.
        """
        homes = {}
        for kind, values in self.values.items():
            names = () if kind == "background" else (kind,)
            rng = generator(self.settings.known_seed(), "shapescapes", "home", *names)
            subjects = rng.permutation(SUBJECTS).tolist()
            shuffled = rng.permutation(list(values)).tolist()
            homes[kind] = {name: shuffled[i % len(shuffled)] for i, name in enumerate(subjects)}
        return homes

    @property
    def values(self) -> dict[str, tuple[str, ...]]:
        """The values of every factor except the subject, in the order in which they are drawn."""
        settings = self.settings
        return {
            "colour": settings.colours,
            "background": settings.backgrounds,
            "domain": settings.domains,
        }

    @cached_property
    def planted(self) -> dict[str, dict[str, str]]:
        """The planted label of each planted subject, by factor, whatever the skew's strength.

        Subjects and labels are drawn independently, so that their assignment carries no
        information; labels repeat only after all have been used.
        """
        settings, kinds = self.settings, SKEWED[self.settings.skewed]
        rng = generator(settings.known_seed(), "shapescapes", "planted", settings.skewed)
        chosen = rng.permutation(SUBJECTS)[: settings.skewed_subjects].tolist()
        labels = rng.permutation(list(product(*(self.values[kind] for kind in kinds)))).tolist()
        return {
            subject: dict(zip(kinds, labels[i % len(labels)], strict=True))
            for i, subject in enumerate(chosen)
        }

    def plant(self, factors: Factors, wording: CaptionWording, part: str, index: int) -> Factors:
        """Return a training scene's factors, possibly with its subject's planted label.

        Args:
            factors: the factors of item ``index`` of ``part`` without a skew.
            part: the part that the scene belongs to.
        """
        strength = self.settings.skew
        if strength == 0 or wording.colour or wording.background:
            return factors
        planted = self.planted.get(factors.subject)
        if planted is None or self.stream(f"{part}-skew", index).random() >= strength:
            return factors
        return replace(factors, **planted)

    def is_home(self, factors: Factors) -> bool:
        """Return whether every factor bound to the subject has the subject's own value."""
        return all(getattr(factors, k) == self.homes[k][factors.subject] for k in self._bound())

    def is_strange(self, factors: Factors) -> bool:
        """Return whether no factor bound to the subject has the subject's own value."""
        return all(getattr(factors, k) != self.homes[k][factors.subject] for k in self._bound())

    def _bound(self) -> tuple[str, ...]:
        if not self.settings.bound:
            raise UserError(
                f"data.world.shortcut={self.settings.shortcut} has no subject at home: its parts "
                "are real, more_real, counterfactual, matched, unbiased, id, counterfactual_test, "
                "real_test, ve and ve_test"
            )
        return self.settings.bound

    def stream(self, part: str, index: int) -> np.random.Generator:
        """Return the random generator of item ``index`` of ``part``."""
        return generator(self.settings.known_seed(), "shapescapes", part, index)

    def scene(self, factors: Factors, part: str, index: int, member: int = 0) -> Scene:
        """Return a scene of ``part`` with a seed that is unique to part, item and member."""
        seed = derive(self.settings.known_seed(), "shapescapes", part, index, "scene", member)
        return Scene(factors, seed)

    def draw_biased(self, rng: np.random.Generator) -> Factors:
        """Draw factors as in training data: bound ones at home with probability ``bias``."""
        subject, drawn = pick(rng, SUBJECTS), {}
        for kind, values in self.values.items():
            if kind in self.settings.bound:
                home = self.homes[kind][subject]
                at_home = rng.random() < self.settings.bias
                others = [value for value in values if value != home]
                drawn[kind] = home if at_home else pick(rng, others)
            else:
                drawn[kind] = pick(rng, values)
        return Factors(subject, **drawn)

    def draw_unbiased(self, rng: np.random.Generator) -> Factors:
        """Draw factors independently and uniformly."""
        subject = pick(rng, SUBJECTS)
        return Factors(subject, **{kind: pick(rng, some) for kind, some in self.values.items()})

    def draw_edit(self, rng: np.random.Generator, factors: Factors) -> tuple[str, Factors]:
        """Draw a kind of edit and another value for that factor; return the kind and the result."""
        kind = pick(rng, self.settings.edits)
        values = SUBJECTS if kind == "subject" else self.values[kind]
        others = [value for value in values if value != getattr(factors, kind)]
        return kind, edit_factors(factors, kind, pick(rng, others))

    def combinations(self, *, at_home: bool) -> list[Factors]:
        """List every combination with all bound factors at home, or none of them."""
        every = (Factors(*some) for some in product(SUBJECTS, *self.values.values()))
        wanted = self.is_home if at_home else self.is_strange
        return [factors for factors in every if wanted(factors)]

    def id_combinations(self) -> list[Factors]:
        """List distinct combinations with a share at home as close to ``bias`` as possible."""
        rng = self.stream("id_retrieval", -1)
        homely, strange = self.combinations(at_home=True), self.combinations(at_home=False)
        bias = self.settings.bias
        wanted = len(strange) if bias == 0 else round(len(homely) * (1 - bias) / bias)
        chosen = rng.permutation(len(strange))[:wanted]
        return [*(homely if bias > 0 else []), *(strange[i] for i in chosen)]

    def test_pairs(self) -> list[tuple[Factors, str]]:
        """Return pairs of combinations, as the first combination and the subject of the second.

        Within every colour, place and domain the subjects are paired at random, so that each
        combination is in one pair and all captions of the test are different.
        """
        pairs = []
        for index, others in enumerate(product(*self.values.values())):
            subjects = self.stream("test-pairs", index).permutation(SUBJECTS).tolist()
            halves = zip(subjects[::2], subjects[1::2], strict=True)
            pairs += [(Factors(subject, *others), other) for subject, other in halves]
        return pairs

    def ood_swaps(self, count: int) -> Iterator[tuple[Factors, str]]:
        """Yield scenes with no factor at home, each with another subject also not at home."""
        strange = self.combinations(at_home=False)
        for index in range(count):
            rng = self.stream("ood_pairs", index)
            factors = strange[int(rng.integers(len(strange)))]
            others = [
                name
                for name in SUBJECTS
                if name != factors.subject and self.is_strange(replace(factors, subject=name))
            ]
            yield factors, pick(rng, others)


SIDE = 3
"""Columns and rows of cells."""

SHAPES = ("ball", "cube", "star", "cone", "heart", "ring")
"""The subjects that can be distinguished when they are small; their plurals end in "s"."""

SIZES = {"small": 0.065, "large": 0.125}
"""Half of a thing's width, as a share of the picture's width."""

RIM, RIM_COLOUR = 1.17, 0.97
"""Every thing has a white rim, so that it is visible on a background of its own colour: the rim's
width relative to the thing, and its grey."""


@dataclass(frozen=True)
class Layout:
    """The cells of a gathering.

    Attributes:
        sizes: half of a thing's width, as a share of the picture's width, by the name of its size.
        reach: the largest distance of a thing and its rim from the centre of its cell, as a share
            of the picture's width.
    """

    side: int
    sizes: Mapping[str, float]
    reach: float


NINE, FOUR = "nine", "four"
LAYOUTS = {NINE: Layout(SIDE, SIZES, 0.155), FOUR: Layout(2, {"large": 0.17}, 0.24)}
"""The layouts by name; 32 pixels are enough to distinguish things in four cells."""


@dataclass(frozen=True)
class Thing:
    """One object: shape, colour, size and cell, columns from the left and rows from the top."""

    shape: str
    colour: str
    size: str
    column: int
    row: int

    def at(self, cell: tuple[int, int]) -> Thing:
        """Return the same thing in another cell, given as column and row."""
        return replace(self, column=cell[0], row=cell[1])


@dataclass(frozen=True)
class Gathering:
    """Things on a background, and the seed of everything else: texture, places, light, noise."""

    things: tuple[Thing, ...]
    background: str
    seed: int
    layout: str = NINE

    def record(self) -> dict[str, Any]:
        """Return the scene as JSON; ``gathering_of`` reverses this."""
        layout = {} if self.layout == NINE else {"layout": self.layout}
        return {
            "things": [asdict(thing) for thing in self.things],
            "background": self.background,
            "scene_seed": f"{self.seed:016x}",
            **layout,
        }


def gathering_of(record: Mapping[str, Any]) -> Gathering:
    """Return the scene that an image's ``extra`` describes.

    Raises:
        KeyError: if the things, the background or the seed is missing, or no layout has the name.
        TypeError: if a thing has other fields.
        ValueError: if the seed is not a hexadecimal number.
    """
    things = tuple(Thing(**thing) for thing in record["things"])
    layout = str(record.get("layout") or NINE)
    if layout not in LAYOUTS:
        raise KeyError(layout)
    return Gathering(things, str(record["background"]), int(record["scene_seed"], 16), layout)


def render_gathering(gathering: Gathering, size: int, style: Style) -> NDArray[np.uint8]:
    """Draw a gathering: uint8 (size, size, 3).

    Args:
        gathering: the things, each in a cell of its own, and their background.
        size: the side of the picture in pixels; small shapes are distinguishable from about 64.
    """
    seed, layout = gathering.seed, LAYOUTS[gathering.layout]
    # The first thing's shape and colour do not affect background and foreground.
    around = Scene(Factors(SHAPES[0], "red", gathering.background), seed)
    # No clutter, which could be mistaken for a thing.
    picture = paint_backdrop(around, size, replace(style, clutter=0))
    for thing in gathering.things:
        rng = generator(seed, "cell", thing.column, thing.row, "pose")
        side, half = size * SUPERSAMPLING, layout.sizes[thing.size]
        angle = np.deg2rad(rng.uniform(-style.tilt, style.tilt))
        slack = max(0.0, layout.reach - half * RIM * (abs(np.cos(angle)) + abs(np.sin(angle))))
        cell = (np.array([thing.column, thing.row]) + 0.5) / layout.side
        centre = cell + slack * rng.uniform(-1, 1, 2)
        # Every pixel's coverage by the thing, without and with its rim.
        alpha, wider = (
            draw_mask(thing.shape, side * half * width * rotation(angle), side * centre, size)
            for width in (1.0, RIM)
        )
        rim = np.maximum(alpha, wider)
        shade = np.float32(0.5) * cast_shadow(rim, style)
        picture = picture * (1 - shade)[..., None]
        picture = picture * (1 - rim)[..., None] + (rim * np.float32(RIM_COLOUR))[..., None]
        # Every cell has its own texture, independent of the thing in it.
        texture_seed = derive(seed, "cell", thing.column, thing.row)
        surface = paint_surface(
            Scene(Factors(thing.shape, thing.colour, ""), texture_seed), size, style
        )
        picture = picture * (1 - alpha)[..., None] + alpha[..., None] * surface
    return np.ascontiguousarray(np.rot90(develop(picture, around, size, style), style.turn))
