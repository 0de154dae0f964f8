"""The artists' drawings of the named things, rendered, and which of them look alike.

Drawings are SVG. ``resvg``, a renderer in Rust without system fonts, draws the same pixels on every
machine on which it was tried.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.progress import watch
from zoo.emoji.names import SELECTOR
from zoo.emoji.packages import ARTISTS, fetch, read_json

SIDE = 64
"""Width and height of a picture in pixels."""
HASH_BITS = 64
ALIKE_BITS = 3
"""The most bits in which the perceptual hashes of two pictures differ that look alike."""
ALIKE_LEVELS = 1.0
"""The largest mean difference of two pictures that look alike, of 255 levels."""


def read_drawings(artist: str, downloads: Path) -> dict[str, str]:
    """Return {code of an emoji: its drawing by an artist, a complete SVG}."""
    archive = fetch(ARTISTS[artist], downloads)
    icons = read_json(archive, "icons.json")
    aliases = icons.get("aliases", {})
    drawings = {}
    for points, name in read_json(archive, "chars.json").items():
        code = "-".join(point for point in points.split("-") if point != SELECTOR)
        icon = icons["icons"].get(aliases[name]["parent"] if name in aliases else name)
        if icon is None or (name in aliases and set(aliases[name]) != {"parent"}):
            continue  # a drawing that is turned or mirrored is another's
        width, height = (icon.get(side, icons.get(side, 16)) for side in ("width", "height"))
        side = max(width, height)  # a square, in the middle of which the drawing is
        left = icon.get("left", 0) - (side - width) / 2
        top = icon.get("top", 0) - (side - height) / 2
        drawings[code] = (
            f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'viewBox="{left:g} {top:g} {side:g} {side:g}">{icon["body"]}</svg>'
        )
    return drawings


def render(drawing: str) -> np.ndarray:
    """Return a drawing on white: uint8 ``[SIDE, SIDE, 3]``."""
    try:
        from resvg_py import svg_to_bytes
    except ModuleNotFoundError as error:
        raise UserError("drawings are rendered by resvg: pip install resvg-py==0.5.0") from error
    png = svg_to_bytes(
        svg_string=drawing, width=SIDE, height=SIDE, background="white", skip_system_fonts=True
    )
    with Image.open(io.BytesIO(bytes(png))) as image:
        return np.asarray(image.convert("RGB"))


def render_all(
    artist: str, drawings: Mapping[str, str], codes: Iterable[str]
) -> dict[str, np.ndarray]:
    """Return {code: the picture, uint8 ``[SIDE, SIDE, 3]``} of an artist's drawings."""
    every = list(codes)
    shown = watch(every, f"drawing {artist}", len(every), "pictures")
    return {code: render(drawings[code]) for code in shown}


def perceptual_hash(picture: np.ndarray) -> np.ndarray:
    """Return whether each of 8 x 8 places is lighter than the place right of it: bool ``[64]``."""
    grey = Image.fromarray(picture).convert("L").resize((9, 8), Image.Resampling.BOX)
    levels = np.asarray(grey, dtype=np.int16)
    return (levels[:, :-1] > levels[:, 1:]).reshape(-1)


def look_alike(pictures: Mapping[str, np.ndarray]) -> list[tuple[str, str]]:
    """Return every two codes whose pictures are nearly the same, in the order of the codes.

    Their perceptual hashes differ in at most ``ALIKE_BITS`` bits, and their colours by less than
    ``ALIKE_LEVELS`` on average: hands of two tones have equal hashes and other colours.
    """
    codes = list(pictures)
    hashes = np.stack([perceptual_hash(pictures[code]) for code in codes]).astype(np.float32)
    ones = hashes.sum(1)
    apart = ones[:, None] + ones[None, :] - 2 * hashes @ hashes.T
    rows, columns = np.nonzero(np.triu(apart <= ALIKE_BITS, 1))
    return [
        (codes[row], codes[column])
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
        if mean_difference(pictures[codes[row]], pictures[codes[column]]) < ALIKE_LEVELS
    ]


def mean_difference(first: np.ndarray, second: np.ndarray) -> float:
    """Return the mean absolute difference of two pictures, in levels of 255."""
    return float(np.abs(first.astype(np.int16) - second).mean())
