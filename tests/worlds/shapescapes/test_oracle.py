"""The oracle as an image editor and as what draws sets: what is asked for changes, nothing else."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.protocols import ImageEditor
from cfaug.core.types import Draw, Edit, Example, ImageJob, Proposal
from cfaug.data.grids import GridMember, attribute_combinations, grid_edit, grid_key
from cfaug.stats.image_metrics import psnr_outside
from cfaug.worlds.shapescapes.drawing import Scene, render
from cfaug.worlds.shapescapes.language import describe
from cfaug.worlds.shapescapes.oracle import (
    OracleEdit,
    OracleSets,
    edit_scene,
    factors_of,
    redraw_edited,
)
from cfaug.worlds.shapescapes.settings import STYLES, Factors, WorldSettings
from tests.worlds.shapescapes.drawn import SHOWN

WORLD = WorldSettings(image_size=32, style="clear", seed=1, domains=("photo", "sketch"))
SCENE = Scene(Factors("cat", "red", "beach"), 9)
DRAW = Draw(0, 0.5, 7.5)


@dataclass(frozen=True)
class Photo:
    data: bytes
    digest: str = "0"

    def read(self) -> bytes:
        return self.data


def photo_of(scene: Scene, world: WorldSettings = WORLD) -> Photo:
    buffer = io.BytesIO()
    render(scene, world.image_size, world.drawing_style()).image().save(buffer, "PNG")
    return Photo(buffer.getvalue())


def job(*texts: str, scene: Scene = SCENE, kind: str = "adjective") -> ImageJob:
    example = Example("a", "a", (texts[0],), photo_of(scene), "cat", scene.record())
    edits = (None, *[Edit(kind, "x", "y") for _ in texts[1:]])
    return ImageJob(Proposal(example, texts, edits), DRAW)


def test_an_edit_changes_what_the_caption_changed() -> None:
    before = "a photo of a red cat on the beach"
    texts = {
        "a photo of a blue cat on the beach": replace(SCENE.factors, colour="blue"),
        "a photo of a red cat in the snow": replace(SCENE.factors, background="snow"),
        "a sketch of a red cat on the beach": replace(SCENE.factors, domain="sketch"),
        "a photo of a red ball on the beach": replace(SCENE.factors, subject="ball"),
        "a photo of a cat": SCENE.factors,
    }
    editor = OracleEdit(WORLD)
    assert isinstance(editor, ImageEditor)
    for text, factors in texts.items():
        [made] = editor.edit([job(before, text)])
        shown = [
            render(scene, 32, WORLD.drawing_style()).pixels for scene in (SCENE, Scene(factors, 9))
        ]
        assert len(made.images) == 2
        assert all(np.array_equal(a, b) for a, b in zip(made.images, shown, strict=True))


def test_the_control_is_the_photo_and_the_draw_changes_nothing() -> None:
    control = job("a cat", "a cat", kind="reconstruction")
    [made, again] = OracleEdit(WORLD).edit([control, replace(control, draw=Draw(3, 0.9, 1.0))])
    photo = np.asarray(Image.open(io.BytesIO(photo_of(SCENE).data)))
    assert all(np.array_equal(image, photo) for image in (*made.images, *again.images))


def test_a_wrong_caption_is_edited_by_its_difference() -> None:
    edited = edit_scene(SCENE, "a photo of a blue ball", "a photo of a blue ball at night")
    assert edited == Scene(replace(SCENE.factors, background="night"), 9)
    assert edit_scene(SCENE, "a red cat", "a sketch of a red cat") == Scene(
        replace(SCENE.factors, domain="sketch"), 9
    )


def test_words_the_world_has_not_are_a_counted_rejection() -> None:
    made = OracleEdit(WORLD).edit([job("a red cat", "a red dog"), job("a red cat", "a blue cat")])
    assert [drawn.rejected for drawn in made] == ["oracle_unknown_words", ""]
    assert [len(drawn.images) for drawn in made] == [0, 2]


def test_photos_of_another_world_are_refused() -> None:
    with pytest.raises(UserError, match="is not what"):
        OracleEdit(replace(WORLD, style="fog")).edit([job("a red cat", "a blue cat")])
    known = job("a red cat", "a blue cat").proposal
    stranger = replace(known, example=replace(known.example, extra={}))
    with pytest.raises(UserError, match="is not a scene of the embedded world"):
        OracleEdit(WORLD).edit([ImageJob(stranger, DRAW)])


@given(SHOWN, SHOWN, st.integers(0, 2**64 - 1))
@settings(max_examples=30, deadline=None)
def test_any_edit_stays_inside_its_mask(before: Factors, after: Factors, seed: int) -> None:
    scene = Scene(before, seed)
    edited = edit_scene(scene, describe(before), describe(after))
    assert edited == Scene(after, seed)
    drawn, mask = redraw_edited(scene, edited, size=32, style=WORLD.drawing_style())
    photo = render(scene, 32, WORLD.drawing_style()).pixels
    assert np.array_equal(drawn.pixels[~mask], photo[~mask])
    assert mask.any() == (before != after)
    if (~mask).any():
        assert psnr_outside(drawn.pixels, photo, mask) == np.inf


GRID = {"colour": ("red", "blue"), "background": ("beach", "snow", "grass")}


def grid_job(subject: str = "ball", seed: int = 7, attributes=GRID) -> ImageJob:
    key = grid_key("", "grid", subject)
    every = attribute_combinations(attributes)
    about = [GridMember(subject, "thing", "grid", "", f"a {subject}", values) for values in every]
    example = Example(key, subject, (f"a {subject}",), extra={"subject": subject})
    texts = tuple(f"a {values['colour']} {subject}" for values in every)
    edits = tuple(grid_edit(every[0], values) for values in every)
    details = tuple(member.extra for member in about)
    return ImageJob(Proposal(example, texts, edits, details=details), Draw(seed, 0.5, 7.5))


def test_members_are_one_scene_with_other_attributes() -> None:
    editor = OracleSets(32, "clear")
    assert isinstance(editor, ImageEditor)
    [drawn] = editor.edit([grid_job()])
    first = Scene(Factors("ball", "red", "beach"), 7)
    assert len(drawn.images) == 6
    for pixels, attributes in zip(drawn.images, attribute_combinations(GRID), strict=True):
        scene = replace(first, factors=Factors("ball", **attributes))
        rendered, mask = redraw_edited(first, scene, size=32, style=STYLES["clear"])
        assert np.array_equal(pixels, rendered.pixels)
        assert np.array_equal(pixels[~mask], drawn.images[0][~mask])
    assert len({pixels.tobytes() for pixels in drawn.images}) == 6


def test_every_draw_is_a_scene_of_its_own_and_p_changes_nothing() -> None:
    editor = OracleSets(16, "clear")
    original, other = grid_job(), grid_job(seed=8)
    same = replace(original, draw=Draw(7, 0.9, 1.0))
    first, second, third = (drawn.images[0] for drawn in editor.edit([original, other, same]))
    assert np.array_equal(first, third)
    assert not np.array_equal(first, second)
    assert np.array_equal(
        first, render(Scene(Factors("ball", "red", "beach"), 7), 16, STYLES["clear"]).pixels
    )


def test_shuffled_sets_have_the_same_pictures_under_labels_that_say_nothing() -> None:
    jobs = [grid_job(seed=seed) for seed in range(40)]
    plain, shuffled = (OracleSets(8, "clear", shuffle).edit(jobs) for shuffle in (False, True))
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
    factors = factors_of({"subject": "Cat", "attributes": {"colour": "blue"}}, "x")
    assert factors == Factors("cat", "blue", "beach")


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
