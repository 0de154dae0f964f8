"""Drawing: one scene as a pure function of its factors, its seed, its size and its style."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from cfaug.core.annotations import OneOf
from cfaug.core.rng import generator
from cfaug.core.validation import check_fields
from cfaug.worlds.shapescapes.settings import (
    COLOURS,
    PHOTO,
    STYLES,
    Factors,
    Rgb,
    Style,
)

if TYPE_CHECKING:
    from cfaug.core.types import ImageJob


Floats = NDArray[np.float32]
Points = NDArray[np.float64]
Pen = ImageDraw.ImageDraw
CANVAS = 128
"""The side of the canvas on which backgrounds are painted, in pixels."""


def _horizon(pen: Pen, rng: np.random.Generator, sky: Rgb, ground: Rgb) -> float:
    """Fill sky and ground; return the height of the horizon, in pixels."""
    line = CANVAS * float(rng.uniform(0.35, 0.6))
    pen.rectangle((0, 0, CANVAS, line), fill=sky)
    pen.rectangle((0, line, CANVAS, CANVAS), fill=ground)
    return line


def _beach(pen: Pen, rng: np.random.Generator) -> None:
    line = _horizon(pen, rng, (120, 200, 235), (240, 212, 150))
    pen.rectangle((0, line - CANVAS * 0.12, CANVAS, line), fill=(40, 130, 190))
    for x, y in rng.random((8, 2)):
        top = line + y * (CANVAS - line)
        pen.rectangle((x * CANVAS, top, x * CANVAS + 4, top + 2), fill=(205, 170, 105))


def _grass(pen: Pen, rng: np.random.Generator) -> None:
    line = _horizon(pen, rng, (150, 210, 250), (95, 185, 70))
    for x, y in rng.random((16, 2)):
        foot = line + y * (CANVAS - line)
        pen.line((x * CANVAS, foot, x * CANVAS + 2, foot - 7), fill=(55, 130, 40), width=3)


def _night(pen: Pen, rng: np.random.Generator) -> None:
    _horizon(pen, rng, (18, 20, 60), (38, 38, 72))
    for x, y in rng.random((14, 2)) * (CANVAS, CANVAS * 0.6):
        pen.rectangle((x, y, x + 3, y + 3), fill=(245, 245, 210))


def _snow(pen: Pen, rng: np.random.Generator) -> None:
    _horizon(pen, rng, (190, 205, 220), (245, 246, 252))
    for x, y in rng.random((16, 2)) * CANVAS:
        pen.ellipse((x, y, x + 5, y + 5), fill=(255, 255, 255))


def _brick(pen: Pen, rng: np.random.Generator) -> None:
    pen.rectangle((0, 0, CANVAS, CANVAS), fill=(176, 95, 75))
    height, width = CANVAS / 8, CANVAS / 4
    shift = float(rng.random()) * width
    for row in range(9):
        y = row * height
        pen.line((0, y, CANVAS, y), fill=(220, 200, 185), width=3)
        for column in range(-1, 6):
            x = column * width + shift + (row % 2) * width / 2
            pen.line((x, y, x, y + height), fill=(220, 200, 185), width=3)


def _water(pen: Pen, rng: np.random.Generator) -> None:
    pen.rectangle((0, 0, CANVAS, CANVAS), fill=(45, 135, 205))
    for x, y in rng.random((22, 2)) * CANVAS:
        pen.line((x - 12, y, x + 12, y), fill=(150, 205, 240), width=3)


def _road(pen: Pen, rng: np.random.Generator) -> None:
    line = _horizon(pen, rng, (205, 215, 220), (110, 110, 115))
    shift = float(rng.random()) * CANVAS / 3
    for x in np.arange(-1, 4) * CANVAS / 3 + shift:
        middle = (line + CANVAS) / 2
        pen.rectangle((x, middle, x + CANVAS / 6, middle + 6), fill=(240, 240, 235))


def _curtain(pen: Pen, rng: np.random.Generator) -> None:
    pen.rectangle((0, 0, CANVAS, CANVAS), fill=(150, 30, 60))
    shift = float(rng.random()) * CANVAS / 6
    for x in np.arange(-1, 7) * CANVAS / 6 + shift:
        pen.rectangle((x, 0, x + CANVAS / 12, CANVAS), fill=(195, 60, 85))


PAINTERS: Mapping[str, Callable[[Pen, np.random.Generator], None]] = {
    "beach": _beach,
    "grass": _grass,
    "night": _night,
    "snow": _snow,
    "brick": _brick,
    "water": _water,
    "road": _road,
    "curtain": _curtain,
}


# The domains: a photo, or the same scene in another medium (LANCE's fifth kind of edit).
#
# A domain redraws the finished composition before the camera sees it, so a scene has the same pose,
# colours and background in every domain. Its effect at a pixel depends on the scene's seed and on
# pixels at most ``reach`` away, never on the factors: outside the mask of an edit, widened by
# ``reach``, not a bit changes.


def redraw(picture: Floats, domain: str, rng: np.random.Generator) -> Floats:
    """Return a picture (size, size, 3), with values in [0, 1], redrawn in a domain."""
    clipped = np.clip(picture, 0, 1)
    return clipped if domain == PHOTO else np.asarray(_MEDIA[domain](clipped, rng), np.float32)


def reach(domain: str, size: int) -> int:
    """Return the distance in pixels over which a pixel of the scene influences the picture."""
    return {
        "sketch": _step(size),
        "painting": size // 50 + 1,
        "cartoon": _step(size),
        "mosaic": _tile(size) - 1,
    }.get(domain, 0)


def widen(mask: NDArray[np.bool_], pixels: int) -> NDArray[np.bool_]:
    """Return the pixels at most ``pixels`` rows and columns away from the mask."""
    for axis in (0, 1):
        padded = np.pad(mask, [(pixels, pixels) if a == axis else (0, 0) for a in (0, 1)])
        count = mask.shape[axis]
        shifted = [padded.take(range(s, s + count), axis) for s in range(2 * pixels + 1)]
        mask = np.logical_or.reduce(shifted)
    return mask


def _edges(picture: Floats, step: int) -> Floats:
    """Return the difference of neighbours ``step`` pixels away, clipped to 1, (size, size)."""
    padded = np.pad(picture, ((step, step), (step, step), (0, 0)), mode="edge")
    size = len(picture)
    middle = slice(step, step + size)
    right, left = padded[middle, 2 * step :], padded[middle, :size]
    below, above = padded[2 * step :, middle], padded[:size, middle]
    both = np.abs(right - left) + np.abs(below - above)
    return np.asarray(np.clip(both.max(axis=2), 0, 1), dtype=np.float32)


def _grid(size: int) -> tuple[Floats, Floats]:
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / np.float32(size)
    return y, x


def _sketch(picture: Floats, rng: np.random.Generator) -> Floats:
    """Crayon on paper: pale colours in slanting strokes, dark outlines."""
    size = len(picture)
    y, x = _grid(size)
    phase = np.float32(rng.uniform(0, 2 * np.pi))
    strokes = 0.5 + 0.5 * np.sin(2 * np.pi * 9 * (x + y) + phase)
    strength = (0.3 + 0.35 * strokes)[..., None]
    coloured = 0.97 - strength * (1 - picture)
    lines = _edges(picture, _step(size))[..., None]
    return coloured * (1 - 0.8 * lines**1.5)


def _painting(picture: Floats, rng: np.random.Generator) -> Floats:
    """Oil on canvas: strong colours with ragged edges on a woven, yellowed ground."""
    size = len(picture)
    y, x = _grid(size)
    turn = 2 * np.pi * np.float32(1)
    a, b, c, d = (turn * rng.random(4)).astype(np.float32)
    wave = np.float32(size / 50)
    down = wave * np.sin(5 * turn * x + a) * np.cos(4 * turn * y + b)
    across = wave * np.sin(5 * turn * y + c) * np.cos(4 * turn * x + d)
    rows = np.clip(np.rint(np.arange(size)[:, None] + down), 0, size - 1).astype(int)
    columns = np.clip(np.rint(np.arange(size)[None, :] + across), 0, size - 1).astype(int)
    strong = _saturate(picture[rows, columns], 1.5)
    weave = np.sign(np.sin(8 * turn * x + 0.1) * np.sin(8 * turn * y + 0.1))
    yellowed = np.array([1.06, 0.97, 0.75], dtype=np.float32)
    return strong * yellowed * (1 + np.float32(0.14) * weave[..., None])


def _cartoon(picture: Floats, rng: np.random.Generator) -> Floats:
    """Flat bright colours between thick black lines."""
    flat = np.rint(_saturate(picture, 1.7) * 3) / np.float32(3)
    lines = np.clip(np.float32(2.2) * _edges(picture, _step(len(picture))) - 0.5, 0, 1)
    return flat * (1 - lines[..., None])


def _mosaic(picture: Floats, rng: np.random.Generator) -> Floats:
    """Square tiles, each of nearly one colour, with dark joints."""
    size = len(picture)
    side = _tile(size)
    rows = -(-size // side)
    spare = rows * side - size
    padded = np.pad(picture, ((0, spare), (0, spare), (0, 0)), mode="edge")
    tiles = padded.reshape(rows, side, rows, side, 3).mean(axis=(1, 3))
    tile = np.arange(size) // side
    glaze = rng.uniform(0.8, 1.1, (rows, rows)).astype(np.float32)[tile][:, tile]
    shown = (tiles[tile][:, tile] + picture) / 2 * glaze[..., None]
    joint = np.arange(size) % side < max(1, size // 32)
    dark = np.where(joint[:, None] | joint[None, :], np.float32(0.45), np.float32(1))
    return shown * dark[..., None]


def _saturate(picture: Floats, factor: float) -> Floats:
    """Move every pixel's colours away from its grey, within [0, 1]."""
    grey = (picture @ np.array([0.299, 0.587, 0.114], dtype=np.float32))[..., None]
    return np.clip(grey + np.float32(factor) * (picture - grey), 0, 1)


