from __future__ import annotations

import contextlib
import copy
import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder, Scorer
from cfaug.core.types import Edit, Example, Images, Proposal
from cfaug.imaging.clip import ClipScorer, LabelScorer, label_margins
from cfaug.models.specs import HFClip, OpenClip
from tests.generate.tiny import Eye, colours
from tests.models import tiny
from tests.properties import examples

TEXTS = ["a red ball on the beach", "a blue cube", "a red ball on the beach"]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders")
    tiny.save_open_clip(folder / "open")
    return {
        "clip": HFClip(str(tiny.save_clip(folder / "clip"))).load(),
        "open_clip": OpenClip(str(folder / "open")).load(),
    }


@pytest.fixture(scope="module")
def images():
    torch.manual_seed(0)
    smooth = torch.nn.functional.interpolate(torch.rand(5, 3, 6, 6), (48, 48), mode="bicubic")
    return (smooth + 0.05 * torch.randn_like(smooth)).clamp(0, 1)


def cubic(x, a=-0.75):
    x = abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def sampled(image, side):
    """Bicubic interpolation written out: four neighbours each way, edges repeated, no filter."""
    source = image.shape[-1]
    weights = np.zeros((side, source))
    for i in range(side):
        at = (i + 0.5) * source / side - 0.5
        for tap in range(int(np.floor(at)) - 1, int(np.floor(at)) + 3):
            weights[i, min(max(tap, 0), source - 1)] += cubic(at - tap)
    return np.einsum("ih,jw,chw->cij", weights, weights, image)


@pytest.mark.parametrize("kind", ["clip", "open_clip"])
def test_ip2p_sees_unrounded_pixels_without_antialiasing(encoders, images, kind) -> None:
    encoder = encoders[kind]
    scorer = ClipScorer(encoder, "ip2p", batch_size=2)
    side, mean, std = (getattr(encoder.transform, n) for n in ("size", "mean", "std"))
    expected = []
    for image in images.double().numpy():
        resized = (sampled(image, side) - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
        with torch.no_grad():
            features = encoder.encode_pixels(torch.from_numpy(resized).float()[None])[0]
        expected.append(features / features.square().sum().sqrt())
    embeddings = scorer.images(images)
    torch.testing.assert_close(embeddings, torch.stack(expected), atol=2e-5, rtol=0)
    assert embeddings.dtype == torch.float32


@pytest.mark.parametrize("kind", ["clip", "open_clip"])
def test_standard_is_the_model_s_own_transform(encoders, images, kind) -> None:
    encoder = encoders[kind]
    pixels = [
        encoder.transform(Image.fromarray(np.uint8(np.round(image.permute(1, 2, 0).numpy() * 255))))
        for image in images
    ]
    with torch.no_grad():
        features = encoder.encode_image(torch.from_numpy(np.stack(pixels)))
    expected = torch.nn.functional.normalize(features, dim=-1)
    standard = ClipScorer(encoder, "standard", batch_size=3).images(images)
    torch.testing.assert_close(standard, expected, atol=1e-6, rtol=0)
    ip2p = ClipScorer(encoder, "ip2p").images(images)
    assert (standard - ip2p).abs().max() > 1e-4  # the two are not the same question


@pytest.mark.parametrize("preprocessing", ["ip2p", "standard"])
def test_images_are_moved_to_the_encoder_s_device(
    encoders, images, preprocessing, monkeypatch
) -> None:
    monkeypatch.setattr("cfaug.imaging.clip._full_precision", lambda _: contextlib.nullcontext())
    elsewhere = ClipScorer(copy.deepcopy(encoders["clip"]).to("meta"), preprocessing)
    assert elsewhere.images(images).device.type == "meta"


def test_texts_are_of_unit_length_and_batches_change_nothing(encoders) -> None:
    encoder = encoders["clip"]
    embeddings = ClipScorer(encoder, batch_size=1).texts(TEXTS)
    torch.testing.assert_close(embeddings.norm(dim=-1), torch.ones(3))
    torch.testing.assert_close(embeddings, ClipScorer(encoder).texts(TEXTS))
    assert embeddings[0].equal(embeddings[2])


def test_autocast_around_a_scorer_does_not_reach_it(encoders, images) -> None:
    scorer = ClipScorer(encoders["clip"])
    expected = scorer.images(images)
    with torch.autocast("cpu", torch.bfloat16):
        assert scorer.images(images).equal(expected)


def test_it_says_what_it_is_and_refuses_other_ways(encoders) -> None:
    scorer = ClipScorer(encoders["clip"], about={"clip": "tiny"})
    assert isinstance(scorer, Scorer)
    assert isinstance(encoders["clip"], DualEncoder)
    assert scorer.describe() == {"clip": "tiny", "preprocessing": "ip2p"}
    with pytest.raises(UserError, match="ip2p or standard"):
        ClipScorer(encoders["clip"], "square")
    with pytest.raises(UserError, match="caption, phrase or null"):
        ClipScorer(encoders["clip"], consistency="word")


@pytest.mark.parametrize("unit", ["caption", "phrase"])
def test_consistency_is_the_edited_text_less_the_original(encoders, images, unit):
    """Whole captions (the paper) or only the words that differ (its code), one pair at a time."""
    scorer = ClipScorer(encoders["clip"], "standard", consistency=unit)
    edits = (None, Edit("subject", "ball", "blue cube"), Edit("weather", "", "in the snow"))
    texts = ("a ball", "a blue cube", "a ball in the snow")
    proposal = Proposal(Example("a", "a", texts[:1]), texts, edits)
    pixels = tuple((image.permute(1, 2, 0) * 255).round().byte().numpy() for image in images[:3])
    [scores] = scorer.score([proposal], [Images(pixels)])
    assert set(scores) == set(scorer.names)
    for place, edit in ((1, edits[1]), (2, edits[2])):
        seen = scorer.images(torch.from_numpy(pixels[place]).permute(2, 0, 1)[None] / 255)[0]
        pair = (texts[0], texts[place]) if unit == "caption" else (edit.before, edit.after)
        before, after = scorer.texts(list(pair))
        expected = float(seen @ after) - float(seen @ before)
        assert scores["consistency"][place - 1] == pytest.approx(expected, abs=1e-6)
    plain = ClipScorer(encoders["clip"], "standard")
    [without] = plain.score([proposal], [Images(pixels)])
    assert set(scores) - set(without) == {"consistency"}
    assert all(scores[name] == pytest.approx(value) for name, value in without.items())
    assert "consistency" not in plain.names


def grid(*sizes):
    names = "abc"[: len(sizes)]
    return [
        dict(zip(names, map(str, numbers), strict=True)) for numbers in product(*map(range, sizes))
    ]


def unit(rows, seed, dim=5):
    drawn = np.random.default_rng(seed).standard_normal((rows, dim))
    return torch.from_numpy(drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).float()


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(0, 99))
def test_margins_are_of_captions_that_differ_in_one_attribute(sizes, seed) -> None:
    members = grid(*sizes)
    images, texts = unit(len(members), seed), unit(len(members), seed + 100)
    margins = label_margins(images, texts, members)
    for k, (member, margin) in enumerate(zip(members, margins, strict=True)):
        worst = math.inf
        for name in member:
            rivals = [
                sum(x * y for x, y in zip(images[k].tolist(), texts[j].tolist(), strict=True))
                for j, other in enumerate(members)
                if other[name] != member[name]
                and all(other[n] == member[n] for n in member if n != name)
            ]
            matched = sum(x * y for x, y in zip(images[k].tolist(), texts[k].tolist(), strict=True))
            if rivals:
                worst = min(worst, matched - max(rivals))
        assert margin == pytest.approx(worst, abs=1e-6)


