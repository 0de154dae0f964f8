"""``data.leave_out`` and ShapeScapes-VE as sources of ``generate.py``."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import ENTAILMENT
from cfaug.data.shards.shards import read_sets
from cfaug.run.compose import compose_jobs
from cfaug.run.generate import GenerateSettings, generate
from cfaug.shapescapes.detector import read_scene, text_label
from cfaug.shapescapes.language import parse
from tests.test_conf import CONF

SMALL = ("data.world.image_size=8", "data.world.ve_test_photos=6", "data.world.id_scenes=12")


@pytest.fixture
def make(tmp_path):
    """Delete words of captions of the world, and return the sets."""

    def run(*words, folder="out", small=SMALL):
        paths = [f"paths.shards={tmp_path / folder}", f"paths.worlds={tmp_path / 'worlds'}"]
        [(config, _)] = compose_jobs(
            CONF, "generate", ["recipe=deletion", *small, "limit=12", *words, *paths],
            multirun=False, command=GenerateSettings,
        )  # fmt: skip
        assert generate(GenerateSettings(**config)) == 0
        return list(read_sets(tmp_path / folder))

    return run


def test_captions_leave_out_the_colour_and_the_oracle_judges_what_became_of_them(make):
    sets = make("data.source=shapescapes:id")
    assert len(sets) == 12
    for one in sets:
        before, after = one.members
        said = parse(before.text)
        assert (said.colour, said.background is None) == (None, False)
        factors, _ = read_scene(after.extra, one.key)
        assert one.scores["truth_0"] == 1
        for place, member in enumerate(one.members):
            label = text_label(member.text, factors)
            expected = None if label is None else float(label == "entailment")
            assert one.scores.get(f"truth_{place}") == expected


def test_every_hypothesis_is_a_source_and_keeps_its_label(make):
    sets = make("data.source=shapescapes:ve_test", "data.leave_out=null")
    assert len(sets) == 12
    assert len({one.group for one in sets}) == 4
    for one in sets:
        assert {member.label for member in one.members} == {
            ENTAILMENT[int(one.scores["entailment_0"])]
        }


def test_hypotheses_and_captions_of_others_leave_nothing_out(make, tmp_path):
    with pytest.raises(UserError, match="a hypothesis with a label"):
        make("data.source=shapescapes:ve_test")
    file = tmp_path / "captions.txt"
    file.write_text("a dog\n")
    with pytest.raises(UserError, match=r"data\.leave_out=null"):
        make(f"data.source={file}", small=())
