"""Folders made before recipes were one object are those of the same settings today."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from cfaug.generate.folder import read_record, settings_hash
from cfaug.run.generate import UNRECORDED, GenerateSettings, describe_settings
from tests.test_conf import CONF, compose_jobs

OLD = Path(__file__).parent.parent / "generate" / "record_before_recipes.json"
"""What ``generate.py limit=12`` wrote then."""

BESIDE = ("data.source (number)", "data.source (content)", "shards.sets_per_shard")


def test_a_record_of_then_has_the_settings_of_the_same_command_now(tmp_path):
    shutil.copy(OLD, tmp_path / "run.json")
    record = read_record(tmp_path)
    [(config, _)] = compose_jobs(CONF, "generate", [], multirun=False, command=GenerateSettings)
    about = describe_settings(GenerateSettings(**config))
    editor = {"filler": "ShapeScapes vocabulary", "tagger": "ShapeScapes vocabulary"}
    captions = {key: value for key, value in record.captions.items() if key not in BESIDE}
    assert captions == {**about.text_settings, **editor}
    assert set(BESIDE) < set(record.captions)
    others = {"seed", "edits", "shards.batch", "shards.image_format"}
    images = {key: value for key, value in record.images.items() if key not in others}
    assert images == about.image_settings
    assert record.images["edits"] == settings_hash(record.captions)


def test_a_record_of_then_without_a_second_encoder_or_images(tmp_path):
    """As ``zoo=paper`` wrote it."""
    old = json.loads(OLD.read_text())
    images = {k: v for k, v in old["images"].items() if not k.startswith("scorer.report")}
    images |= {"scorer.report": None, "finish": None}
    (tmp_path / "run.json").write_text(json.dumps({**old, "images": images}))
    found = read_record(tmp_path).images
    assert found["recipe.report.report"] is None
    assert not any(key.startswith("recipe.report.report.") for key in found)
    assert found["recipe.postprocess"] is None
    (tmp_path / "run.json").write_text(json.dumps({**old, "images": None}))
    assert read_record(tmp_path).images is None


def test_a_record_of_now_is_left_alone(tmp_path):
    shutil.copy(OLD, tmp_path / "run.json")
    record = read_record(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps(vars(record)))
    assert read_record(tmp_path) == record


def test_a_folder_of_the_oracle_is_that_of_before_there_were_skewed_worlds():
    def recorded(*words):
        [(config, _)] = compose_jobs(
            CONF, "generate", ["recipe=lance_oracle", *words], multirun=False,
            command=GenerateSettings,
        )  # fmt: skip
        settings = describe_settings(GenerateSettings(**config)).image_settings
        return {key for key in settings if key.startswith("recipe.image_editor.world.")}

    world = "recipe.image_editor.world."
    before = recorded()
    assert {f"{world}shortcut", f"{world}domains", f"{world}seed"} <= before
    assert not {f"{world}{name}" for name in UNRECORDED} & before
    changed = recorded("data.world.skew=0.5", "data.world.colours=[red,blue]")
    assert changed - before == {f"{world}skew", f"{world}colours"}
