"""Scenes of several things: every thing is where its record says, and nothing else changes."""

from __future__ import annotations

import io
import itertools
import json

import numpy as np
import pytest
from PIL import Image

from cfaug.core.rng import derive
from cfaug.shapescapes.question_parts import SCENE, make_questions
from cfaug.shapescapes.settings import COLOURS, STYLES, WorldSettings
from cfaug.shapescapes.world import (
    SHAPES,
    SIDE,
    SIZES,
    Gathering,
    Thing,
    gathering_of,
    render_gathering,
)

SIZE = 60
"""Pixels of a side, 20 a cell."""


def full(seed, size="large"):
    cells = itertools.product(range(SIDE), repeat=2)
    kinds = itertools.cycle(SHAPES)
    things = [Thing(next(kinds), "red", size, *cell) for cell in cells]
    return Gathering(tuple(things), "night", derive(seed, "full"))


@pytest.mark.parametrize(("style", "seed"), [("drawing", 0), ("photo", 1), ("fog", 2)])
def test_a_thing_changes_pixels_of_its_own_cell_only(style, seed):
    every = full(seed)
    look = STYLES[style]
    whole = render_gathering(every, SIZE, look)
    for number, thing in enumerate(every.things):
        others = every.things[:number] + every.things[number + 1 :]
        without = render_gathering(Gathering(others, "night", every.seed), SIZE, look)
        rows, columns = np.nonzero((whole != without).any(axis=2))
        step = SIZE // 16 if look.detail else 0  # a shadow falls to the right of it and below
        for found, at in ((columns, thing.column), (rows, thing.row)):
            assert at * 20 <= found.min()
            assert found.max() < (at + 1) * 20 + step


@pytest.mark.parametrize("shape", SHAPES)
def test_large_things_cover_more_and_all_show_their_colour(shape):
    covered = {}
    for size in SIZES:
        shown = [
            render_gathering(Gathering(things, "snow", 5), SIZE, STYLES["drawing"]).astype(int)
            for things in ((Thing(shape, "blue", size, 1, 1),), ())
        ]
        near = np.abs(shown[0] - np.array(COLOURS["blue"])).max(axis=2) < 45
        covered[size] = int((near & (shown[0] != shown[1]).any(axis=2)).sum())
    assert covered["large"] > 2 * covered["small"] > 0


def test_nothing_is_strewn_about_that_could_be_taken_for_a_thing():
    pictures = [
        render_gathering(Gathering((), "water", 5), SIZE, STYLES[style]).astype(int)
        for style in ("drawing", "clear")
    ]
    water = pictures[1].reshape(-1, 3).mean(axis=0)
    assert np.abs(pictures[1] - water).max() < 140
    assert (pictures[0][..., 2] > pictures[0][..., 0]).all()
    assert (pictures[1][..., 2] > pictures[1][..., 0]).all()


def test_a_record_gives_the_scene_and_the_file_its_pixels():
    settings = WorldSettings(seed=1, image_size=24, style="clear", vqa_test_pairs=6)
    images = list(make_questions(settings, "test"))
    assert len({one.image.digest for one in images}) == len(images)
    for one in images:
        scene = gathering_of(json.loads(json.dumps(one.extra[SCENE])))
        assert scene.record() == one.extra[SCENE]
        pixels = render_gathering(scene, 24, settings.look())
        assert (np.asarray(Image.open(io.BytesIO(one.image.read()))) == pixels).all()


def test_twins_differ_in_few_pixels():
    settings = WorldSettings(seed=1, image_size=48, style="drawing", vqa_test_pairs=12)
    images = list(make_questions(settings, "test"))
    for first, second in zip(images[::2], images[1::2], strict=True):
        assert first.group == second.group
        pixels = [np.asarray(Image.open(io.BytesIO(one.image.read()))) for one in (first, second)]
        apart = (pixels[0] != pixels[1]).any(axis=2).mean()
        assert 0 < apart < 2.2 / SIDE**2
