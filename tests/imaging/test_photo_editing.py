"""Photos edited in batches against the papers' way: one photo, one edit, one step at a time."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cfaug.core.errors import RejectedError, UserError
from cfaug.core.pixels import as_floats
from cfaug.core.protocols import ImageEditor, Progressive, SharesExamples
from cfaug.core.types import Draw, Example, ImageJob, Images, Proposal
from cfaug.imaging.cross_attention import CrossAttention
from cfaug.imaging.model import DiffusionWeights
from cfaug.imaging.photo_editing import InvertAndEdit, PhotoPreparation, SameImage, UnfitPhotoError
from cfaug.imaging.tree import plan_edits
from tests.imaging import tiny
from tests.models.tiny import image as noise
from tests.records import Photo

SIDE = 2 * tiny.SAMPLE
CAPTION, EDITED = "a red ball on the beach", "a blue ball on the beach"


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def photo(seed: int) -> bytes:
    return encoded(noise(SIDE, SIDE, seed))


def job(data, texts=(CAPTION, EDITED), p=0.6, cfg=7.5, key="k"):
    image = None if data is None else Photo(data)
    proposal = Proposal(Example(key, key, texts[:1], image), texts, (None,) * len(texts))
    return ImageJob(proposal, Draw(1, p, cfg))


def editor(folder, dtype="fp64", **changes):
    model = DiffusionWeights(str(folder), dtype=dtype, device="cpu")
    return InvertAndEdit(model, **{"steps": 5, **changes})


def test_a_job_is_shown_by_the_photo_and_its_edit_a_control_by_its_reconstruction(pipeline) -> None:
    image_editor = editor(pipeline, "fp32")
    assert isinstance(image_editor, ImageEditor)
    assert isinstance(image_editor, SharesExamples)
    assert not isinstance(image_editor, Progressive)
    data = photo(1)
    edited, control = image_editor.edit([job(data), job(data, (CAPTION, CAPTION))])
    for drawn in (edited, control):
        assert np.array_equal(drawn.images[0], np.asarray(Image.open(io.BytesIO(data))))
        assert drawn.images[1].shape == (SIDE, SIDE, 3)
    loaded = image_editor._diffusion
    pixels = np.asarray(Image.open(io.BytesIO(data))).transpose(2, 0, 1) / np.float32(255)
    rebuilt = loaded.decode(loaded.encode_image(torch.from_numpy(pixels))[None])[0]
    wanted = (rebuilt * 255).round().byte().permute(1, 2, 0).numpy()
    assert np.array_equal(control.images[1], wanted)
    assert not np.array_equal(edited.images[1], wanted)
    with pytest.raises(UserError, match="source_images: true"):
        image_editor.edit([job(None)])


@pytest.mark.slow
def test_an_edit_that_its_control_is_not_for_is_rejected_and_the_rest_goes_on(pipeline) -> None:
    data = photo(1)
    jobs = [
        job(data),
        job(data, (CAPTION, f"{CAPTION} in the snow")),
        job(data, (CAPTION, CAPTION)),
    ]
    swaps = editor(pipeline, steps=2, cross=CrossAttention("replace"))
    swap, added, control = swaps.edit(jobs)
    assert (added.images, added.rejected) == ((), "words_unequal")
    alone = swaps.edit([jobs[0], jobs[2]])
    for drawn, wanted in zip((swap, control), alone, strict=True):
        assert all(map(np.array_equal, drawn.images, wanted.images))
    cross = CrossAttention("auto", {"blue": 0.2}, weights={"ball": 2.0})
    blue = editor(pipeline, steps=2, cross=cross)
    assert [drawn.rejected for drawn in blue.edit(jobs)] == ["", "words_missing", ""]
    [only] = swaps.edit(jobs[1:2])
    assert only.rejected == "words_unequal"


@pytest.mark.parametrize("size", [(50, 30), (30, 51), (32, 32), (64, 64)])
def test_the_centre_is_cropped_and_resized_as_the_released_code_does(size) -> None:
    image = noise(*size)
    prepared = PhotoPreparation().prepare(encoded(image), 32, "it")
    pixels = np.asarray(image)
    height, width, _ = pixels.shape
    if height < width:
        offset = (width - height) // 2
        pixels = pixels[:, offset : offset + height]
    elif width < height:
        offset = (height - width) // 2
        pixels = pixels[offset : offset + width]
    assert np.array_equal(prepared, np.asarray(Image.fromarray(pixels).resize((32, 32))))


def test_grey_and_animated_photos_are_taken_unless_they_are_to_be_rejected() -> None:
    grey = encoded(noise(40, 40).convert("L"))
    prepared = PhotoPreparation().prepare(grey, 32, "it")
    assert prepared.shape == (32, 32, 3)
    assert (prepared[..., 0] == prepared[..., 2]).all()
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
        (encoded(noise(40, 40))[:-300], "photo_broken"),
        (encoded(noise(40, 3)), "photo_tiny"),
        (encoded(noise(400, 300)), "photo_broken"),
    ],
)
def test_what_cannot_be_edited_says_why(data, reason) -> None:
    with pytest.raises(UnfitPhotoError, match="photo 7") as caught:
        PhotoPreparation(max_pixels=100_000).prepare(data, 32, "photo 7")
    assert caught.value.reason == reason


def test_an_unfit_photo_is_rejected_and_the_others_are_edited(pipeline) -> None:
    image_editor = editor(pipeline, "fp32", steps=2)
    broken, good, again = image_editor.edit(
        [job(b"no image", key="a"), job(photo(1), (CAPTION, CAPTION), key="b"), job(b"no image")]
    )
    assert (broken.rejected, broken.images) == ("photo_broken", ())
    assert again.rejected == "photo_broken"
    assert (good.rejected, len(good.images)) == ("", 2)
    assert [drawn.rejected for drawn in image_editor.edit([job(b"no image")])] == ["photo_broken"]


SHARES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def test_the_paper_s_sweep_costs_a_sixth_of_the_edits_drawn_apart() -> None:
    """Table 6: six shares of 50 steps, cross-attention during 40; in rows of the model."""
    jobs = [job(b"photo", p=p) for p in SHARES]
    tree = plan_edits(jobs, 50, controlled=lambda _: 40)
    # The source while somebody looks; the trunk; branches from where they part.
    assert tree.row_steps() == 45 + 2 * (50 + 10 + 15 + 20 + 25 + 30)
    remembered = plan_edits(jobs, 50, remembered=True, controlled=lambda _: 40)
    assert remembered.row_steps() == 2 * 150
    # Drawn apart: source and edit, with and without text, six times; null-text: section 2.2.
    null_text = 50 + 50 * 3 + 500 * 3
    assert (null_text + 6 * 50 * 4) / (51 + remembered.row_steps()) > 8


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"x", b"y"]), st.sampled_from([CAPTION, "one", "two"]),
            st.integers(0, 10), st.sampled_from([3.0, 7.5]),
        ),
        min_size=1, max_size=12,
    ),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10),
)  # fmt: skip
def test_every_job_finds_its_own_way_through_the_tree(some, by_guidance, remembered, cross) -> None:
    steps = 10
    jobs = [job(data, (CAPTION, text), p=p / 10, cfg=cfg) for data, text, p, cfg in some]
    tree = plan_edits(
        jobs, steps, by_guidance=by_guidance, remembered=remembered, controlled=lambda _: cross
    )
    for (data, text, p, cfg), (source, edited) in zip(some, tree.jobs, strict=True):
        made_for = tree.sources[tree.source[source]]
        assert (made_for.digest, made_for.text) == (data.hex(), CAPTION)
        assert made_for.guidance == (cfg if by_guidance else None)
        assert tree.base[source] == source
        if text == CAPTION:
            assert edited == source
            continue
        assert (tree.texts[tree.text[edited]], tree.cfg[edited]) == (text, cfg)
        assert tree.base[edited] == source
        length = int(p / 10 * steps)
        assert tree.shared[edited] == length
        # Followed back in time, it shares as long as it should, and no longer.
        for step in range(steps):
            at = edited if tree.birth[edited] <= step else int(tree.parent[edited])
            assert tree.birth[at] <= step < tree.end[at]
            assert (tree.shared[at] > step) == (length > step)
            looks = tree.shared[at] > step or step < cross
            assert not looks or remembered or step < tree.end[source]
    # What belongs to one source lies together, the source first.
    assert (sorted(tree.source.tolist())) == tree.source.tolist()
    assert len(tree.sources) == int((tree.image == 0).sum())


TEXTS = ("a dog", "a cat", "a cow")


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP"])
def test_every_text_gets_the_source_s_own_bytes(image_format) -> None:
    editor, data = SameImage(), encoded(noise(), image_format)
    assert isinstance(editor, ImageEditor)
    assert not isinstance(editor, Progressive)
    assert editor.edit([job(data, TEXTS), job(data, ("alone",))]) == [
        Images((data,), (0, 0, 0)), Images((data,), (0,)),
    ]  # fmt: skip
    [shown] = SameImage().edit([job(encoded(noise(), "BMP"), TEXTS)])  # which shards do not hold
    assert np.array_equal(shown.images[0], np.asarray(noise()))


def test_what_cannot_be_read_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(UserError, match="the image of 'k' is missing"):
        SameImage().edit([job(None)])
    with pytest.raises(UserError, match="the image of 'k' is not an image"):
        SameImage().edit([job(b"no image")])
    truncated = encoded(noise(50, 40))[:60]  # the header is whole, the pixels are missing
    with pytest.raises(UserError, match="50 x 40 pixels is more than 1999"):
        SameImage(max_pixels=1999).edit([job(truncated)])


def test_images_say_which_shows_which_text() -> None:
    assert Images((b"0", b"1")).shown == (0, 1)
    for wrong in ({"shown": (0, 2)}, {"shown": (-1,)}, {"unsafe": frozenset({2})}):
        with pytest.raises(UserError, match="there are 2 images"):
            Images((b"0", b"1"), **wrong)


def test_floats_are_those_of_the_pixels() -> None:
    pixels = np.asarray(noise(5, 4))
    for image in (encoded(noise(5, 4)), pixels):
        floats = as_floats(image).numpy()
        assert floats.shape == (3, 4, 5)
        assert np.array_equal(floats, pixels.transpose(2, 0, 1).astype(np.float32) / 255)


def test_a_photo_that_is_damaged_in_the_middle_is_rejected_where_its_file_is_kept() -> None:
    data = bytearray(encoded(noise(60, 60)))
    data[len(data) // 2 : len(data) // 2 + 50] = bytes(50)
    with pytest.raises(RejectedError, match="the image of 'k': the image cannot be decoded"):
        SameImage().edit([job(bytes(data))])
