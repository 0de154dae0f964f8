from __future__ import annotations

import io
import struct
import warnings
import zlib
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.pixels import (
    Geometry,
    ImageTransform,
    cut_out,
    decode_image,
    open_image,
    stack_pixels,
)
from tests.data.making import noise_image, photo, photo_bytes
from tests.properties import examples

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

SIZES = [(224, 224), (300, 200), (201, 300), (640, 227), (97, 451), (32, 33), (225, 224), (64, 64)]
"""Larger and smaller than the target, wide and tall, odd and even differences."""


def picture(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    return photo("chelsea.png").resize(size).convert(mode)


@pytest.mark.parametrize("target", [32, 63, 224])
@pytest.mark.parametrize("resample", ["bicubic", "bilinear"])
@pytest.mark.parametrize("geometry", ["crop", "squash"])
def test_it_is_what_open_clip_validates_with(target: int, resample: str, geometry: str) -> None:
    """On RGB and grey; a palette is turned into colours first, open_clip resizes its numbers."""
    import torch
    from open_clip.transform import image_transform

    mode = {"crop": "shortest", "squash": "squash"}[geometry]
    theirs = image_transform(
        target, is_train=False, mean=MEAN, std=STD, interpolation=resample, resize_mode=mode
    )
    ours = ImageTransform(target, MEAN, STD, resample, geometry)  # type: ignore[arg-type]
    for size in SIZES:
        for mode in ("RGB", "L"):
            image = picture(size, mode)
            pixels = ours(image)
            assert (pixels.dtype, pixels.shape) == (np.uint8, (3, target, target))
            normal = ours.normalize(torch.from_numpy(pixels.copy())[None])[0]
            torch.testing.assert_close(normal, theirs(image), rtol=0, atol=2e-6)


@pytest.mark.parametrize("target", [32, 224])
def test_it_is_transformers_clip_up_to_half_a_pixel_of_crop(target: int) -> None:
    """Where the surplus is odd, transformers crops to the left, torchvision rounds to even."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    theirs = CLIPImageProcessorPil(
        size={"shortest_edge": target}, crop_size={"height": target, "width": target},
        do_rescale=False, do_normalize=False,
    )  # fmt: skip
    ours = ImageTransform(target, MEAN, STD)
    compared = 0
    for size in SIZES:
        short = min(size)
        surplus = max(int(target * side / short) for side in size) - target
        if surplus / 2 != round(surplus / 2.0):
            continue
        compared += 1
        wanted = theirs(picture(size), return_tensors="np")["pixel_values"][0]
        np.testing.assert_array_equal(ours(picture(size)), wanted)
    assert compared >= 4


@pytest.mark.parametrize("size", SIZES)
def test_a_crop_of_a_larger_resize_is_torchvisions(size: tuple[int, int]) -> None:
    from torchvision.transforms import CenterCrop, Compose, Resize

    theirs = Compose([Resize(73, Image.Resampling.BICUBIC), CenterCrop(64)])
    ours = ImageTransform(64, MEAN, STD, resized=73)
    wanted = np.asarray(theirs(picture(size))).transpose(2, 0, 1)
    np.testing.assert_array_equal(ours(picture(size)), wanted)
    with pytest.raises(UserError, match="64 pixels is larger than 63"):
        ImageTransform(64, MEAN, STD, resized=63)


@given(
    width=st.integers(1, 90), height=st.integers(1, 90), size=st.integers(1, 40),
    geometry=st.sampled_from(get_args(Geometry)), more=st.integers(0, 9),
)  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_any_size_becomes_the_size_asked_for(
    width: int, height: int, size: int, geometry: Geometry, more: int
) -> None:
    transform = ImageTransform(size, MEAN, STD, geometry=geometry, resized=size + more)
    pixels = transform(Image.new("RGB", (width, height), (7, 8, 9)))
    assert (pixels.dtype, pixels.shape) == (np.uint8, (3, size, size))
    assert (pixels == np.array([7, 8, 9])[:, None, None]).all()


@pytest.mark.parametrize("size", [(150, 90), (61, 333), (5, 200), (40, 41)])
@pytest.mark.parametrize("resized", [None, 40])
def test_a_long_image_is_resized_only_where_it_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], resized: int | None
) -> None:
    transform = ImageTransform(32, (0.5,) * 3, (0.5,) * 3, resized=resized)
    image = photo("coffee.png").resize(size)
    whole = transform(image).astype(int)
    monkeypatch.setattr("cfaug.core.pixels.MAX_PIXELS", 0)
    assert np.abs(transform(image) - whole).max() <= 1
    monkeypatch.undo()
    assert transform(Image.new("RGB", (1, 2_000_000), "red")).mean((1, 2)).tolist() == [255, 0, 0]


def test_normalize_is_the_formula() -> None:
    import torch

    every = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(2, 3, 16, 16)
    normal = ImageTransform(16, MEAN, STD).normalize(every)
    mean, std = (torch.tensor(x, dtype=torch.float64).view(1, 3, 1, 1) for x in (MEAN, STD))
    assert normal.dtype == torch.float32
    torch.testing.assert_close(normal.double(), (every / 255.0 - mean) / std, rtol=0, atol=2e-6)
    assert (every[0, 0].flatten() == torch.arange(256)).all()  # what was given is left as it was


def test_stacking_copies_and_keeps_the_order() -> None:
    transform = ImageTransform(20, MEAN, STD)
    images = [transform(picture(size)) for size in SIZES]
    np.testing.assert_array_equal(stack_pixels(images, 20), np.stack(images))
    assert stack_pixels([], 20).shape == (0, 3, 20, 20)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@given(data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_damaged_bytes_decode_or_are_refused_by_name(kind: str, data: st.DataObject) -> None:
    whole = bytearray(photo_bytes("coffee.png", 32, kind))
    for _ in range(data.draw(st.integers(0, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        image = decode_image(damaged, "culprit.img", max_pixels=100_000)
    except UserError as error:
        named = str(error)
    else:
        named = f"culprit.img became {image.mode}"
    assert "culprit.img" in named


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_half_an_image_is_refused_by_name(kind: str) -> None:
    whole = photo_bytes("coffee.png", 64, kind)
    with pytest.raises(UserError, match=r"cat\.img"):
        decode_image(whole[: len(whole) // 2], "cat.img")
    assert decode_image(whole, "cat.img").size[1] == 64


@pytest.mark.parametrize("side", [9_500, 14_000, 60_000])
def test_the_header_is_believed_before_anything_is_decoded(side: int) -> None:
    body = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    header = struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    data = b"\x89PNG\r\n\x1a\n" + header + struct.pack(">I", 1000) + b"IDAT" + bytes(1000)
    with warnings.catch_warnings(record=True) as beside:
        warnings.simplefilter("always")
        with pytest.raises(UserError, match=r"bomb\.png: .*pixels.*shrink or remove it"):
            open_image(data, "bomb.png")
    assert beside == []  # one message, not a warning next to it


def test_the_limit_is_the_callers() -> None:
    assert decode_image(noise_image(0, (10, 10)), "x", max_pixels=100).size == (10, 10)
    with pytest.raises(UserError, match="10 x 10 pixels is more than 99"):
        decode_image(noise_image(0, (10, 10)), "x", max_pixels=99)


def test_what_is_no_image_is_named_without_an_address_in_memory() -> None:
    with pytest.raises(UserError, match=r"^a\.jpg is not an image that can be read .*PNG") as error:
        decode_image(b"no image", "a.jpg")
    assert "0x" not in str(error.value)


def test_only_images_the_shards_know_are_opened() -> None:
    """Other decoders of Pillow (EPS starts a program) have no business with data from elsewhere."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "EPS")
    with pytest.raises(UserError, match=r"x\.eps is not an image"):
        open_image(buffer.getvalue(), "x.eps")


def deep_png(tones: np.ndarray) -> bytes:
    """Encode uint16 (height, width, channels) as a PNG of 16 bits, which Pillow writes of grey."""
    kinds = {1: 0, 2: 4, 3: 2, 4: 6}
    height, width, channels = tones.shape

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 16, kinds[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in tones)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )  # fmt: skip


