"""``recipe=social``: a grid of captions becomes sets that questions read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets
from cfaug.planning.sources import say_once, shows_world
from cfaug.run.compose import compose_jobs
from cfaug.run.generate import GenerateSettings, generate
from cfaug.social.grid_sets import read_grid_sets
from tests.run.conftest import files
from tests.test_conf import CONF

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
        overrides = [*recipe, *words, f"paths.shards={tmp_path / folder}"]
        overrides += [f"paths.worlds={tmp_path / 'worlds'}"]
        [(config, _)] = compose_jobs(
            CONF, "generate", overrides, multirun=False, command=GenerateSettings
        )
        say_once.cache_clear()
        code = generate(GenerateSettings(**config))
        said = capfd.readouterr()
        return code, json.loads(said.out.splitlines()[-1]), said.out + said.err

    return run


CAPTIONS = ("zoo=captions", "stage=captions")


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
    words = ("recipe=coco_cf", "zoo=shapescapes", "stage=captions", "data.source=null")
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
    code, summary, _ = social(*few, easy, "recipe.image_editor.steps=3")
    assert (code, summary["sets"], summary["members"]) == (0, 4, 48)
    made = list(read_sets(tmp_path / "out"))
    assert [one.key for one in made] == [
        "colour_background_ball-0", "colour_background_ball-1",
        "a_photo_of_colour_background_ball-0", "a_photo_of_colour_background_ball-1",
    ]  # fmt: skip
    for one in made:
        assert one.group == "ball"
        assert {member.label for member in one.members} == {"ball"}
        assert len(set(one.images.values())) == 12
        assert one.members[0].edit is None
        assert one.members[4].edit.kind == "colour_background"
    found = read_grid_sets(open_index(tmp_path / "out", tmp_path / "index"))
    assert found.set_names == tuple(one.key for one in made)
    grid = found.grids["colour_background"]
    assert found.prompts(grid, 0) == ["a ball", "a photo of a ball"]
    assert grid.label(["colour", "background"])[0].tolist() == [*range(12)] * 4
    assert shows_world(str(tmp_path / "out"))
    assert (tmp_path / "out" / "gallery.html").is_file()
    assert not Path(tmp_path / "worlds").exists()
