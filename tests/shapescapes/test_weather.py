"""The weather of a world, on pictures that were drawn in clear air."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import Draw
from cfaug.shapescapes.drawing import Scene, Weather, develop_image, render
from cfaug.shapescapes.settings import STYLES, Factors
from tests.records import image_job

SCENE = Scene(Factors("cat", "red", "grass"), 5)
JOB = image_job(("a cat", "a dog"), Draw(3, 0.5, 3.0))


def test_a_clear_scene_put_into_fog_is_the_foggy_scene_but_for_its_grain():
    clear = render(SCENE, 64, STYLES["clear"]).image()
    foggy = render(SCENE, 64, STYLES["fog"]).pixels.astype(int)
    found = np.asarray(develop_image(clear, STYLES["fog"], 0)).astype(int)
    grain = 255 * STYLES["fog"].noise
    difference = found - foggy
    assert abs(difference.mean()) < 0.2
    assert difference.std() < 2 * grain  # two grains of one deviation, and the clear one's quarter


def test_a_pair_shares_its_grain_and_another_candidate_does_not():
    black = np.zeros((16, 16, 3), np.uint8)
    from PIL import Image

    image, weather = Image.fromarray(black), Weather("fog")
    first, again = (np.asarray(weather(image, JOB)) for _ in range(2))
    other = np.asarray(weather(image, image_job(JOB.texts, Draw(4, 0.5, 3.0))))
    assert (first == again).all()
    assert (first != other).any()


def test_an_unknown_style_is_named():
    with pytest.raises(UserError, match=r"style=mist: choose from drawing, photo, negative,"):
        Weather("mist")
