"""Scores of candidates against the sums written out, distances against plain transformers."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.models.specs import HFClip
from cfaug.xmai.insertions import ImageTextDistance
from cfaug.xmai.insertions.scores import normalise_scores, score_candidates
from tests.records import Photo
from tests.xmai.insertions.parts import photo

VALUES = st.lists(st.floats(-1, 2).map(lambda v: round(v, 3)), min_size=1, max_size=6)


@given(VALUES)
def test_scores_are_made_comparable_as_written_out(values):
    array = np.array(values)
    shares = np.maximum(array, 0)
    expected = shares / shares.sum() if shares.sum() > 0 else 0 * shares
    assert normalise_scores(values, "sum") == pytest.approx(expected)
    spread = array.max() - array.min()
    expected = (array - array.min()) / spread if spread else 0 * array
    assert normalise_scores(values, "min_max") == pytest.approx(expected)


def test_the_sum_is_equation_1():
    p, s, d = [0.4, 0.1], [0.2, 0.6], [0.7, 0.8]
    expected = [
        (1 * 0.4 / 0.5 + 5 * 0.2 / 0.8 - 2 * 0.7 / 1.5) / 8,
        (1 * 0.1 / 0.5 + 5 * 0.6 / 0.8 - 2 * 0.8 / 1.5) / 8,
    ]
    assert score_candidates(p, s, d, (1, 5, -2), "sum") == pytest.approx(expected)
    without = score_candidates(p, s, [], (1, 5, 0), "sum")
    assert without == pytest.approx([(0.8 + 1.25) / 6, (0.2 + 3.75) / 6])


def test_nothing_has_no_score():
    assert score_candidates([], [], [], (1, 5, 5), "min_max") == []


def test_a_distance_is_one_less_the_cosine_of_plain_transformers(parts):
    from transformers import CLIPModel, CLIPProcessor

    photos = {str(seed): photo(seed) for seed in range(3)}
    texts = ["a dog", "a red ball on the beach of a man", "a", "a dog " * 60]
    images = parts.distance.embed_images(photos)
    vectors = parts.distance.embed_texts(texts)
    model = CLIPModel.from_pretrained(parts.clip).double().eval()
    processor = CLIPProcessor.from_pretrained(parts.clip)
    for name, source in photos.items():
        shown = Image.open(io.BytesIO(source.read()))
        for text, vector in zip(texts, vectors, strict=True):
            given = processor(
                text=[f"This is {text}"], images=shown, return_tensors="pt", truncation=True
            )
            given["pixel_values"] = given["pixel_values"].double()
            with torch.no_grad():
                out = model(**given)
            a, b = out.text_embeds[0], out.image_embeds[0]
            cosine = float(a @ b / a.norm() / b.norm())
            assert parts.distance.distance(images[name], vector) == pytest.approx(
                1 - cosine, abs=1e-4
            )


def test_float32_is_near_float64(parts):
    rough = ImageTextDistance(HFClip(str(parts.clip)))
    image = {"0": photo(0)}
    [a], [b] = (one.embed_texts(["a dog"]) for one in (rough, parts.distance))
    np.testing.assert_allclose(a, b, atol=1e-5)
    np.testing.assert_allclose(
        rough.embed_images(image)["0"], parts.distance.embed_images(image)["0"], atol=1e-5
    )


def test_a_photo_that_cannot_be_decoded_has_no_embedding_and_a_missing_one_is_refused(
    parts, capsys
):
    found = parts.distance.embed_images({"a": Photo(b"no photo"), "b": photo(1)})
    assert found["a"] is None
    assert found["b"] is not None
    assert "photo_broken" in capsys.readouterr().err

    class Gone(Photo):
        def read(self):
            raise UserError("photo.png is missing")

    with pytest.raises(UserError, match=r"photo.png is missing"):
        parts.distance.embed_images({"a": Gone(b"")})


def test_invalid_settings_and_damaged_weights_are_named(parts, tmp_path):
    with pytest.raises(UserError, match="dtype=int8: choose from float32, float64"):
        ImageTextDistance(HFClip("x"), dtype="int8")
    with pytest.raises(UserError, match=r"image_text.device"):
        ImageTextDistance(HFClip("x"), device="gpu")
    said = parts.distance.describe()["image_text"]
    assert "sha256:" in said
    assert ImageTextDistance(HFClip(str(parts.clip)), prefix="").identity() != (
        parts.distance.identity()
    )


def test_embeddings_that_are_not_numbers_are_refused(parts, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = tmp_path / "clip"
    shutil.copytree(parts.clip, folder)
    weights = load_file(folder / "model.safetensors")
    weights["text_projection.weight"][0, 0] = float("inf")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"text_projection|not numbers|damaged"):
        ImageTextDistance(HFClip(str(folder))).embed_texts(["a dog"])
