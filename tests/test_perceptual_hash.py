"""The perceptual hash against an explicit transform, its invariances, and the search of pairs."""

from __future__ import annotations

import io
import math
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cfaug.core import perceptual_hash as module
from cfaug.core.perceptual_hash import WITHOUT, nearest_hashes, perceptual_hash
from cfaug.data.mixture.settings import DEFAULT_DISTANCE
from tests.data.making import photo
from tests.properties import examples

PHOTOS = ("astronaut.png", "camera.png", "chelsea.png", "coffee.png", "rocket.jpg", "retina.jpg")


def bits_apart(first: int, other: int) -> int:
    return (first ^ other).bit_count()


def slow_hash(image: Image.Image) -> int:
    """Average the tones of 32 x 32 areas, across and then down, and sum cosines of each."""
    tones = np.asarray(image.convert("L"), float)
    high, wide = tones.shape[0] // 32, tones.shape[1] // 32
    across = np.floor(tones.reshape(-1, 32, wide).mean(axis=2) + 0.5)
    down = np.floor(across.reshape(32, high, 32).mean(axis=1) + 0.5).tolist()
    grey = {(y, x): down[y][x] for y, x in product(range(32), repeat=2)}
    scale = [math.sqrt(1 / 32)] + [math.sqrt(2 / 32)] * 7
    waves = [[math.cos((2 * x + 1) * u * math.pi / 64) for x in range(32)] for u in range(8)]
    coefficients = [
        scale[u] * scale[v] * sum(tone * waves[u][y] * waves[v][x] for (y, x), tone in grey.items())
        for u, v in product(range(8), repeat=2)
    ]
    ordered = sorted(coefficients)
    middle = (ordered[31] + ordered[32]) / 2
    return int("".join("1" if value > middle else "0" for value in coefficients), 2)


def drawn(seed: int, width: int, height: int) -> Image.Image:
    """Draw a smooth random picture, whose low frequencies are strong."""
    tones = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), np.uint8)
    return Image.fromarray(tones).resize((width, height), Image.Resampling.BICUBIC)


@cache
def tile(name: str, column: int, row: int) -> Image.Image:
    whole = photo(name)
    wide, high = whole.width // 3, whole.height // 3
    return whole.crop((column * wide, row * high, (column + 1) * wide, (row + 1) * high))


tiles = st.builds(tile, st.sampled_from(PHOTOS[:4]), st.integers(0, 2), st.integers(0, 2))


@pytest.mark.parametrize("number", range(6))
def test_equals_the_slow_obvious_transform(number):
    pictures = [photo(name).resize((256, 192)) for name in PHOTOS[:3]]
    pictures += [drawn(seed, 96, 64) for seed in range(3)]
    assert perceptual_hash(pictures[number]) == slow_hash(pictures[number]) != WITHOUT


def encoded_again(image: Image.Image, quality: int) -> Image.Image:
    content = io.BytesIO()
    image.save(content, "JPEG", quality=quality)
    return Image.open(content)


@settings(max_examples=examples(40), deadline=None)
@given(tiles, st.sampled_from(range(50, 96, 6)), st.sampled_from([1, 2]))
def test_encoding_and_size_leave_a_photo_within_the_default_distance(image, quality, factor):
    """All 576 of these are; of parts of a photo of the sky, two are not."""
    first = perceptual_hash(image)
    larger = image.resize((factor * image.width, factor * image.height), Image.Resampling.BOX)
    again = perceptual_hash(encoded_again(larger, quality))
    assert WITHOUT in (first, again) or bits_apart(first, again) <= DEFAULT_DISTANCE


def test_no_two_different_photos_are_near_and_most_small_crops_are():
    """The rates of ``benchmarks/near_duplicates.py`` in docs/data.md, on fewer photos."""
    pictures = [tile(*place) for place in product(PHOTOS, range(3), range(3))]
    hashes = [perceptual_hash(picture) for picture in pictures]
    known = [code for code in hashes if code != WITHOUT]
    assert len(known) > 0.8 * len(hashes)
    assert min(bits_apart(*pair) for pair in combinations(known, 2)) > DEFAULT_DISTANCE
    near = []
    for picture, code in zip(pictures, hashes, strict=True):
        x, y = round(0.02 * picture.width), round(0.02 * picture.height)
        part = picture.crop((x, y, picture.width - x, picture.height - y))
        near.append(code != WITHOUT and bits_apart(code, perceptual_hash(part)) <= DEFAULT_DISTANCE)
    assert np.mean(near) > 0.7


@pytest.mark.parametrize(
    "picture",
    [
        *(Image.new("RGB", (60, 40), colour) for colour in ("white", "black", "#808080", "red")),
        Image.fromarray(np.random.default_rng(0).integers(127, 130, (64, 64, 3), np.uint8)),
        Image.linear_gradient("L").convert("RGB"),
        Image.radial_gradient("L").convert("RGB"),
    ],
)
def test_images_with_too_little_structure_are_near_nothing(picture):
    code = perceptual_hash(picture)
    assert code == WITHOUT
    flat, known = np.array([code, code], np.uint64), np.array([5], np.uint64)
    for pair in ((flat, flat), (flat, known), (known, flat)):
        assert [len(column) for column in nearest_hashes(*pair, 64)] == [0, 0, 0]


codes = st.lists(st.one_of(st.just(0), st.integers(0, 15), st.integers(0, 2**64 - 1)), max_size=12)


@settings(max_examples=examples(100), deadline=None)
@given(codes, codes, st.integers(0, 24), st.sampled_from([1, 3, 2**20]))
def test_the_search_in_blocks_equals_every_pair(hashes, others, distance, at_once):
    expected = []
    for place, code in enumerate(hashes):
        pairs = [(bits_apart(code, other), at) for at, other in enumerate(others) if other]
        if code and pairs and min(pairs)[0] <= distance:
            expected.append((place, min(pairs)[1], min(pairs)[0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PAIRS_AT_ONCE", at_once)
        columns = nearest_hashes(np.array(hashes, np.uint64), np.array(others, np.uint64), distance)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