def proposal(members=None, key="k"):
    members = members or grid(2, 2)
    texts = tuple(
        " ".join(f"{name}{value}" for name, value in member.items()) for member in members
    )
    edits = (None, *(Edit("a", "0", str(k)) for k in range(1, len(texts))))
    details = tuple({"attributes": member} for member in members)
    return Proposal(Example(key, "g", texts[:1]), texts, edits, details=details)


def drawn(texts):
    """Images that show what their texts look like."""
    pixels = [(colours(text) / 8 + 0.5).transpose(1, 2, 0) * 255 for text in texts]
    return tuple(image.clip(0, 255).round().astype(np.uint8) for image in pixels)


def test_an_image_of_its_caption_is_found_and_one_of_another_is_not() -> None:
    scorer = LabelScorer(Eye(), prefix="second_")
    assert isinstance(scorer, Scorer)
    two_by_two = proposal()
    pictures = drawn(two_by_two.texts)
    swapped = (pictures[0], pictures[3], pictures[2], pictures[3])
    right, wrong = scorer.score([two_by_two, two_by_two], [Images(pictures), Images(swapped)])
    assert scorer.names == ("second_label_0", "second_label_1") == tuple(right)
    assert min(right["second_label_0"], *right["second_label_1"]) > 0
    assert wrong["second_label_1"][0] < 0 < wrong["second_label_1"][2]
    assert wrong["second_label_0"] == right["second_label_0"]
    # Texts may share an image, and images may differ in size.
    [shared] = scorer.score([two_by_two], [Images(pictures[:1], (0, 0, 0, 0))])
    assert shared["second_label_0"] == pytest.approx(right["second_label_0"], abs=1e-6)
    assert max(shared["second_label_1"]) < 0
    assert scorer.describe() == {"eye": "eye"}


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ([{"a": "0"}, {"b": "1"}], "different attributes"),
        ([{"a": "0", "b": "0"}, {"a": "1", "b": "1"}], "the grid is incomplete"),
        ([{"a": "0"}], "is not a grid"),
    ],
)
def test_what_is_no_grid_is_refused(members, named) -> None:
    no_grid = proposal(members)
    with pytest.raises(UserError, match=named):
        LabelScorer(Eye()).score([no_grid], [Images(drawn(no_grid.texts))])


def test_texts_without_attributes_are_refused() -> None:
    without_attributes = Proposal(
        Example("k", "g", ("a",)), ("a", "b"), (None, Edit("a", "a", "b"))
    )
    with pytest.raises(UserError, match=r"data\.grid=NAME"):
        LabelScorer(Eye()).score([without_attributes], [Images(drawn(without_attributes.texts))])
