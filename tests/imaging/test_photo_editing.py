"""Photos edited in batches against the papers' way: one photo, one edit, one step at a time."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.protocols import ImageEditor, Progressive, SharesExamples
from cfaug.core.types import Draw, Example, ImageJob, Proposal
from cfaug.imaging.cross_attention import CrossAttention
from cfaug.imaging.model import DiffusionWeights
from cfaug.imaging.photo_editing import InvertAndEdit
from tests.imaging import tiny
from tests.records import Photo

SIDE = 2 * tiny.SAMPLE
CAPTION, EDITED = "a red ball on the beach", "a blue ball on the beach"


def photo(seed: int, size=(SIDE, SIDE)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def job(data, texts=(CAPTION, EDITED), p=0.6, cfg=7.5, key="k"):
    image = None if data is None else Photo(data)
    proposal = Proposal(Example(key, key, texts[:1], image), texts, (None,) * len(texts))
    return ImageJob(proposal, Draw(1, p, cfg))


def editor(folder, dtype="fp64", **changes):
    model = DiffusionWeights(str(folder), dtype=dtype, device="cpu")
    return InvertAndEdit(model, **{"steps": 5, **changes})


def test_a_job_is_shown_by_the_photo_and_its_edit_a_control_by_its_reconstruction(pipeline) -> None:
    one = editor(pipeline, "fp32")
    assert isinstance(one, ImageEditor)
    assert isinstance(one, SharesExamples)
    assert not isinstance(one, Progressive)
    data = photo(1)
    edited, control = one.edit([job(data), job(data, (CAPTION, CAPTION))])
    for found in (edited, control):
        assert np.array_equal(found.images[0], np.asarray(Image.open(io.BytesIO(data))))
        assert found.images[1].shape == (SIDE, SIDE, 3)
    loaded = one._diffusion
    pixels = np.asarray(Image.open(io.BytesIO(data))).transpose(2, 0, 1) / np.float32(255)
    import torch

    rebuilt = loaded.decode(loaded.encode_image(torch.from_numpy(pixels))[None])[0]
    wanted = (rebuilt * 255).round().byte().permute(1, 2, 0).numpy()
    assert np.array_equal(control.images[1], wanted)
    assert not np.array_equal(edited.images[1], wanted)
    with pytest.raises(UserError, match="source_images: true"):
        one.edit([job(None)])


def test_an_edit_that_its_control_is_not_for_is_rejected_and_the_rest_goes_on(pipeline) -> None:
    data = photo(1)
    jobs = [
        job(data),
        job(data, (CAPTION, f"{CAPTION} in the snow")),
        job(data, (CAPTION, CAPTION)),
    ]
    swaps = editor(pipeline, cross=CrossAttention("replace"))
    swap, added, control = swaps.edit(jobs)
    assert (added.images, added.rejected) == ((), "words_unequal")
    alone = swaps.edit([jobs[0], jobs[2]])
    for one, wanted in zip((swap, control), alone, strict=True):
        assert all(map(np.array_equal, one.images, wanted.images))
    blue = editor(pipeline, cross=CrossAttention("auto", {"blue": 0.2}, weights={"ball": 2.0}))
    assert [one.rejected for one in blue.edit(jobs)] == ["", "words_missing", ""]
    [only] = swaps.edit(jobs[1:2])
    assert only.rejected == "words_unequal"
