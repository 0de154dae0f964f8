"""Draw the picture of docs/emoji.md: ``python -m zoo emoji_picture out=docs/emoji.png``.

Pairs of held-out names that differ in one word, as each artist drew them.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from PIL import Image

from cfaug.core.atomic_files import write_file
from zoo.command import read
from zoo.emoji.clip import read_part
from zoo.emoji.packages import SHIPPED

SHOWN = ("green book", "horse face", "closed mailbox with raised flag", "man surfing",
         "woman farmer", "person with crown")  # fmt: skip
"""The first names of the pairs; all are of ``test_pairs``."""


@dataclass(frozen=True, kw_only=True)
class PictureSettings:
    """The settings of the command.

    Attributes:
        out: the file to write, replaced if it exists.
    """

    out: str


def main(argv: list[str]) -> int:
    """Draw the picture; return the exit code."""
    from matplotlib.figure import Figure

    settings = read(PictureSettings, argv)
    rows = {
        artist: {row["caption"]: row for row in read_part(artist, "test_pairs")}
        for artist in SHIPPED
    }
    figure = Figure(figsize=(10, 3.7), layout="constrained")
    cells = figure.subplots(len(SHIPPED), 2 * len(SHOWN))
    for line, artist in zip(cells, SHIPPED, strict=True):
        for pair, name in enumerate(SHOWN):
            row = rows[artist][name]
            for side, prefix in enumerate(("", "cf_")):
                cell = line[2 * pair + side]
                with Image.open(io.BytesIO(row[f"{prefix}image"]["bytes"])) as image:
                    cell.imshow(image.convert("RGB"), interpolation="antialiased")
                cell.set(xticks=[], yticks=[])
                cell.spines[:].set_visible(False)
                if artist == SHIPPED[-1]:
                    cell.set_xlabel(fill(row[f"{prefix}caption"], 10), fontsize=8)
        line[0].set_ylabel({"noto": "Noto", "fluent": "Fluent", "twemoji": "Twemoji"}[artist])
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110, metadata={"Software": None})
    write_file(Path(settings.out).expanduser(), buffer.getvalue())
    return 0
