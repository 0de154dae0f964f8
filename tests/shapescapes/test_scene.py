"""Scenes are pure functions, and counterfactuals are exact outside their masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.shapescapes.drawing import Scene, render
from cfaug.shapescapes.settings import CHOICES, STYLES, SUBJECTS, Factors
from tests.properties import examples
from tests.shapescapes.drawn import SHOWN, draw_edited

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
