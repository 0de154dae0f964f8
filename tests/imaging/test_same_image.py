from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.pixels import as_floats
from cfaug.core.protocols import ImageEditor, Progressive
from cfaug.core.types import Draw, Example, ImageJob, Images, Proposal
from cfaug.imaging.photo_editing import SameImage


class Photo:
    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def read(self) -> bytes:
        return self.data


def encoded(image_format: str, size=(5, 4)) -> bytes:
    pixels = np.arange(size[0] * size[1] * 3, dtype=np.uint8).reshape(size[1], size[0], 3)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, image_format)
    return buffer.getvalue()


def job(data: bytes | None, texts=("a dog", "a cat", "a cow")) -> ImageJob:
    image = None if data is None else Photo(data)
    example = Example("photo", "g", texts[:1], image)
    return ImageJob(Proposal(example, texts, (None,) * len(texts)), Draw(0, 0.0, 0.0))


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP"])
def test_every_text_gets_the_source_s_own_bytes(image_format) -> None:
    editor, data = SameImage(), encoded(image_format)
    assert isinstance(editor, ImageEditor)
    assert not isinstance(editor, Progressive)
    assert editor.edit([job(data), job(data, ("alone",))]) == [
        Images((data,), (0, 0, 0)), Images((data,), (0,)),
    ]  # fmt: skip


def test_a_format_that_shards_do_not_hold_becomes_pixels() -> None:
    [found] = SameImage().edit([job(encoded("BMP"))])
    assert found.shown == (0, 0, 0)
    assert np.array_equal(found.images[0], np.asarray(Image.open(io.BytesIO(encoded("BMP")))))


def test_what_cannot_be_read_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(UserError, match="the image of 'photo' is missing"):
        SameImage().edit([job(None)])
    with pytest.raises(UserError, match="the image of 'photo' is not an image"):
        SameImage().edit([job(b"no image")])
    truncated = encoded("PNG", (50, 40))[:60]  # the header is whole, the pixels are missing
    with pytest.raises(UserError, match="50 x 40 pixels is more than 1999"):
        SameImage(max_pixels=1999).edit([job(truncated)])


def test_images_say_which_shows_which_text() -> None:
    assert Images((b"0", b"1")).shown == (0, 1)
    for wrong in ({"shown": (0, 2)}, {"shown": (-1,)}, {"unsafe": frozenset({2})}):
        with pytest.raises(UserError, match="there are 2 images"):
            Images((b"0", b"1"), **wrong)


def test_floats_are_those_of_the_pixels() -> None:
    pixels = np.asarray(Image.open(io.BytesIO(encoded("PNG"))))
    for image in (encoded("PNG"), pixels):
        found = as_floats(image).numpy()
        assert found.shape == (3, 4, 5)
        assert np.array_equal(found, pixels.transpose(2, 0, 1).astype(np.float32) / 255)