def _tile(size: int) -> int:
    """Return the side of a tile of the mosaic in pixels."""
    return max(2, size // 8)


def _step(size: int) -> int:
    """Return the distance in pixels between neighbours that are compared for edges."""
    return max(1, size // 48)


_MEDIA: Mapping[str, Callable[[Floats, np.random.Generator], Floats]] = {
    "sketch": _sketch,
    "painting": _painting,
    "cartoon": _cartoon,
    "mosaic": _mosaic,
}


# The camera and its weather.


def expose(picture: Floats, style: Style, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return the camera's image of a picture (height, width, 3) with values in [0, 1]."""
    picture = np.clip(picture, 0, 1)
    if style.negative:
        picture = 1 - picture
    picture = 0.5 + (picture - 0.5) * np.float32(style.contrast)
    picture = picture + np.array(style.tint, dtype=np.float32)
    grain = rng.standard_normal(picture.shape, dtype=np.float32) * np.float32(style.noise)
    return (np.clip(picture + grain, 0, 1) * 255 + np.float32(0.5)).astype(np.uint8)


def develop_image(image: Image.Image, style: Style, seed: int) -> Image.Image:
    """Apply the weather of a style to a clear picture; its noise is keyed by ``seed``."""
    picture = np.asarray(image.convert("RGB"), dtype=np.float32) / np.float32(255)
    return Image.fromarray(expose(picture, style, generator(seed, "weather")))


@dataclass(frozen=True)
class Weather:
    """A postprocessing step that adds a world's weather to generated images.

    A generator of photos would not have this knowledge about the test world: results with it are an
    upper bound, and the arm ``generated_clear`` of ``make demo-full`` lacks it. Both images of
    a pair get the same noise, like the two scenes of an oracle's pair.

    Args:
        style: a name of ``cfaug.worlds.shapescapes.settings.STYLES``.
    """

    style: Annotated[str, OneOf(STYLES)]

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor")

    def __call__(self, image: Image.Image, job: ImageJob) -> Image.Image:
        """Return the image as seen by the world's camera."""
        return develop_image(image, STYLES[self.style], job.draw.seed)


SUPERSAMPLING = 4


def _points(*pairs: tuple[float, float]) -> Points:
    return np.array(pairs, dtype=np.float64)


def _circle(x: float, y: float, rx: float, ry: float | None = None) -> Points:
    angle = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    return np.stack([x + rx * np.cos(angle), y + (ry or rx) * np.sin(angle)], axis=1)


def _star() -> Points:
    angle = np.arange(10) * np.pi / 5 - np.pi / 2
    radius = np.where(np.arange(10) % 2 == 0, 1.05, 0.42)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle) + 0.06], axis=1)


