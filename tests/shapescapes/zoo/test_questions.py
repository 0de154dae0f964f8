"""ShapeScapes-VQA as files: what is read back is what was asked, whatever the number of pairs."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.sources.question_sets import read_questions
from cfaug.shapescapes.question_parts import SCENE, make_questions
from cfaug.shapescapes.settings import STYLES, WorldSettings
from cfaug.shapescapes.world import gathering_of, render_gathering
from cfaug.shapescapes.zoo.vlm import main_questions
from tests.shapescapes.read_gatherings import answer


def write(folder, *given):
    assert main_questions([f"out={folder}", "image_size=32", "seed=5", *given]) == 0
    return read_questions(folder)


def test_a_file_has_the_questions_and_pictures_of_its_part(tmp_path):
    found = write(tmp_path / "set", "pairs=7")
    made = list(make_questions(WorldSettings(seed=5, image_size=32, style="drawing",
                                             vqa_test_pairs=7), "test"))  # fmt: skip
    assert [(o.key, o.group, o.category, o.questions) for o in found] == [
        (o.key, o.group, o.category, o.questions) for o in made
    ]
    for one in found:
        scene = gathering_of(one.extra[SCENE])
        pixels = render_gathering(scene, 32, STYLES["drawing"])
        assert (np.asarray(decode_image(one.image.read(), "it")) == pixels).all()
        for question in one.questions:
            assert answer(question.text, one.extra[SCENE]) == question.right


def test_more_pairs_begin_with_those_of_fewer_and_parts_differ(tmp_path):
    few, many = (write(tmp_path / str(n), f"pairs={n}") for n in (2, 4))
    lines = [(tmp_path / str(n) / "questions.jsonl").read_text().splitlines() for n in (2, 4)]
    assert lines[0] == lines[1][: len(few)]
    assert len(many) == 8
    train = write(tmp_path / "train", "pairs=2", "part=train")
    assert [one.extra for one in train] != [one.extra for one in few]


@pytest.mark.parametrize("given", ["part=ve", "pairs=0", "style=oil"])
def test_a_setting_that_is_invalid_is_named_and_nothing_is_written(tmp_path, given):
    with pytest.raises(
        UserError, match=f"{given}( should be a whole number of at least 1|: choose from)"
    ):
        main_questions([f"out={tmp_path / 'set'}", given])
    assert not (tmp_path / "set").exists()
