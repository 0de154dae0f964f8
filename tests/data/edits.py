"""Photos and edits of somebody's own, laid out as people have them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cfaug.data.index import Index
from tests.data.making import noise_image

PHOTOS = ("cat/1", "cat/2", "dog/1", "dog/2")
"""Names of photos in folders of their classes."""


def put(folder: Path, *files: str) -> None:
    """Write a different picture for every image, and some text for any other file."""
    for name in files:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix.lower() in (".png", ".jpg", ".jpeg"):
            kind = "PNG" if file.suffix == ".png" else "JPEG"
            file.write_bytes(noise_image(sum(map(ord, name)) * 31 + len(name), kind=kind))
        else:
            file.write_text("x")


def file_of(index: Index, row: int) -> str:
    """Return the path of a row's image below its source."""
    file = index.image_name(row).partition(" (")[0]
    return Path(file).relative_to(Path(index.source).resolve()).as_posix()


def lay(
    folder: Path,
    kinds: Sequence[str] = ("fog", "snow"),
    names: Sequence[str] = PHOTOS,
    endings: Sequence[str] = (".png", ".png"),
) -> Path:
    """Lay out ``original/NAME`` and ``edited/KIND/NAME``, and return the folder."""
    put(folder, *(f"original/{name}{endings[0]}" for name in names))
    put(folder, *(f"edited/{kind}/{name}{endings[1]}" for kind in kinds for name in names))
    return folder