def _heart() -> Points:
    t = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.stack([np.sin(t) ** 3, -(y + 2.5) / 15], axis=1)


BODY: Mapping[str, list[Points]] = {
    "ball": [_circle(0, 0, 0.92)],
    "cube": [_points((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85))],
    "star": [_star()],
    "cone": [_points((0, -1), (0.9, 0.9), (-0.9, 0.9))],
    "tree": [
        _points((0, -1.05), (0.5, -0.4), (-0.5, -0.4)),
        _points((0, -0.7), (0.66, 0.1), (-0.66, 0.1)),
        _points((0, -0.3), (0.82, 0.62), (-0.82, 0.62)),
        _points((-0.18, 0.6), (0.18, 0.6), (0.18, 1.05), (-0.18, 1.05)),
    ],
    "cat": [
        _circle(-0.15, 0.5, 0.62, 0.5),
        _circle(0.38, -0.25, 0.42, 0.38),
        _points((0.0, -0.25), (0.02, -0.95), (0.4, -0.5)),
        _points((0.76, -0.25), (0.76, -0.95), (0.36, -0.5)),
        _points(
            (-0.55, 0.75), (-1.0, 0.3), (-1.0, -0.45), (-0.78, -0.45), (-0.76, 0.2), (-0.4, 0.5)
        ),
    ],
    "house": [
        _points((-0.7, -0.15), (0.7, -0.15), (0.7, 0.95), (-0.7, 0.95)),
        _points((0, -1.0), (1.0, -0.1), (-1.0, -0.1)),
        _points((0.4, -0.95), (0.66, -0.95), (0.66, -0.2), (0.4, -0.2)),
    ],
    "fish": [
        _circle(0.2, 0, 0.8, 0.5),
        _points((-0.4, 0), (-1.05, -0.6), (-1.05, 0.6)),
        _points((0.0, -0.4), (0.3, -0.8), (0.5, -0.4)),
    ],
    "heart": [_heart()],
    "ring": [_circle(0, 0, 0.97)],
}
"""The polygons that form each subject, as their union."""
HOLES: Mapping[str, list[Points]] = {
    "ring": [_circle(0, 0, 0.55)],
    "house": [_points((-0.18, 0.4), (0.18, 0.4), (0.18, 0.97), (-0.18, 0.97))],
    "fish": [_circle(0.6, -0.12, 0.12)],
}
"""The polygons that are cut out of each subject."""


