"""``generate.py recipe=xmai``: insertions into captions of the world, and of texts alone."""

from __future__ import annotations

import json

import pytest

from cfaug.core.errors import UserError
from cfaug.data.shards.shards import read_sets
from cfaug.run.arguments import sweep_overrides
from cfaug.run.compose import compose_jobs
from cfaug.run.generate import GenerateSettings, generate
from tests.test_conf import CONF, ROOT

SMALL = (
    "data.source=shapescapes:id",
    "data.world.image_size=16",
    "data.world.id_scenes=12",
    "limit=12",
)


@pytest.fixture
def make(tmp_path):
    """Run the recipe, and return the folder of its shards."""

    def run(*words, folder="out"):
        paths = [f"paths.shards={tmp_path / folder}", f"paths.worlds={tmp_path / 'worlds'}"]
        [(config, _)] = compose_jobs(
            CONF, "generate", ["recipe=xmai", *words, *paths],
            multirun=False, command=GenerateSettings,
        )  # fmt: skip
        assert generate(GenerateSettings(**config)) == 0
        return tmp_path / folder

    return run


def test_captions_of_the_world_get_words_of_their_photos(make):
    found = list(read_sets(make(*SMALL)))
    assert len(found) == 12
    inserted = 0
    for one in found:
        before, after = one.members
        assert len(one.images) == 1
        assert before.image_name == after.image_name
        assert before.edit is None
        for change in after.extra["changes"]:
            assert after.edit.kind == "insertion"
            assert after.text[change["start"] :].startswith(change["word"])
            assert change["dissimilarity"] is not None
            inserted += 1
        assert {"truth_0", "truth_1"} <= set(one.scores)
    assert inserted >= 12


@pytest.mark.slow
def test_kept_answers_change_no_byte(make):
    tars = [
        (make(*SMALL, *words, folder=folder) / "00000.tar").read_bytes()
        for folder, words in (
            ("first", ("recipe.editor.cache=${paths.cache}",)),
            ("again", ("recipe.editor.cache=${paths.cache}",)),
            ("alone", ()),
            ("chunks", ("recipe.editor.chunk=5",)),
        )
    ]
    assert tars[0] == tars[1] == tars[2] == tars[3]


def test_texts_alone_need_no_clip_and_say_what_was_blocked(make, tmp_path):
    rows = [
        {"text": "A man with a dog on a table", "detections": [
            {"label": name, "attributes": ["young", "red"]} for name in ("man", "dog", "table")]},
        {"text": "a street", "detections": []},
    ]  # fmt: skip
    source = tmp_path / "captions.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("zoo=captions", "stage=captions", f"data.source={source}", "data.extra=[detections]",
             "recipe.editor.k=1", "detections@recipe=source")  # fmt: skip
    folder = make(*words, "recipe.editor.weights=[1,0,0]")
    lines = (folder / "captions" / "00000.jsonl").read_text().splitlines()
    first, second = (json.loads(line)["set"]["details"][1] for line in lines)
    assert [one["object"] for one in first["changes"]] == ["man", "dog", "table"]
    assert second == {"changes": [], "reason": "no_detections"}
    report = (folder / "captions" / "report.md").read_text()
    assert ("blocked" in report) == ("blocked" in first)
    with pytest.raises(UserError, match=r"lambda_3, 5 .*image_text is missing"):
        make(*words, "recipe.editor.weights=[1,5,5]", folder="wrong")


@pytest.mark.parametrize("word", ["normalise=sum", "context=alone", "fallback=never"])
def test_every_choice_is_a_setting(word):
    [(config, _)] = compose_jobs(
        CONF, "generate", ["recipe=xmai", f"recipe.editor.{word}"], multirun=False,
        command=GenerateSettings,
    )  # fmt: skip
    name, _, value = word.partition("=")
    assert config["recipe"]["editor"][name] == value


@pytest.mark.slow
@pytest.mark.parametrize("name", ["xmai_lambdas", "xmai_k", "xmai_thresholds"])
def test_a_sweep_has_a_folder_for_every_setting(name):
    words = sweep_overrides(ROOT / "sweeps" / f"{name}.yaml", "generate")
    jobs = compose_jobs(CONF, "generate", words, multirun=True, command=GenerateSettings)
    folders = [config["paths"]["shards"] for config, _ in jobs]
    assert len(set(folders)) == len(jobs) > 2
    assert all(one.startswith(f"shards/{name}-shapescapes/") for one in folders)
