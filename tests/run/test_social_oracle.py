"""``recipe=social_oracle``: perfect sets of a grid, in the form that questions read."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.core.pixels import decode_image
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets
from cfaug.editing.caption_grids import read_grid
from cfaug.run.compose import compose_jobs
from cfaug.run.generate import GenerateSettings, generate
from cfaug.shapescapes.drawing import Scene, render
from cfaug.shapescapes.settings import STYLES, SUBJECTS, Factors, WorldSettings
from cfaug.social.grid_sets import read_grid_sets
from tests.test_conf import CONF


@pytest.fixture
def oracle(tmp_path):
    """Run the recipe, and return the configuration and the sets."""

    def run(*words, folder="out"):
        overrides = ["recipe=social_oracle", *words, f"paths.shards={tmp_path / folder}"]
        [(config, _)] = compose_jobs(
            CONF, "generate", overrides, multirun=False, command=GenerateSettings
        )
        assert generate(GenerateSettings(**config)) == 0
        return config, list(read_sets(tmp_path / folder))

    return run


SMALL = ("recipe.image_editor.image_size=8", "recipe.draws.candidates=2")


def test_sets_are_the_worlds_scenes_and_read_as_a_grid(oracle, tmp_path):
    _, made = oracle(*SMALL, "limit=4")
    assert [one.group for one in made] == ["ball"] * 6 + ["cube"] * 2
    for one in made:
        assert len(one.members) == 12
        for member in one.members:
            scene = Scene(
                Factors(one.group, **member.extra["attributes"]), int(member.extra["seed"])
            )
            drawn = render(scene, 8, STYLES["clear"]).pixels
            shown = decode_image(one.images[member.image_name], one.key)
            assert np.array_equal(np.asarray(shown), drawn)
    found = read_grid_sets(open_index(tmp_path / "out", tmp_path / "index"))
    assert list(found.grids) == ["colour_background"]
    assert found.set_names == tuple(one.key for one in made)
    assert not found.left_out


def test_shuffled_sets_have_the_same_captions_and_other_pictures(oracle):
    _, plain = oracle(*SMALL, "limit=1")
    _, shuffled = oracle(*SMALL, "limit=1", "recipe.image_editor.shuffled=true", folder="shuffled")
    for one, other in zip(plain, shuffled, strict=True):
        assert [m.text for m in one.members] == [m.text for m in other.members]
        assert list(one.images.values()) != list(other.images.values())
        assert sorted(one.images.values()) == sorted(other.images.values())


def test_the_grid_has_the_labels_of_the_worlds_that_plant_them():
    [(config, _)] = compose_jobs(
        CONF, "generate", ["recipe=social_oracle"], multirun=False, command=GenerateSettings
    )
    node = {key: value for key, value in config["data"]["world"].items() if key != "_target_"}
    world, grid = WorldSettings(**node), read_grid(config["data"]["grid"])
    assert grid.subjects == SUBJECTS
    values = {name: tuple(values) for name, values in grid.attributes.items()}
    assert values == {"colour": world.colours, "background": world.backgrounds}
    assert (world.shortcut, world.skew) == ("none", 0)
