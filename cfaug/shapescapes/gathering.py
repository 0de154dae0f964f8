"""Scenes of several objects, rendered by the same code as scenes of one subject.

Things stand in the cells of a grid, up to nine in three columns and rows or up to four in two, so
that relations and numbers are unambiguous. Each thing has a shape, a colour, a size and a cell; its
texture and its place within the cell are drawn from separate streams. So two gatherings with the
same seed differ only in the pixels that show the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import derive, generator
from cfaug.shapescapes.drawing import (
    SUPERSAMPLING,
    Floats,
    Scene,
    cast_shadow,
    develop,
    draw_mask,
    paint_backdrop,
    paint_surface,
)
from cfaug.shapescapes.settings import Factors, Style

SIDE = 3
"""Columns and rows of cells."""

SHAPES = ("ball", "cube", "star", "cone", "heart", "ring")
"""The subjects that can be distinguished when they are small; their plurals end in "s"."""

SIZES: Mapping[str, float] = MappingProxyType({"small": 0.065, "large": 0.125})
"""Half of a thing's width, as a share of the picture's width."""

RIM, RIM_COLOUR = 1.17, 0.97
"""Every thing has a white rim, so that it is visible on a background of its own colour: the rim's
width relative to the thing, and its grey."""

REACH = 0.155
"""The largest distance of a thing and its rim from the centre of its cell, as a share of the
picture's width."""


@dataclass(frozen=True)
class Layout:
    """The cells of a gathering.

    Attributes:
        side: the number of columns, and of rows.
        sizes: half of a thing's width, as a share of the picture's width, by the name of its size.
        reach: the largest distance of a thing and its rim from the centre of its cell, as a share
            of the picture's width.
    """

    side: int
    sizes: Mapping[str, float]
    reach: float


NINE, FOUR = "nine", "four"

LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        NINE: Layout(SIDE, SIZES, REACH),
        FOUR: Layout(2, MappingProxyType({"large": 0.17}), 0.24),
    }
)
"""The layouts by name; 32 pixels are enough to distinguish things in four cells."""


@dataclass(frozen=True)
class Thing:
    """One object: shape, colour, size and cell, columns from the left and rows from the top."""

    shape: str
    colour: str
    size: str
    column: int
    row: int


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
    things = tuple(Thing(**one) for one in record["things"])
    layout = str(record.get("layout") or NINE)
    if layout not in LAYOUTS:
        raise KeyError(layout)
    return Gathering(things, str(record["background"]), int(record["scene_seed"], 16), layout)


def render_gathering(gathering: Gathering, size: int, style: Style) -> NDArray[np.uint8]:
    """Draw a gathering.

    Args:
        gathering: the things, each in a cell of its own, and their background.
        size: the side of the picture in pixels; small shapes are distinguishable from about 64.

    Returns:
        uint8 (size, size, 3).
    """
    # The first thing's shape and colour do not affect background and foreground.
    around = Scene(Factors(SHAPES[0], "red", gathering.background), gathering.seed)
    # No clutter, which could be mistaken for a thing.
    picture = paint_backdrop(around, size, replace(style, clutter=0))
    for thing in gathering.things:
        picture = _put(picture, thing, gathering, style)
    return np.ascontiguousarray(np.rot90(develop(picture, around, size, style), style.turn))


def _put(picture: Floats, thing: Thing, gathering: Gathering, style: Style) -> Floats:
    """Draw one thing with its rim and its shadow onto a picture."""
    size, seed = len(picture), gathering.seed
    alpha, rim = _cover(thing, gathering, size, style)
    shade = np.float32(0.5) * cast_shadow(rim, style)
    picture = picture * (1 - shade)[..., None]
    picture = picture * (1 - rim)[..., None] + (rim * np.float32(RIM_COLOUR))[..., None]
    # Every cell has its own texture, independent of the thing in it.
    scene = Scene(
        Factors(thing.shape, thing.colour, ""), derive(seed, "cell", thing.column, thing.row)
    )
    surface = paint_surface(scene, size, style)
    return picture * (1 - alpha)[..., None] + alpha[..., None] * surface


def _cover(thing: Thing, gathering: Gathering, size: int, style: Style) -> tuple[Floats, Floats]:
    """Return every pixel's coverage by a thing, without and with its rim, each (size, size)."""
    layout = LAYOUTS[gathering.layout]
    rng = generator(gathering.seed, "cell", thing.column, thing.row, "pose")
    side, half = size * SUPERSAMPLING, layout.sizes[thing.size]
    angle = np.deg2rad(rng.uniform(-style.tilt, style.tilt))
    slack = max(0.0, layout.reach - half * RIM * (abs(np.cos(angle)) + abs(np.sin(angle))))
    cell = (np.array([thing.column, thing.row]) + 0.5) / layout.side
    centre = cell + slack * rng.uniform(-1, 1, 2)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    masks = [
        draw_mask(thing.shape, side * half * wider * turn, side * centre, side)
        for wider in (1.0, RIM)
    ]
    alpha, rim = (np.asarray(m.reduce(SUPERSAMPLING), np.float32) / np.float32(255) for m in masks)
    return alpha, np.maximum(alpha, rim)