def rotation(angle: float) -> Points:
    """Return the matrix of a rotation in a plane, (2, 2)."""
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cos, -sin], [sin, cos]])


def draw_mask(subject: str, matrix: Points, offset: Points, size: int) -> Floats:
    """Return a posed subject's coverage of every pixel, (size, size) in [0, 1].

    Args:
        matrix: the rotation and scale from the unit square to the pixels of a canvas that is
            ``SUPERSAMPLING`` times as large, (2, 2).
        offset: the pixel of the origin on that canvas, (2,).
    """
    side = size * SUPERSAMPLING
    image = Image.new("L", (side, side), 0)
    pen = ImageDraw.Draw(image)
    for polygons, value in ((BODY[subject], 255), (HOLES.get(subject, []), 0)):
        for polygon in polygons:
            pen.polygon((polygon @ matrix.T + offset).ravel().tolist(), fill=value)
    return np.asarray(image.reduce(SUPERSAMPLING), dtype=np.float32) / np.float32(255)


# One scene: a pure function of its factors, its seed, its size and its style.
#
# Every part of a scene has its own random stream, so that changing one factor does not affect the
# others' pixels. Every step after the composition is pointwise (in a domain other than the photo it
# reaches a few pixels) and independent of the factors. Therefore the oracle's counterfactuals are
# bit-identical outside the edit.


