"""Scenes of several objects, rendered by the same code as scenes of one subject.

Things stand in the cells of a grid, up to nine in three columns and rows or up to four in two, so
that relations and numbers are unambiguous. Each thing has a shape, a colour, a size and a cell; its
texture and its place within the cell are drawn from separate streams. So two gatherings with the
same seed differ only in the pixels that show the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import derive, generator
from cfaug.shapescapes.drawing import (
    SUPERSAMPLING,
    Scene,
    cast_shadow,
    develop,
    draw_mask,
    paint_backdrop,
    paint_surface,
    rotation,
)
from cfaug.shapescapes.settings import Factors, Style

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
