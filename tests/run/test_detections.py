"""Where objects come from is one word of ``recipe=xmai``: zoo, mentioned, file or source."""

from __future__ import annotations

import json

import pytest

from cfaug.data.shards.shards import read_sets
from cfaug.generate.annotators import DetectionsFromFile, DetectMentioned, DetectObjects
from cfaug.generate.crop_attributes import CropAttributes
from cfaug.models.task_specs import ZeroShotDetection
from cfaug.run.compose import compose_jobs
from cfaug.run.generate import GenerateSettings, build_recipe
from tests.data.layouts import images, table
from tests.scripts import load
from tests.test_conf import CONF


def annotators(*words):
    [(config, _)] = compose_jobs(
        CONF, "generate", ["recipe=xmai", *words], multirun=False, command=GenerateSettings
    )
    return build_recipe(GenerateSettings(**config)).annotators


def test_the_paper_s_zoo_finds_objects_by_name_and_attributes_on_their_crops():
    found = annotators("zoo=paper")["detections"]
    assert type(found) is DetectObjects
    assert isinstance(found.model, ZeroShotDetection)
    assert (found.model.overlap, found.model.most) == (0.3, 50)
    assert isinstance(found.attributes, CropAttributes)
    assert found.attributes.most == 1


def test_the_caption_a_file_or_the_source_stand_in_for_the_zoo():
    mentioned = annotators("zoo=paper", "detections@recipe=mentioned")["detections"]
    assert type(mentioned) is DetectMentioned
    assert isinstance(mentioned.attributes, CropAttributes)
    file = "recipe.annotators.detections.file=instances.json"
    found = annotators("zoo=paper", "detections@recipe=file", file)["detections"]
    assert type(found) is DetectionsFromFile
    assert found.file == "instances.json"
    assert annotators("zoo=paper", "detections@recipe=source") == {"detections": None}


COCO = {
    "images": [{"id": n, "file_name": f"{name}.png"} for n, name in enumerate("abc")],
    "annotations": [
        {"image_id": 0, "category_id": 1, "bbox": [0, 0, 8, 8]},
        {"image_id": 2, "category_id": 1, "bbox": [90, 0, 8, 8]},
    ],
    "categories": [{"id": 1, "name": "dog"}],
}


@pytest.mark.slow
def test_photos_captions_and_a_file_of_objects_become_sets(tmp_path, capfd):
    photos = tmp_path / "photos"
    images(photos)
    rows = [("a.png", "a dog runs"), ("b.png", "a dog sleeps"), ("c.png", "a dog sits")]
    table(photos / "captions.csv", ["image", "caption"], rows)
    (tmp_path / "instances.json").write_text(json.dumps(COCO))
    words = [
        "recipe=xmai", "zoo=captions", f"data.source={photos}", "detections@recipe=file",
        f"recipe.annotators.detections.file={tmp_path / 'instances.json'}",
        f"paths.shards={tmp_path / 'out'}", f"paths.worlds={tmp_path}",
    ]  # fmt: skip
    assert load("generate")(words) == 0
    first, second = read_sets(tmp_path / "out")  # c's box lies outside of its image
    assert first.members[0].text == "a dog runs"
    assert first.members[1].edit.kind == "insertion"
    assert first.members[1].extra["changes"][0]["box"] == [0.0, 0.0, 8.0, 8.0]
    assert [one.text for one in second.members] == ["a dog sleeps"] * 2
    summary = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert summary["rejected"] == {"invalid detections": 1}