@dataclass(frozen=True)
class Scene:
    """The factors of a scene, and the seed of everything else: pose, texture, light, noise."""

    factors: Factors
    seed: int

    def record(self) -> dict[str, str]:
        """Return the scene as JSON; ``scene_of`` reverses this."""
        factors = dict(vars(self.factors))
        if self.factors.domain == PHOTO:  # as in records older than domains
            del factors["domain"]
        return {**factors, "scene_seed": f"{self.seed:016x}"}


def scene_of(record: Mapping[str, Any]) -> Scene:
    """Return the scene that a member's or an example's ``extra`` describes.

    Raises:
        KeyError: if a factor or the seed is missing.
        ValueError: if the seed is not a hexadecimal number.
    """
    subject, colour, background = (str(record[k]) for k in ("subject", "colour", "background"))
    factors = Factors(subject, colour, background, str(record.get("domain") or PHOTO))
    return Scene(factors, int(record["scene_seed"], 16))


@dataclass(frozen=True)
class Rendering:
    """A scene's pixels and the extent of its subject.

    Attributes:
        pixels: the pixels, uint8 (size, size, 3).
        touched: the pixels that the subject changes, including its shadow and outline: bool (size,
            size).
        solid: the pixels that show only the subject: bool (size, size).

    In a domain with a reach, ``touched`` is wider and ``solid`` narrower by the reach.
    """

    pixels: NDArray[np.uint8]
    touched: NDArray[np.bool_]
    solid: NDArray[np.bool_]

    def image(self) -> Image.Image:
        """Return the pixels as an RGB image."""
        return Image.fromarray(self.pixels)


def render(scene: Scene, size: int, style: Style) -> Rendering:
    """Draw a scene as ``size`` x ``size`` pixels, in about 2 ms at 32 pixels."""
    rng, side = generator(scene.seed, "pose"), size * SUPERSAMPLING
    angle = np.deg2rad(rng.uniform(-style.tilt, style.tilt))
    scale = side * rng.uniform(0.27, 0.36)
    offset = side * (0.5 + rng.uniform(-0.1, 0.1, 2))
    # The subject's coverage of every pixel, in [0, 1].
    alpha = draw_mask(scene.factors.subject, scale * rotation(angle), offset, size)
    # A pixel on the edge is partly covered; the outline darkens it, most of all if half covered.
    outline = np.float32(2.4 * style.detail) * alpha * (1 - alpha)
    shade = cast_shadow(alpha, style)
    surface = paint_surface(scene, size, style)
    picture = paint_backdrop(scene, size, style) * (1 - shade)[..., None]
    picture = picture * (1 - alpha)[..., None] + alpha[..., None] * surface
    picture = picture * (1 - outline)[..., None]
    pixels = develop(picture, scene, size, style)
    touched, solid = (alpha > 0) | (shade > 0), alpha == 1
    if spread := reach(scene.factors.domain, size):
        touched, solid = widen(touched, spread), ~widen(~solid, spread)
    turned = (np.rot90(array, style.turn) for array in (pixels, touched, solid))
    return Rendering(*map(np.ascontiguousarray, turned))


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Return pixels (size, size, 3) as a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def paint_backdrop(scene: Scene, size: int, style: Style) -> Floats:
    """Return the background alone, with its clutter, (size, size, 3) in [0, 1]."""
    rng = generator(scene.seed, "background")
    canvas = Image.new("RGB", (CANVAS, CANVAS))
    pen = ImageDraw.Draw(canvas)
    PAINTERS[scene.factors.background](pen, rng)
    for _ in range(style.clutter):
        x, y, width, height = rng.random(4) * (CANVAS, CANVAS, CANVAS * 0.08, CANVAS * 0.06)
        red, green, blue = (int(value) for value in rng.integers(0, 256, 3))
        box = (x, y, x + width + 3, y + height + 3)
        (pen.ellipse if rng.random() < 0.5 else pen.rectangle)(box, fill=(red, green, blue))
    small = canvas.resize((size, size), Image.Resampling.BOX)
    shift = rng.uniform(-0.06, 0.06, 3).astype(np.float32)
    return np.clip(np.asarray(small, dtype=np.float32) / 255 + shift, 0, 1)


