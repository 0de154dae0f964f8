"""The oracle's sets: a scene, once for every combination of a grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.grids import GridMember, attribute_combinations, grid_edit, grid_key
from cfaug.core.protocols import ImageEditor
from cfaug.core.types import Draw, Example, ImageJob, Proposal
from cfaug.shapescapes.drawing import Scene, render
from cfaug.shapescapes.oracle import OracleSets, factors_of, redraw_edited
from cfaug.shapescapes.settings import STYLES, Factors

GRID = {"colour": ("red", "blue"), "background": ("beach", "snow", "grass")}


def job(subject: str = "ball", seed: int = 7, attributes=GRID) -> ImageJob:
    key = grid_key("", "grid", subject)
    every = attribute_combinations(attributes)
    about = [GridMember(subject, "thing", "grid", "", f"a {subject}", one) for one in every]
    example = Example(key, subject, (f"a {subject}",), extra={"subject": subject})
    texts = tuple(f"a {one['colour']} {subject}" for one in every)
    edits = tuple(grid_edit(every[0], one) for one in every)
    details = tuple(one.extra for one in about)
    return ImageJob(Proposal(example, texts, edits, details=details), Draw(seed, 0.5, 7.5))


def test_members_are_one_scene_with_other_attributes() -> None:
    editor = OracleSets(32, "clear")
    assert isinstance(editor, ImageEditor)
    [drawn] = editor.edit([job()])
    first = Scene(Factors("ball", "red", "beach"), 7)
    assert len(drawn.images) == 6
    for pixels, one in zip(drawn.images, attribute_combinations(GRID), strict=True):
        scene = replace(first, factors=Factors("ball", **one))
        rendered, mask = redraw_edited(first, scene, size=32, style=STYLES["clear"])
        assert np.array_equal(pixels, rendered.pixels)
        assert np.array_equal(pixels[~mask], drawn.images[0][~mask])
    assert len({pixels.tobytes() for pixels in drawn.images}) == 6


def test_every_draw_is_a_scene_of_its_own_and_p_changes_nothing() -> None:
    editor = OracleSets(16, "clear")
    one, other = job(), job(seed=8)
    same = replace(one, draw=Draw(7, 0.9, 1.0))
    first, second, third = (drawn.images[0] for drawn in editor.edit([one, other, same]))
    assert np.array_equal(first, third)
    assert not np.array_equal(first, second)
    assert np.array_equal(
        first, render(Scene(Factors("ball", "red", "beach"), 7), 16, STYLES["clear"]).pixels
    )


def test_shuffled_sets_have_the_same_pictures_under_labels_that_say_nothing() -> None:
    jobs = [job(seed=seed) for seed in range(40)]
    plain, shuffled = (OracleSets(8, "clear", one).edit(jobs) for one in (False, True))
    places = []
    for a, b in zip(plain, shuffled, strict=True):
        before = [pixels.tobytes() for pixels in a.images]
        after = [pixels.tobytes() for pixels in b.images]
        assert sorted(before) == sorted(after)
        places.append(after.index(before[0]))
    assert set(places) == set(range(6))
    assert OracleSets(8, "clear", True).edit(jobs[:1])[0].images[0].tobytes() == (
        shuffled[0].images[0].tobytes()
    )


def test_what_a_grid_has_not_is_the_same_in_all() -> None:
    found = factors_of({"subject": "Cat", "attributes": {"colour": "blue"}}, "x")
    assert found == Factors("cat", "blue", "beach")


@pytest.mark.parametrize(
    ("about", "named"),
    [
        ({"subject": "doctor", "attributes": {"colour": "red"}}, "ball, cube"),
        ({"subject": "ball", "attributes": {"race": "White"}}, "colour, background"),
        ({"subject": "ball", "attributes": {"colour": "beige"}}, "red, orange"),
        ({"subject": "ball", "attributes": {}}, "names to values"),
        ({"attributes": {"colour": "red"}}, "ball, cube"),
    ],
)
def test_a_grid_of_other_words_is_refused(about: dict, named: str) -> None:
    with pytest.raises(UserError, match=named) as refused:
        factors_of(about, "a_photo_of_x")
    assert "a_photo_of_x" in str(refused.value)


def test_invalid_settings() -> None:
    with pytest.raises(UserError, match="drawing, photo"):
        OracleSets(32, "oil")
    with pytest.raises(UserError, match=r"image_size=4 should be a whole number"):
        OracleSets(4, "clear")
