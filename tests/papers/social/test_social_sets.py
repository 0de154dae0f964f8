"""recipe=social and social_oracle: a grid of captions becomes sets that questions read."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from cfaug.core.errors import UserError, say_once
from cfaug.core.pixels import decode_image
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets
from cfaug.editing.caption_grids import read_grid
from cfaug.imaging.clip import LabelScorer
from cfaug.imaging.prompt_to_prompt import SafetyChecker
from cfaug.papers.social.grid_sets import read_grid_sets
from cfaug.planning.sources import shows_world
from cfaug.run.generate import build_recipe, generate
from cfaug.run.generate_settings import GenerateSettings
from cfaug.worlds.shapescapes.drawing import Scene, render
from cfaug.worlds.shapescapes.settings import STYLES, SUBJECTS, Factors, WorldSettings
from tests.run.conftest import compose, files, make_sets

GRID = """
subject_type: job
subjects: [nurse, umpire, Nurse]
prefixes: ["", A photo of]
template: "{prefix} a {age} {subject}"
attributes: {age: [old, young]}
"""


@pytest.fixture
def social(tmp_path, capfd):
    """Run ``recipe=social`` and return its exit code, summary and what it said."""

    def run(*words, folder="out"):
        recipe = [] if any(word.startswith("recipe=") for word in words) else ["recipe=social"]
        paths = [f"paths.shards={tmp_path / folder}", f"paths.worlds={tmp_path / 'worlds'}"]
        config = compose("generate", *recipe, *words, *paths)
        say_once.cache_clear()
        code = generate(GenerateSettings(**config))
        said = capfd.readouterr()
        return code, json.loads(said.out.splitlines()[-1]), said.out + said.err

    return run


CAPTIONS = ("zoo=captions", "stage=captions")


@pytest.mark.slow
def test_captions_need_no_model_and_parts_make_the_same(social, tmp_path):
    few = (*CAPTIONS, "limit=6", "shards.sets_per_shard=2")
    code, summary, said = social(*few)
    assert (code, summary["shards"], summary["sets"], summary["members"]) == (0, 3, 6, 72)
    assert "grid race_gender: 8,688 captions in 724 sets of 12" in said
    assert "81 duplicated subjects are left out" in said
    for part in (1, 0):
        assert social(*few, f"part={part}", "parts=2", folder="parts")[0] == 0
    assert files(tmp_path / "parts") == files(tmp_path / "out")
    _, summary, said = social(*few, "data.keep_duplicates=true", folder="kept")
    assert "12,528 captions in 1,044 sets" in said
    assert "left out" not in said


def test_a_grid_of_ones_own_is_known_by_its_content(social, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(GRID)
    grid = f"data.grid={file}"
    assert social(*CAPTIONS, grid)[1]["sets"] == 4
    moved = tmp_path / "elsewhere" / "mine.yaml"
    moved.parent.mkdir()
    file.rename(moved)
    _, summary, said = social(*CAPTIONS, f"data.grid={moved}")
    assert summary["sets"] == 4
    assert "nothing to do" in said
    moved.write_text(GRID.replace("old, young", "young, old"))
    with pytest.raises(UserError, match="overwrite=true"):
        social(*CAPTIONS, f"data.grid={moved}")


def test_what_names_no_examples_or_too_many(social):
    with pytest.raises(UserError, match=r"data.source=a.txt and data.grid=race_gender both name"):
        social(*CAPTIONS, "data.source=a.txt")
    with pytest.raises(UserError, match=r"or data.grid=NAME or FILE.yaml"):
        social(*CAPTIONS, "data.grid=null")
    with pytest.raises(UserError, match=r"is read with data.grid=..."):
        social(*CAPTIONS, "data.grid=null", "data.keep_duplicates=true", "data.source=a.txt")


def test_a_grid_is_for_an_editor_that_takes_grids(social):
    words = ("recipe=substitution", "zoo=shapescapes", "stage=captions", "data.source=null")
    with pytest.raises(UserError, match=r"a Substitution, takes captions.*recipe=social"):
        social(*words, "data.grid=race_gender")


def test_a_list_of_captions_is_no_grid(social, tmp_path):
    (tmp_path / "captions.txt").write_text("a doctor\n")
    source = f"data.source={tmp_path / 'captions.txt'}"
    code, summary, said = social(*CAPTIONS, "data.grid=null", source)
    assert (code, summary["failed"], summary["sets"]) == (1, 1, 0)
    assert "'a doctor' is not a grid of attributes: name one with data.grid=NAME" in said


@pytest.mark.slow
def test_images_of_the_embedded_world(social, tmp_path):
    few = ("zoo=shapescapes", "limit=2", "recipe.draws.candidates=2", "recipe.selection.keep=2")
    easy = "recipe.selection.minimum={sim_0: -1, sim_1: -1}"
    code, summary, _ = social(*few, easy, "recipe.image_editor.steps=2")
    assert (code, summary["sets"], summary["members"]) == (0, 4, 48)
    made = list(read_sets(tmp_path / "out"))
    assert [grid_set.key for grid_set in made] == [
        "colour_background_ball-0", "colour_background_ball-1",
        "a_photo_of_colour_background_ball-0", "a_photo_of_colour_background_ball-1",
    ]  # fmt: skip
    for grid_set in made:
        assert grid_set.group == "ball"
        assert {member.label for member in grid_set.members} == {"ball"}
        assert len(set(grid_set.images.values())) == 12
        assert grid_set.members[0].edit is None
        assert grid_set.members[4].edit.kind == "colour_background"
    grid_sets = read_grid_sets(open_index(tmp_path / "out", tmp_path / "index"))
    assert grid_sets.set_names == tuple(grid_set.key for grid_set in made)
    grid = grid_sets.grids["colour_background"]
    assert grid_sets.prompts(grid, 0) == ["a ball", "a photo of a ball"]
    assert grid.label(["colour", "background"])[0].tolist() == [*range(12)] * 4
    assert shows_world(str(tmp_path / "out"))
    assert (tmp_path / "out" / "gallery.html").is_file()
    assert not Path(tmp_path / "worlds").exists()


# The image side of ``recipe=social``: its numbers, its options, and what it writes of yields.


def settings_of(*words):
    return GenerateSettings(**compose("generate", "recipe=social", *words))


def test_the_paper_s_numbers() -> None:
    recipe = build_recipe(settings_of("zoo=paper"))
    draws, select = recipe.draws, recipe.selection
    assert (draws.candidates, draws.p2p_threshold, draws.p_law) == (100, (0.1, 0.9), "uniform")
    assert select.names == ("sim_0", "sim_1", "sim_direction")
    assert (select.keep, select.per) == (10, "set")
    # An image below .2 rejects a set, whatever its mean; sets are ranked by their mean direction.
    good = {"sim_0": 0.3, "sim_1": (0.2, 0.4), "sim_direction": (0.1, 0.3)}
    assert select.reject(good) == ""
    assert select.reject({**good, "sim_1": (0.19, 0.9)}) == "caption_1"
    assert select.pool_all(good)["sim_direction"] == pytest.approx(0.2)
    assert recipe.image_editor.steps == 100
    assert recipe.image_editor.safety is None
    assert "labels" not in recipe.scorers


def test_a_safety_checker_and_a_second_encoder_are_options() -> None:
    recipe = build_recipe(
        settings_of(
            "zoo=paper", "+recipe_part@recipe=found_labels",
            "recipe.image_editor.safety=${zoo.safety_checker}",
        )
    )  # fmt: skip
    assert isinstance(recipe.image_editor.safety, SafetyChecker)
    assert isinstance(recipe.scorers["labels"], LabelScorer)
    assert recipe.selection.names == ("sim_0", "sim_1", "label_0", "label_1", "sim_direction")
    scores = {"sim_0": 1, "sim_1": (1,), "sim_direction": (1,), "label_0": 0, "label_1": (-0.01,)}
    assert recipe.selection.reject(scores) == "label"
    recipe.pipeline("png")  # every score that is asked for is given


@pytest.mark.slow
def test_a_set_is_drawn_in_rounds_and_counted(tmp_path, capfd) -> None:
    settings = settings_of(
        "zoo=shapescapes", "limit=2", "recipe.image_editor.steps=2", "recipe.draws.candidates=2",
        "recipe.draws.p_law=adaptive", "+recipe_part@recipe=found_labels",
        "recipe.selection.minimum={sim_0: -1, sim_1: 0.3, label_0: -1, label_1: -1}",
        f"paths.shards={tmp_path / 'out'}", f"paths.worlds={tmp_path / 'worlds'}",
    )  # fmt: skip
    assert generate(settings) == 0
    said = capfd.readouterr()
    summary = json.loads(said.out.splitlines()[-1])
    counts = json.loads((tmp_path / "out" / "card.json").read_text())["yields"]
    of = counts["of"]["colour_background"]
    assert (counts["by"], of["sets"], of["candidates"]) == ("grid", 2, 4)
    assert of["kept"] == summary["sets"]
    assert f"colour_background             2            {of['without']}           4" in said.err
    rows = pq.read_table(tmp_path / "out" / "00000.parquet").to_pylist()
    assert {row["p_density"] for row in rows if row["candidate"] == 0} == {1.0}
    assert all(-1 <= row["label_1"] <= 1 for row in rows)


# ``recipe=social_oracle``: perfect sets of a grid, in the form that questions read.


@pytest.fixture
def oracle(tmp_path):
    """Run the recipe, and return the sets."""

    return partial(make_sets, tmp_path, "recipe=social_oracle")


SMALL = ("recipe.image_editor.image_size=8", "recipe.draws.candidates=2")


@pytest.mark.slow
def test_sets_are_the_worlds_scenes_and_read_as_a_grid(oracle, tmp_path):
    made = oracle(*SMALL, "limit=4")
    assert [grid_set.group for grid_set in made] == ["ball"] * 6 + ["cube"] * 2
    for grid_set in made:
        assert len(grid_set.members) == 12
        for member in grid_set.members:
            scene = Scene(
                Factors(grid_set.group, **member.extra["attributes"]), int(member.extra["seed"])
            )
            drawn = render(scene, 8, STYLES["clear"]).pixels
            shown = decode_image(grid_set.images[member.image_name], grid_set.key)
            assert np.array_equal(np.asarray(shown), drawn)
    grid_sets = read_grid_sets(open_index(tmp_path / "out", tmp_path / "index"))
    assert list(grid_sets.grids) == ["colour_background"]
    assert grid_sets.set_names == tuple(grid_set.key for grid_set in made)
    assert not grid_sets.left_out


@pytest.mark.slow
def test_shuffled_sets_have_the_same_captions_and_other_pictures(oracle):
    plain = oracle(*SMALL, "limit=1")
    shuffled = oracle(*SMALL, "limit=1", "recipe.image_editor.shuffled=true", folder="shuffled")
    for plain_set, shuffled_set in zip(plain, shuffled, strict=True):
        assert [m.text for m in plain_set.members] == [m.text for m in shuffled_set.members]
        assert list(plain_set.images.values()) != list(shuffled_set.images.values())
        assert sorted(plain_set.images.values()) == sorted(shuffled_set.images.values())


def test_the_grid_has_the_labels_of_the_worlds_that_plant_them():
    data = compose("generate", "recipe=social_oracle")["data"]
    node = {key: value for key, value in data["world"].items() if key != "_target_"}
    world, grid = WorldSettings(**node), read_grid(data["grid"])
    assert grid.subjects == SUBJECTS
    values = {name: tuple(values) for name, values in grid.attributes.items()}
    assert values == {"colour": world.colours, "background": world.backgrounds}
    assert (world.shortcut, world.skew) == ("none", 0)
