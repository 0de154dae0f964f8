"""Where objects come from is one word of ``recipe=xmai``: zoo, mentioned, file or source."""

from __future__ import annotations

from cfaug.generate.annotators import DetectionsFromFile, DetectMentioned, DetectObjects
from cfaug.generate.crop_attributes import CropAttributes
from cfaug.models.task_specs import ZeroShotDetection
from cfaug.run.generate import build_recipe
from cfaug.run.generate_settings import GenerateSettings
from tests.run.conftest import compose, refusal


def test_models_of_drawn_scenes_get_no_photos(script, tmp_path):
    words = ["recipe=xmai", "data.source=own.jsonl", f"paths.shards={tmp_path}", "dry_run=json"]
    said = refusal(script("generate"), words)
    assert "data.leave_out=null detections@recipe=file" in said


def annotators(*words):
    settings = GenerateSettings(**compose("generate", "recipe=xmai", *words))
    return build_recipe(settings).annotators


def test_the_paper_s_zoo_finds_objects_by_name_and_attributes_on_their_crops():
    detector = annotators("zoo=paper")["detections"]
    assert type(detector) is DetectObjects
    assert isinstance(detector.model, ZeroShotDetection)
    assert (detector.model.overlap, detector.model.most) == (0.3, 50)
    assert isinstance(detector.attributes, CropAttributes)
    assert detector.attributes.most == 1


def test_the_caption_a_file_or_the_source_stand_in_for_the_zoo():
    mentioned = annotators("zoo=paper", "detections@recipe=mentioned")["detections"]
    assert type(mentioned) is DetectMentioned
    assert isinstance(mentioned.attributes, CropAttributes)
    file = "recipe.annotators.detections.file=instances.json"
    from_file = annotators("zoo=paper", "detections@recipe=file", file)["detections"]
    assert type(from_file) is DetectionsFromFile
    assert from_file.file == "instances.json"
    assert annotators("zoo=paper", "detections@recipe=source") == {"detections": None}


def test_a_dry_run_asks_for_the_file_of_detections(script, tmp_path):
    words = ["recipe=xmai", "detections@recipe=file", f"paths.shards={tmp_path}", "dry_run=true"]
    setting = "recipe.annotators.detections.file"
    assert f"{setting} is missing: type {setting}=VALUE" in refusal(script("generate"), words)
    missing = [*words, f"{setting}={tmp_path / 'nowhere.json'}"]
    assert f"there is no file {tmp_path / 'nowhere.json'}, from which" in refusal(
        script("generate"), missing
    )
