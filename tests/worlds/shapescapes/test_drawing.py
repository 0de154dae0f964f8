"""Scenes are pure functions in every domain and weather; edits are exact outside their masks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import Draw
from cfaug.worlds.shapescapes.drawing import (
    Scene,
    Weather,
    develop_image,
    reach,
    redraw,
    render,
    scene_of,
    widen,
)
from cfaug.worlds.shapescapes.settings import CHOICES, DOMAINS, FACTORS, STYLES, SUBJECTS, Factors
from tests.properties import examples
from tests.records import image_job
from tests.worlds.shapescapes.drawn import SHOWN, draw_edited

scenes = st.builds(Scene, SHOWN, st.integers(0, 2**64 - 1))
styles = st.sampled_from(sorted(STYLES))


@given(scenes, styles, st.sampled_from([32, 64]))
@settings(max_examples=examples(25), deadline=None)
def test_a_scene_is_a_pure_function(scene: Scene, style: str, size: int) -> None:
    first = render(scene, size, STYLES[style])
    np.random.seed(1)  # noqa: NPY002  the global generator must not matter
    second = render(scene, size, STYLES[style])
    assert first.pixels.shape == (size, size, 3)
    assert first.pixels.dtype == np.uint8
    assert np.array_equal(first.pixels, second.pixels)


@given(scenes, styles, st.sampled_from(sorted(CHOICES)), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_nothing_changes_outside_the_mask(
    scene: Scene, style: str, kind: str, data: st.DataObject
) -> None:
    look = STYLES[style]
    to = data.draw(st.sampled_from([v for v in CHOICES[kind] if v != getattr(scene.factors, kind)]))
    before = render(scene, 32, look)
    image, mask = draw_edited(scene, kind, to, size=32, style=look)
    difference = np.abs(image.astype(int) - before.pixels.astype(int)).sum(axis=2)
    assert difference[~mask].max(initial=0) == 0
    assert mask.any()
    if scene.factors.domain == "photo":
        assert difference[mask].max() > 0
        assert mask.mean() < 1


@pytest.mark.parametrize("style", sorted(STYLES))
def test_the_subject_is_kept_when_the_background_is_swapped(style: str) -> None:
    scene = Scene(Factors("ball", "red", "beach"), 5)
    before = render(scene, 32, STYLES[style])
    image, mask = draw_edited(scene, "background", "night", size=32, style=STYLES[style])
    kept = ~mask
    assert np.array_equal(kept, before.solid)
    assert kept.mean() > 0.1
    assert np.array_equal(image[kept], before.pixels[kept])


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_subject_stays_inside_the_picture(subject: str) -> None:
    for seed in range(20):
        scene = Scene(Factors(subject, "red", "snow"), seed)
        touched = render(scene, 32, STYLES["drawing"]).touched
        assert 0.08 < touched.mean() < 0.6
        border = np.ones_like(touched)
        border[1:-1, 1:-1] = False
        assert touched[border].mean() < 0.15


def test_a_negative_is_the_inverse_of_the_photo_but_for_noise() -> None:
    scene = Scene(Factors("cat", "blue", "grass"), 3)
    photo = render(scene, 32, STYLES["photo"]).pixels.astype(int)
    negative = render(scene, 32, STYLES["negative"]).pixels.astype(int)
    assert abs((photo + negative).mean() - 255) < 4


@pytest.mark.parametrize(
    ("kind", "to", "named"), [("size", "big", "subject"), ("subject", "dog", "cat")]
)
def test_an_unknown_edit_names_the_choices(kind: str, to: str, named: str) -> None:
    scene = Scene(Factors("cat", "blue", "grass"), 3)
    with pytest.raises(UserError, match=named):
        draw_edited(scene, kind, to, size=32, style=STYLES["photo"])


CLEAR = STYLES["clear"]
SCENE = Scene(Factors("cat", "red", "beach"), 7)


def shown(domain: str, size: int = 64) -> np.ndarray:
    scene = replace(SCENE, factors=replace(SCENE.factors, domain=domain))
    return render(scene, size, CLEAR).pixels.astype(int)


@pytest.mark.parametrize("size", [32, 64])
def test_every_domain_looks_its_own(size: int) -> None:
    pictures = [shown(domain, size) for domain in DOMAINS]
    for i, picture in enumerate(pictures):
        for other in pictures[:i]:
            assert np.abs(picture - other).mean() > 12


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
    first, second = (
        redraw(picture, domain, np.random.default_rng(5)) for picture in (before, after)
    )
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


FOGGY = Scene(Factors("cat", "red", "grass"), 5)
WEATHER_JOB = image_job(("a cat", "a dog"), Draw(3, 0.5, 3.0))


def test_a_clear_scene_put_into_fog_is_the_foggy_scene_but_for_its_grain():
    clear = render(FOGGY, 64, STYLES["clear"]).image()
    foggy = render(FOGGY, 64, STYLES["fog"]).pixels.astype(int)
    developed = np.asarray(develop_image(clear, STYLES["fog"], 0)).astype(int)
    grain = 255 * STYLES["fog"].noise
    difference = developed - foggy
    assert abs(difference.mean()) < 0.2
    assert difference.std() < 2 * grain  # two grains of one deviation, and the clear one's quarter


def test_a_pair_shares_its_grain_and_another_candidate_does_not():
    black = np.zeros((16, 16, 3), np.uint8)
    from PIL import Image

    image, weather = Image.fromarray(black), Weather("fog")
    first, again = (np.asarray(weather(image, WEATHER_JOB)) for _ in range(2))
    other = np.asarray(weather(image, image_job(WEATHER_JOB.texts, Draw(4, 0.5, 3.0))))
    assert (first == again).all()
    assert (first != other).any()


def test_an_unknown_style_is_named():
    with pytest.raises(UserError, match=r"style=mist: choose from drawing, photo, negative,"):
        Weather("mist")
