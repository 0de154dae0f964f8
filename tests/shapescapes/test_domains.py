"""Pictures in every domain: the same scene, other means; edits stay inside their masks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.shapescapes.drawing import Scene, reach, redraw, render, scene_of, widen
from cfaug.shapescapes.settings import DOMAINS, FACTORS, STYLES, Factors
from tests.shapescapes.drawn import draw_edited

CLEAR = STYLES["clear"]
SCENE = Scene(Factors("cat", "red", "beach"), 7)


def shown(domain: str, size: int = 64) -> np.ndarray:
    scene = replace(SCENE, factors=replace(SCENE.factors, domain=domain))
    return render(scene, size, CLEAR).pixels.astype(int)


@pytest.mark.parametrize("size", [32, 64])
def test_every_domain_looks_its_own(size: int) -> None:
    pictures = [shown(domain, size) for domain in DOMAINS]
    for i, one in enumerate(pictures):
        for other in pictures[:i]:
            assert np.abs(one - other).mean() > 12


def test_a_photo_is_not_redrawn() -> None:
    picture = np.random.default_rng(0).random((8, 8, 3)).astype(np.float32)
    assert np.array_equal(redraw(picture, "photo", np.random.default_rng(1)), picture)


@given(st.sampled_from(DOMAINS), st.integers(8, 100), st.integers(0, 2**32 - 1), st.data())
@settings(max_examples=40, deadline=None)
def test_a_domain_reaches_as_far_as_it_says(
    domain: str, size: int, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    before = rng.random((size, size, 3)).astype(np.float32)
    after = before.copy()
    y, x = (data.draw(st.integers(0, size - 1)) for _ in range(2))
    after[y, x] = 1 - after[y, x]
    first, second = (redraw(one, domain, np.random.default_rng(5)) for one in (before, after))
    assert first.dtype == np.float32
    changed = (first != second).any(axis=2)
    touched = np.zeros((size, size), dtype=bool)
    touched[y, x] = True
    assert not (changed & ~widen(touched, reach(domain, size))).any()


@given(st.integers(0, 4), st.integers(2, 12), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_a_mask_is_widened_by_rows_and_columns(by: int, size: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((size, size)) < 0.1
    slow = np.zeros_like(mask)
    for y, x in zip(*np.nonzero(mask), strict=True):
        slow[max(0, y - by) : y + by + 1, max(0, x - by) : x + by + 1] = True
    assert np.array_equal(widen(mask, by), slow)


def test_an_edit_of_the_domain_may_change_everything_and_keeps_the_rest_of_the_scene() -> None:
    image, mask = draw_edited(SCENE, "domain", "sketch", size=64, style=CLEAR)
    assert mask.all()
    assert np.array_equal(image.astype(int), shown("sketch"))
    back = Scene(replace(SCENE.factors, domain="sketch"), SCENE.seed)
    photo, _ = draw_edited(back, "domain", "photo", size=64, style=CLEAR)
    assert np.array_equal(photo.astype(int), shown("photo"))


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_record_makes_the_scene_again(domain: str) -> None:
    scene = Scene(replace(SCENE.factors, domain=domain), 2**63 + 11)
    assert scene_of(scene.record()) == scene
    assert ("domain" in scene.record()) == (domain != "photo")
    assert list(FACTORS) == ["subject", "colour", "background", "domain"]