def deep_tiff(tones: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(tones[..., 0]).save(buffer, "TIFF")
    return buffer.getvalue()


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@given(data=st.data())
@settings(max_examples=examples(30), deadline=None)
def test_a_png_of_16_bits_keeps_its_tones(channels: int, data: st.DataObject) -> None:
    tones = data.draw(hnp.arrays(np.uint16, (3, 5, channels)))
    tones[0, 0], tones[0, 1] = 0, 65535
    rgb = np.asarray(decode_image(deep_png(tones), "a")).astype(int)
    shown = tones[..., :1] if channels < 3 else tones[..., :3]
    assert np.abs(rgb - shown / 257).max() <= (
        0.5 if channels == 1 else 1
    )  # Pillow cuts, not rounds
    assert (rgb[0, 0].tolist(), rgb[0, 1].tolist()) == ([0] * 3, [255] * 3)
    order = np.argsort(shown[..., 0], axis=None)
    assert (np.diff(rgb[..., 0].ravel()[order]) >= 0).all()


def test_a_tiff_of_16_bits_keeps_its_tones_in_every_way_that_it_is_looked_at() -> None:
    tones = np.linspace(0, 65535, 64, dtype=np.uint16).reshape(8, 8, 1)
    data = deep_tiff(tones)
    wanted = np.round(tones[..., 0] / 257).astype(np.uint8)
    assert np.array_equal(np.asarray(decode_image(data, "a"))[..., 0], wanted)
    transform = ImageTransform(8, (0, 0, 0), (1, 1, 1))
    undecoded = Image.open(io.BytesIO(data))  # as somebody would hand it over
    assert np.array_equal(transform(undecoded)[1], wanted)


@pytest.mark.parametrize(
    ("tones", "said"), [(np.float32, "floating point"), (np.int32, "32 bits with a sign")]
)
def test_tones_without_a_known_white_are_refused_by_name_from_the_header(
    tones: type, said: str
) -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.ones((4, 4), tones)).save(buffer, "TIFF")
    for read in (decode_image, open_image):
        with pytest.raises(UserError, match=f"a.tif: its tones are of {said}.*8 or 16 bits"):
            read(buffer.getvalue(), "a.tif")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGBA", "CMYK", "YCbCr"])