def cast_shadow(alpha: Floats, style: Style) -> Floats:
    """Return the subject's shadow, a little to the right of and below it.

    Args:
        alpha: the subject's coverage of every pixel, (size, size) in [0, 1].
    """
    shade = np.zeros_like(alpha)
    step = max(1, alpha.shape[0] // 16)
    shade[step:, step:] = alpha[:-step, :-step]
    return np.asarray(0.5 * style.detail * shade, dtype=np.float32)


def paint_surface(scene: Scene, size: int, style: Style) -> Floats:
    """Return the subject's colour at every pixel: jittered, and textured by stripes or checks."""
    rng = generator(scene.seed, "surface")
    base = np.array(COLOURS[scene.factors.colour], dtype=np.float32) / 255
    base = base + rng.uniform(-0.05, 0.05, 3).astype(np.float32)
    pattern = _pattern(rng, size)[..., None] * np.float32(0.35 * style.detail)
    return np.clip(base + pattern, 0, 1)


def _pattern(rng: np.random.Generator, size: int) -> Floats:
    """Draw a texture in [-1, 1]: plain, stripes, checks or blotches, at any angle."""
    kind = int(rng.integers(4))
    angle, period, phase = rng.random(3) * (np.pi, 0.12, 6) + (0, 0.12, 0)
    if kind == 0:
        return np.zeros((size, size), dtype=np.float32)
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / size
    along = np.sin(2 * np.pi * (x * np.cos(angle) + y * np.sin(angle)) / period + phase)
    if kind == 1:
        return np.asarray(np.sign(along), dtype=np.float32)
    across = np.sin(2 * np.pi * (y * np.cos(angle) - x * np.sin(angle)) / period + phase)
    both = along * across
    return np.asarray(np.sign(both) if kind == 2 else both, dtype=np.float32)


def develop(picture: Floats, scene: Scene, size: int, style: Style) -> NDArray[np.uint8]:
    """Apply light, cast, domain, negative, contrast, tint and noise, alike for all factors."""
    rng = generator(scene.seed, "light")
    if style.detail:
        y, x = np.mgrid[0:size, 0:size].astype(np.float32) / size - np.float32(0.5)
        slope = rng.uniform(-0.8, 0.8, 2).astype(np.float32) * np.float32(style.detail)
        cast = 1 + rng.uniform(-0.25, 0.25, 3).astype(np.float32) * np.float32(style.detail)
        picture = picture * (1 + slope[0] * x + slope[1] * y)[..., None] * cast
    if scene.factors.domain != PHOTO:
        picture = redraw(picture, scene.factors.domain, generator(scene.seed, "domain"))
    return expose(picture, style, rng)
