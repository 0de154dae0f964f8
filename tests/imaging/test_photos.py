from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.imaging.photo_editing import PhotoPreparation, UnfitPhotoError
from tests.imaging.test_photo_editing import CAPTION, editor, job, photo


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def coloured(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("size", [(50, 30), (30, 51), (32, 32), (64, 64)])
def test_the_centre_is_cropped_and_resized_as_the_released_code_does(size) -> None:
    image = coloured(*size)
    found = PhotoPreparation().prepare(encoded(image), 32, "it")
    pixels = np.asarray(image)
    height, width, _ = pixels.shape
    if height < width:
        offset = (width - height) // 2
        pixels = pixels[:, offset : offset + height]
    elif width < height:
        offset = (height - width) // 2
        pixels = pixels[offset : offset + width]
    assert np.array_equal(found, np.asarray(Image.fromarray(pixels).resize((32, 32))))


def test_grey_and_animated_photos_are_taken_unless_they_are_to_be_rejected() -> None:
    grey = encoded(coloured(40, 40).convert("L"))
    found = PhotoPreparation().prepare(grey, 32, "it")
    assert found.shape == (32, 32, 3)
    assert (found[..., 0] == found[..., 2]).all()
    first, second = Image.new("RGB", (40, 40), "red"), Image.new("RGB", (40, 40), "blue")
    moving = encoded(first, "GIF", save_all=True, append_images=[second])
    assert (PhotoPreparation().prepare(moving, 32, "it") == [255, 0, 0]).all()
    strict = PhotoPreparation(grey="reject", animated="reject")
    for data, reason in ((grey, "photo_grey"), (moving, "photo_animated")):
        with pytest.raises(UnfitPhotoError) as caught:
            strict.prepare(data, 32, "it")
        assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no image", "photo_broken"),
        (b"", "photo_broken"),
        (encoded(coloured(40, 40))[:-300], "photo_broken"),
        (encoded(coloured(40, 3)), "photo_tiny"),
        (encoded(coloured(400, 300)), "photo_broken"),
    ],
)
def test_what_cannot_be_edited_says_why(data, reason) -> None:
    with pytest.raises(UnfitPhotoError, match="photo 7") as caught:
        PhotoPreparation(max_pixels=100_000).prepare(data, 32, "photo 7")
    assert caught.value.reason == reason


def test_an_unfit_photo_is_rejected_and_the_others_are_edited(pipeline) -> None:
    one = editor(pipeline, "fp32", steps=2)
    broken, good, again = one.edit(
        [job(b"no image", key="a"), job(photo(1), (CAPTION, CAPTION), key="b"), job(b"no image")]
    )
    assert (broken.rejected, broken.images) == ("photo_broken", ())
    assert again.rejected == "photo_broken"
    assert (good.rejected, len(good.images)) == ("", 2)
    assert [found.rejected for found in one.edit([job(b"no image")])] == ["photo_broken"]


def test_invalid_settings_are_refused() -> None:
    for settings, named in (
        ({"grey": "keep"}, "take, reject"),
        ({"smallest": 2}, "smallest=2 should be a number from 0 to 1"),
        ({"max_pixels": 0}, "at least 1"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=named):
            PhotoPreparation(**settings)
