"""Sets, photographs and folders for the tests of ``cfaug.data``."""

from __future__ import annotations

import io
import itertools
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.index import Index

PHOTOS = {
    "astronaut.png": ["a smiling astronaut in an orange suit", "a woman before a flag"],
    "chelsea.png": ["a ginger cat looks to the side", "a close-up of a tabby cat", "a cat's face"],
    "coffee.png": ["a cup of coffee on a wooden table"],
    "rocket.jpg": ["a rocket on its launch pad at dusk", "a launch tower with a white rocket"],
    "motorcycle_left.png": ["a motorcycle parked in a workshop"],
}
"""Photographs that scikit-image bundles, captioned by hand."""


def photo_folder() -> Path:
    import skimage.data

    return Path(skimage.data.data_dir)


@cache
def photo(name: str) -> Image.Image:
    image = Image.open(photo_folder() / name).convert("RGB")
    image.load()
    return image


@cache
def photo_bytes(name: str, size: int = 64, kind: str = "JPEG") -> bytes:
    image = photo(name).copy()
    image.thumbnail((2 * size, size))
    return encoded(image, kind)


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


@cache
def noise_image(seed: int, size: tuple[int, int] = (8, 8), kind: str = "PNG") -> bytes:
    width, height = size
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return encoded(Image.fromarray(pixels), kind)


def pair(number: int, *, members: int = 2, group: str | None = None) -> CounterfactualSet:
    """Return a set whose members' images and captions are all different."""
    return CounterfactualSet(
        key=f"pair-{number:05d}",
        group=group or f"group-{number}",
        members=tuple(
            Member(
                text=f"scene {number} as version {i}",
                image_name=f"image{i}",
                source_id=f"source-{number}",
                edit=Edit("subject", "cat", f"dog {i}") if i else None,
                label=f"class {i}",
                extra={"i": i},
            )
            for i in range(members)
        ),
        images={f"image{i}": noise_image(1000 * number + i) for i in range(members)},
        scores={"similarity": 0.25 * number},
        provenance={"recipe": "by hand"},
    )


def write_tar(file: Path, members: Mapping[str, bytes] | Iterable[tuple[str, bytes]]) -> Path:
    """Write members as they are given, names unchecked."""
    file.parent.mkdir(parents=True, exist_ok=True)
    items = members.items() if isinstance(members, Mapping) else members
    with tarfile.open(file, "w") as tar:
        for name, content in items:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return file


def texts(index: Index) -> list[str]:
    return [index.text(row) for row in range(len(index))]


def labels(index: Index) -> list[str | None]:
    return [index.label(row) for row in range(len(index))]


FRESH = itertools.count(2**40)
"""Codes of images that nobody else has."""


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns a plan needs, without a file behind them."""

    groups: np.ndarray
    sets: np.ndarray
    files: np.ndarray
    contents: np.ndarray
    extra_names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        sets: Iterable[tuple[int, int]],
        *,
        rows_per_file: int = 7,
        contents: Sequence[int] | None = None,
    ) -> Columns:
        """Lay out sets given as (group, members); a file ends at a set's end.

        Args:
            sets: the sets in order, as (group, members).
            rows_per_file: the smallest number of rows in a file.
            contents: the code of each row's image; without them all images differ, in any source.
        """
        groups: list[int] = []
        numbers: list[int] = []
        files: list[int] = []
        file = in_file = 0
        for number, (group, members) in enumerate(sets):
            if in_file >= rows_per_file:
                file, in_file = file + 1, 0
            groups += [group] * members
            numbers += [number] * members
            files += [file] * members
            in_file += members
        if contents is None:
            contents = [next(FRESH) for _ in groups]
        return cls(
            np.array(groups, np.uint64),
            np.array(numbers, np.int64),
            np.array(files, np.int32),
            np.array(contents, np.uint64),
        )

    def __len__(self) -> int:
        return len(self.groups)
