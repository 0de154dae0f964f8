from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.protocols import Scorer
from cfaug.core.types import Edit, Example, Images, Proposal
from cfaug.imaging.clip import LabelScorer, label_margins
from tests.generate import tiny
from tests.properties import examples


def grid(*sizes):
    names = "abc"[: len(sizes)]
    return [dict(zip(names, map(str, one), strict=True)) for one in product(*map(range, sizes))]


def unit(rows, seed, dim=5):
    drawn = np.random.default_rng(seed).standard_normal((rows, dim))
    return torch.from_numpy(drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).float()


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(0, 99))
def test_margins_are_of_captions_that_differ_in_one_attribute(sizes, seed) -> None:
    members = grid(*sizes)
    images, texts = unit(len(members), seed), unit(len(members), seed + 100)
    found = label_margins(images, texts, members)
    for k, (one, margin) in enumerate(zip(members, found, strict=True)):
        worst = math.inf
        for name in one:
            rivals = [
                sum(x * y for x, y in zip(images[k].tolist(), texts[j].tolist(), strict=True))
                for j, other in enumerate(members)
                if other[name] != one[name] and all(other[n] == one[n] for n in one if n != name)
            ]
            own = sum(x * y for x, y in zip(images[k].tolist(), texts[k].tolist(), strict=True))
            if rivals:
                worst = min(worst, own - max(rivals))
        assert margin == pytest.approx(worst, abs=1e-6)


def proposal(members=None, key="k"):
    members = members or grid(2, 2)
    texts = tuple(" ".join(f"{name}{value}" for name, value in one.items()) for one in members)
    edits = (None, *(Edit("a", "0", str(k)) for k in range(1, len(texts))))
    details = tuple({"attributes": one} for one in members)
    return Proposal(Example(key, "g", texts[:1]), texts, edits, details=details)


def drawn(texts):
    """Images that show what their texts look like."""
    pixels = [(tiny.colours(text) / 8 + 0.5).transpose(1, 2, 0) * 255 for text in texts]
    return tuple(one.clip(0, 255).round().astype(np.uint8) for one in pixels)


def test_an_image_of_its_caption_is_found_and_one_of_another_is_not() -> None:
    scorer = LabelScorer(tiny.Eye(), prefix="second_")
    assert isinstance(scorer, Scorer)
    one = proposal()
    pictures = drawn(one.texts)
    swapped = (pictures[0], pictures[3], pictures[2], pictures[3])
    right, wrong = scorer.score([one, one], [Images(pictures), Images(swapped)])
    assert scorer.names == ("second_label_0", "second_label_1") == tuple(right)
    assert min(right["second_label_0"], *right["second_label_1"]) > 0
    assert wrong["second_label_1"][0] < 0 < wrong["second_label_1"][2]
    assert wrong["second_label_0"] == right["second_label_0"]
    # Texts may share an image, and images may differ in size.
    [shared] = scorer.score([one], [Images(pictures[:1], (0, 0, 0, 0))])
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
    one = proposal(members)
    with pytest.raises(UserError, match=named):
        LabelScorer(tiny.Eye()).score([one], [Images(drawn(one.texts))])


def test_texts_without_attributes_are_refused() -> None:
    one = Proposal(Example("k", "g", ("a",)), ("a", "b"), (None, Edit("a", "a", "b")))
    with pytest.raises(UserError, match=r"data\.grid=NAME"):
        LabelScorer(tiny.Eye()).score([one], [Images(drawn(one.texts))])
