"""What does the perceptual hash take for near-duplicates? Rates on photos and shipped worlds.

Three questions, by the largest number of bits of 64 that may differ: how often a changed copy is
found (encoded anew, smaller, cropped), how often a counterfactual is taken for its original, and
how often different images are taken for one. scikit-image ships few photos, so each is cut into 16
that do not overlap; the worlds are drawn or shipped.

python benchmarks/near_duplicates.py
python benchmarks/near_duplicates.py --images 40 --timed 1000
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import skimage.data
from PIL import Image

import cfaug
from cfaug.core.perceptual_hash import WITHOUT, nearest_hashes, perceptual_hash
from cfaug.data.index import Index

DISTANCES = (0, 4, 6, 8, 10, 12)
LARGEST = 64
"""More than any two hashes differ."""
PHOTOS = (
    "astronaut.png", "brick.png", "camera.png", "cell.png", "chelsea.png", "clock_motion.png",
    "coffee.png", "coins.png", "grass.png", "gravel.png", "hubble_deep_field.jpg", "ihc.png",
    "moon.png", "motorcycle_left.png", "retina.jpg", "rocket.jpg",
)  # fmt: skip
TILES = 4
"""Tiles of a photo in each direction."""
TRAIN, TEST = 118_287, 5_000
"""Images of COCO's training set, and of its usual test."""

Picture = Image.Image


def encode_again(picture: Picture) -> Picture:
    """Return a picture as JPEG of quality 50."""
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=50)
    return Image.open(content).convert("RGB")


def halve(picture: Picture) -> Picture:
    """Return a picture at half its size."""
    return picture.resize((max(1, picture.width // 2), max(1, picture.height // 2)))


def crop(share: float) -> Callable[[Picture], Picture]:
    """Return what cuts a share of each side off."""

    def cropped(picture: Picture) -> Picture:
        x, y = round(share * picture.width), round(share * picture.height)
        return picture.crop((x, y, picture.width - x, picture.height - y))

    return cropped


CHANGES: dict[str, Callable[[Picture], Picture]] = {
    "JPEG of quality 50": encode_again,
    "half the size": halve,
    "2 % off each side": crop(0.02),
    "5 % off each side": crop(0.05),
    "mirrored": lambda picture: picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
}


def cut_photos(most: int) -> list[Picture]:
    """Return tiles of photos."""
    tiles = []
    for name, (x, y) in product(PHOTOS, product(range(TILES), repeat=2)):
        photo = Image.open(Path(skimage.data.data_dir) / name).convert("RGB")
        width, height = photo.width // TILES, photo.height // TILES
        tiles.append(photo.crop((x * width, y * height, (x + 1) * width, (y + 1) * height)))
    return tiles[:: max(1, len(tiles) // most)][:most]


def hashes_of(pictures: Sequence[Picture]) -> np.ndarray:
    """Return the hash of each picture, uint64 (pictures,)."""
    return np.array([perceptual_hash(picture) for picture in pictures], np.uint64)


def shares(bits: np.ndarray) -> str:
    """Return the cells of a row: the share of distances of at most so many bits."""
    return " | ".join(f"{(bits <= distance).mean():.1%}" for distance in DISTANCES)


def apart(first: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return how many bits differ in each pair; more than any distance without a hash."""
    known = (first != WITHOUT) & (other != WITHOUT)
    return np.where(known, np.bitwise_count(first ^ other), LARGEST + 1)


def nearest(tested: np.ndarray, trained: np.ndarray) -> np.ndarray:
    """Return for each test image how many bits its nearest training image differs in."""
    places, _, bits = nearest_hashes(tested, trained, LARGEST)
    distances = np.full(len(tested), LARGEST + 1)
    distances[places] = bits
    return distances


def images_of(index: Index, most: int) -> list[Picture]:
    """Return different images of an index, evenly spaced."""
    _, rows = np.unique(index.images, return_index=True)
    return [index.image(int(row)) for row in rows[:: max(1, len(rows) // most)][:most]]


def edits_of(index: Index, most: int) -> tuple[list[Picture], list[Picture]]:
    """Return the first and the second image of sets."""
    starts = np.flatnonzero(np.diff(index.sets, prepend=-1))[:most].tolist()
    return [index.image(row) for row in starts], [index.image(row + 1) for row in starts]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=1000, help="most images of a source")
    parser.add_argument("--timed", type=int, default=TRAIN, help="images of the timed search")
    given = parser.parse_args()
    most = given.images
    with tempfile.TemporaryDirectory() as folder:
        words = {"paths.shards": f"{folder}/shards", "paths.cache": f"{folder}/cache"}
        scenes = {
            f"data.world.{name}": min(most, 1000)
            for name in ("real_scenes", "counterfactual_pairs", "id_scenes")
        }
        scenes["data.world.seed"] = 5

        def opened(name: str) -> Index:
            more = scenes if name.startswith("shapescapes") else {}
            return cfaug.open_source(name, {**words, **more}, quiet=True)

        tiles = cut_photos(most)
        sets = {
            "photos": tiles,
            "emoji": images_of(opened("emoji:fluent/train"), most),
            "ShapeScapes": images_of(opened("shapescapes:real"), most),
        }
        hashed = {name: hashes_of(pictures) for name, pictures in sets.items()}
        heads = " | ".join(f"at most {distance}" for distance in DISTANCES)
        line = "|".join(["---"] * (len(DISTANCES) + 2))
        print(f"| images | compared with | {heads} |\n|{line}|")
        for (name, pictures), (change, made) in product(sets.items(), CHANGES.items()):
            bits = apart(hashed[name], hashes_of([made(picture) for picture in pictures]))
            print(f"| {name} ({len(bits):,}) | themselves, {change} | {shares(bits)} |")
        pairs = {"emoji": "emoji:fluent/pairs", "ShapeScapes": "shapescapes:counterfactual"}
        for name, source in pairs.items():
            first, other = map(hashes_of, edits_of(opened(source), most))
            bits = apart(first, other)
            print(f"| {name} ({len(first):,}) | their counterfactuals | {shares(bits)} |")
        first, other = np.triu_indices(len(tiles), 1)
        bits = apart(hashed["photos"][first], hashed["photos"][other])
        print(f"| photos ({len(bits):,} pairs) | each other | {shares(bits)} |")
        tests = {
            "emoji": ("emoji:fluent/names", "emoji:noto/train"),
            "ShapeScapes": ("shapescapes:id", "shapescapes:ood"),
        }
        for name, source in ((name, source) for name, some in tests.items() for source in some):
            tested = hashes_of(images_of(opened(source), most))
            bits = nearest(tested, hashed[name])
            trained = f"nearest of {len(hashed[name]):,} training images"
            print(f"| {source} ({len(tested):,}) | {trained} | {shares(bits)} |")
        for name, hashes in hashed.items():
            print(f"{name}: {(hashes == WITHOUT).mean():.1%} have too little structure for a hash")
    drawn = np.random.default_rng(0)
    among, wanted = (drawn.integers(1, 2**63, count, np.uint64) for count in (given.timed, TEST))
    began = time.perf_counter()
    nearest_hashes(wanted, among, 8)
    seconds = time.perf_counter() - began
    print(f"{TEST:,} hashes searched among {given.timed:,}: {seconds:.2f} s")
    began = time.perf_counter()
    hashes_of(tiles)
    print(f"a hash of a decoded image: {(time.perf_counter() - began) / len(tiles) * 1000:.2f} ms")


if __name__ == "__main__":
    main()
