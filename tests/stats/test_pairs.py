"""Scores of pairs beyond Winoground's three, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.stats.choices import pair_hits, pair_similarities, winoground_hits
from tests.properties import examples


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 10**6))
def test_every_score_equals_its_definition(seed):
    sim = np.random.default_rng(seed).integers(0, 4, (20, 2, 2)).astype(float)
    found = pair_hits(sim)
    for pair, (c0_i0, c0_i1, c1_i0, c1_i1) in enumerate(sim.reshape(20, 4)):
        expected = {
            "group_matching": c0_i0 + c1_i1 > c0_i1 + c1_i0,
            "text_score_i0": c0_i0 > c1_i0, "text_score_i1": c1_i1 > c0_i1,
            "image_score_c0": c0_i0 > c0_i1, "image_score_c1": c1_i1 > c1_i0,
        }  # fmt: skip
        expected["text_score"] = expected["text_score_i0"] and expected["text_score_i1"]
        expected["image_score"] = expected["image_score_c0"] and expected["image_score_c1"]
        expected["group_score"] = expected["text_score"] and expected["image_score"]
        assert {name: bool(hits[pair]) for name, hits in found.items()} == expected


@given(st.integers(0, 10**6))
def test_group_matching_is_implied_by_text_or_image_score(seed):
    sim = np.random.default_rng(seed).normal(size=(20, 2, 2))
    found = pair_hits(sim)
    assert found["group_matching"][found["text_score"] | found["image_score"]].all()
    assert list(found)[:3] == list(winoground_hits(sim))


def test_chance_is_a_half():
    found = pair_hits(np.random.default_rng(0).normal(size=(100_000, 2, 2)))
    for name in list(found)[3:]:
        assert found[name].mean() == pytest.approx(1 / 2, abs=0.01)


def test_similarities_of_any_number_of_captions_and_images():
    rng = np.random.default_rng(2)
    texts, images = rng.normal(size=(5, 4, 8)), rng.normal(size=(5, 3, 8))
    texts[2, 3], images[1, 2] = texts[2, 1], images[1, 0]
    found = pair_similarities(texts, images)
    for item in range(5):
        for k in range(4):
            for m in range(3):
                a, b = texts[item, k], images[item, m]
                cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
                assert found[item, k, m] == pytest.approx(cosine)
    assert (found[2, 3] == found[2, 1]).all()
    assert (found[1, :, 2] == found[1, :, 0]).all()