def test_black_and_white_stay_so_in_every_mode(mode: str) -> None:
    image = Image.new("RGB", (4, 4))
    image.paste((255, 255, 255), (0, 0, 4, 2))
    converted = image.convert("L").convert(mode) if mode in ("LA", "PA") else image.convert(mode)
    pixels = ImageTransform(4, (0, 0, 0), (1, 1, 1))(converted)
    assert (pixels[:, :2] == 255).all()
    assert (pixels[:, 2:] == 0).all()


def test_a_palette_with_transparency_keeps_its_colours() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 0])
    image.putpixel((1, 0), 1)
    for transparent in (0, bytes([0, 128])):
        buffer = io.BytesIO()
        image.save(buffer, "PNG", transparency=transparent)
        rgb = np.asarray(decode_image(buffer.getvalue(), "a"))
        assert rgb.tolist() == [[[10, 20, 30], [200, 100, 0]]]


EDGES = st.integers(-9, 30)


@settings(max_examples=examples(20))
@given(st.integers(0, 3), EDGES, EDGES, st.integers(1, 20), st.integers(1, 20))
def test_a_part_of_an_image_is_its_pixels_and_black_beyond(
    seed: int, left: int, top: int, width: int, height: int
) -> None:
    data = noise_image(seed, (16, 12))
    whole = np.asarray(decode_image(data, "image"))
    part = np.asarray(
        decode_image(cut_out(data, (left, top, left + width, top + height), "x"), "x")
    )
    assert part.shape == (height, width, 3)
    for y in range(height):
        for x in range(width):
            inside = 0 <= top + y < 12 and 0 <= left + x < 16
            wanted = whole[top + y, left + x] if inside else (0, 0, 0)
            assert tuple(part[y, x]) == tuple(wanted)


@pytest.mark.parametrize("box", [(0, 0, 0, 5), (5, 5, 4, 6), (0, 0, 10**5, 10**5)])
def test_a_part_that_is_empty_or_huge_is_refused(box: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="image: a part of"):
        cut_out(noise_image(0), box, "image")
