"""Draw docs/vqa.png: a pair of pictures of ShapeScapes-VQA of each category, one row a style.

python benchmarks/vqa_picture.py out=docs/vqa.png
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from PIL import Image

from cfaug.core.atomic_files import write_file
from cfaug.core.pixels import decode_image
from cfaug.worlds.shapescapes.question_parts import CATEGORIES, make_questions
from cfaug.worlds.shapescapes.settings import WorldSettings
from zoo.command import read, run

SIDE, GAP, WIDER_GAP = 96, 4, 12
"""Pixels: the side of a picture, the gap in pairs and between rows, the gap between pairs."""


@dataclass(frozen=True, kw_only=True)
class PictureSettings:
    """The settings of the command, given as ``name=value``.

    Attributes:
        out: the PNG to write.
        seed: the seed of the world.
        first: the first pair of the part ``test``, a multiple of 6; it and the next five are shown.
        styles: the names of ``cfaug.worlds.shapescapes.settings.STYLES``, joined by "+".
    """

    out: str
    seed: int = 0
    first: int = 6
    styles: str = "drawing+clear"


def draw(settings: PictureSettings) -> Image.Image:
    """Return the sheet, RGB."""
    styles, pairs = settings.styles.split("+"), len(CATEGORIES)
    width = 2 * pairs * (SIDE + GAP) + (pairs - 1) * (WIDER_GAP - GAP) - GAP
    sheet = Image.new("RGB", (width, len(styles) * (SIDE + GAP) - GAP), "white")
    start = 2 * settings.first
    world = WorldSettings(
        seed=settings.seed, image_size=SIDE, vqa_test_pairs=settings.first + pairs
    )
    for row, style in enumerate(styles):
        images = make_questions(replace(world, style=style), "test")
        for place, question_image in enumerate(islice(images, start, start + 2 * pairs)):
            assert question_image.image is not None
            left = place * (SIDE + GAP) + place // 2 * (WIDER_GAP - GAP)
            picture = decode_image(question_image.image.read(), question_image.key)
            sheet.paste(picture, (left, row * (SIDE + GAP)))
    return sheet


def main(argv: list[str]) -> int:
    """Write the picture in 256 colours."""
    settings = read(PictureSettings, argv)
    sheet = draw(settings).quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=0, kmeans=2)
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    write_file(Path(settings.out), buffer.getvalue())
    return 0


if __name__ == "__main__":
    run(main)
