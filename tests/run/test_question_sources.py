"""What benchmark.data names as questions: parts of the world, in its style and seed, and files."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.data.mixture.settings import DataSettings
from cfaug.planning.sources import open_questions
from cfaug.run.evaluation_data import DataOpener
from cfaug.shapescapes.question_parts import make_questions
from cfaug.shapescapes.settings import WorldSettings
from cfaug.shapescapes.zoo.questions import main

WORLD = WorldSettings(image_size=16, style="drawing", vqa_test_pairs=6)
SEEDED = WorldSettings(seed=7, image_size=16, style="drawing", vqa_test_pairs=6)


def test_a_part_takes_the_seed_of_the_data_and_the_style_of_its_name():
    found = open_questions("shapescapes_vqa:test", WORLD, 7)
    assert found == list(make_questions(SEEDED, "test"))
    foggy = open_questions("shapescapes_vqa:test@fog", WORLD, 7)
    assert [one.questions for one in foggy] == [one.questions for one in found]
    assert foggy[0].image.read() != found[0].image.read()


def test_runs_of_one_world_share_its_questions_and_a_file_needs_no_world(tmp_path):
    main([f"out={tmp_path / 'set'}", "pairs=1", "image_size=16"])
    opener = DataOpener(tmp_path, tmp_path)
    seven, eight = (DataSettings(None, None, seed=seed, world=WORLD) for seed in (7, 8))
    name, file = "shapescapes_vqa:test", str(tmp_path / "set" / "questions.jsonl")
    assert opener.questions(name, seven) is opener.questions(name, seven)
    assert opener.questions(name, seven) != opener.questions(name, eight)
    assert opener.questions(file, seven) is opener.questions(file, DataSettings(None, None))
    assert len(opener.questions(file, seven)) == 2


@pytest.mark.parametrize(
    ("name", "world", "match"),
    [
        ("shapescapes_vqa:test", None, "data=shapescapes"),
        ("shapescapes_vqa:ve", WORLD, "choose from train, test"),
        ("shapescapes_vqa:test@oil", WORLD, "style=oil: choose from drawing, photo, negative,"),
    ],
)
def test_what_cannot_be_opened_is_said(name, world, match):
    with pytest.raises(UserError, match=match):
        open_questions(name, world, 0)
