"""Examples of every kind of source, by text or by image, with and without their images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.detections import Attribute, Detection, detections_of
from cfaug.data.shards.shards import write_shard
from cfaug.planning.examples import ExampleSettings, open_examples
from cfaug.worlds.shapescapes import WorldSettings
from cfaug.worlds.shapescapes.drawing import render, scene_of
from cfaug.worlds.shapescapes.language import parse
from tests.data.layouts import images, jsonl, table
from tests.data.making import noise_image


def settings(source, tmp_path, **changes) -> ExampleSettings:
    paths = {"worlds": str(tmp_path / "worlds"), "cache": str(tmp_path / "cache")}
    given = {
        "source": str(source), "world": None, "extra": (), "per": "text", "images": False,
        "limit": None, "seed": 0, "paths": {**paths, "image_roots": []}, **changes,
    }  # fmt: skip
    return ExampleSettings(**given)


def find(source, tmp_path, **changes):
    return open_examples(settings(source, tmp_path, **changes))()


@pytest.fixture
def photos(tmp_path) -> Path:
    folder = tmp_path / "photos"
    images(folder)
    names = [("a", "a dog"), ("a", "it runs"), ("b", "a bus"), ("c", "two cats")]
    jsonl(folder / "captions.jsonl", [{"image": f"{n}.png", "caption": t} for n, t in names])
    return folder


def test_each_text_or_each_image_is_an_example(photos, tmp_path):
    by_text = find(photos, tmp_path)
    assert [row.texts for row in by_text] == [("a dog",), ("it runs",), ("a bus",), ("two cats",)]
    assert len({row.key for row in by_text}) == 4
    assert len({row.group for row in by_text}) == 3
    assert {row.image for row in by_text} == {None}
    by_image = find(photos, tmp_path, per="image", images=True)
    assert [row.texts for row in by_image] == [("a dog", "it runs"), ("a bus",), ("two cats",)]
    assert [row.image.read() for row in by_image] == [
        (photos / f"{name}.png").read_bytes() for name in "abc"
    ]
    assert [row.group for row in by_image] == list(dict.fromkeys(row.group for row in by_text))
    limited = find(photos, tmp_path, per="image", images=True, limit=2)
    assert [row.key for row in limited] == [row.key for row in by_image[:2]]


def test_what_generation_wrote_is_a_source_with_all_that_is_known(tmp_path):
    members = (
        Member("a cat", "0", "s", extra={"boxes": [1, 2]}, label="cat"),
        Member("a dog", "1", "s", Edit("noun", "cat", "dog"), extra={"age": 3}),
    )
    made = CounterfactualSet("k", "g", members, {"0": noise_image(0), "1": noise_image(1)})
    (tmp_path / "s").mkdir()
    write_shard([made], tmp_path / "s", 0)
    first, second = find(tmp_path / "s", tmp_path, images=True)
    assert (first.group, second.group) == ("g", "g")
    assert (first.label, dict(first.extra)["boxes"]) == ("cat", [1, 2])
    assert dict(second.extra)["age"] == 3


WORLD = {
    "_target_": "cfaug.worlds.shapescapes.WorldSettings", "counterfactual_pairs": 6,
    "real_scenes": 8, "unbiased_scenes": 8, "id_scenes": 4, "ood_pairs": 4, "seed": 5,
}  # fmt: skip


def test_of_the_world_s_pairs_the_unedited_are_taken(tmp_path):
    plain = find("shapescapes:counterfactual", tmp_path, world=WORLD, limit=5)
    shown = find("shapescapes:counterfactual", tmp_path, world=WORLD, limit=5, images=True)
    assert len(plain) == 5
    assert [row.texts for row in shown] == [row.texts for row in plain]
    assert [row.group for row in shown] == [row.group for row in plain]
    assert all(row.image.read()[:4] == b"\x89PNG" for row in shown)
    with pytest.raises(UserError, match=r"needs data\.world"):
        find("shapescapes:counterfactual", tmp_path)


def test_a_list_of_captions_is_a_file_and_anything_else_a_folder(photos, tmp_path):
    file = tmp_path / "list.csv"
    file.write_text("image_id,caption,url\n7,a dog,x\n7,it runs,y\n8,a bus,z\n")
    assert [row.key for row in find(file, tmp_path, extra=["url"], limit=2)] == ["7-0", "7-1"]
    rows = find(file, tmp_path, extra=["url"], per="image", limit=1)
    assert [(row.key, row.texts, dict(row.extra)) for row in rows] == [
        ("7", ("a dog", "it runs"), {"url": "x"})
    ]
    with pytest.raises(UserError, match=r"list\.pdf"):
        find(tmp_path / "list.pdf", tmp_path)
    with pytest.raises(UserError, match="say which examples"):
        open_examples(replace(settings("x", tmp_path), source=None))


def test_photos_of_the_world_have_labels_and_what_the_oracle_needs(tmp_path):
    node = {
        "_target_": "cfaug.worlds.shapescapes.WorldSettings", "id_scenes": 12,
        "image_size": 64, "seed": 3,
        "style": "clear", "shortcut": "all", "domains": ["photo", "sketch", "mosaic"],
    }  # fmt: skip
    examples = find("shapescapes:id", tmp_path, world=node, per="image", images=True, limit=10)
    assert len(examples) == len({example.group for example in examples}) == 10
    world = WorldSettings(**{key: value for key, value in node.items() if key != "_target_"})
    assert {scene_of(example.extra).factors.domain for example in examples} == set(world.domains)
    for example in examples:
        scene = scene_of(example.extra)
        assert example.label == scene.factors.subject
        assert parse(example.text).agrees(scene.factors)
        drawn = render(scene, 64, world.drawing_style()).pixels
        assert (np.asarray(decode_image(example.image.read(), "x")) == drawn).all()
    same = find("shapescapes:id", tmp_path, world=node, per="image", images=True)
    assert same[:10] == examples


def test_a_list_about_photos_is_a_source_itself(tmp_path):
    folder = tmp_path / "ve"
    images(folder, ending="jpg")
    pairs = [
        {"gold_label": "neutral", "pairID": f"a.jpg#{n}", "Flickr30K_ID": "a",
         "sentence1": "a premise", "sentence2": text}
        for n, text in enumerate(["a dog", "a cat"])
    ]  # fmt: skip
    jsonl(folder / "snli_ve_dev.jsonl", pairs)
    examples = find(folder / "snli_ve_dev.jsonl", tmp_path, images=True)
    assert [(o.key, o.group, o.text, o.label) for o in examples] == [
        ("a_0", "a.jpg", "a dog", "neutral"), ("a_1", "a.jpg", "a cat", "neutral"),
    ]  # fmt: skip
    assert examples[0].extra["premise"] == "a premise"
    assert examples[0].image.read() == (folder / "a.jpg").read_bytes()
    assert [o.key for o in find(f"{folder}:dev", tmp_path, limit=1)] == ["a_0"]


def test_detections_in_a_list_of_captions_are_the_example_s(tmp_path):
    folder = tmp_path / "own"
    images(folder)
    listed = [{"label": "dog", "box": [0, 0, 4, 4], "attributes": ["wet"]}]
    jsonl(folder / "captions.jsonl", [{"image": "a.png", "caption": "a dog", "detections": listed}])
    [example] = find(folder, tmp_path, images=True)
    assert detections_of(example) == (
        Detection("dog", None, (0.0, 0.0, 4.0, 4.0), (Attribute("wet"),)),
    )


def test_of_modified_captions_the_originals_are_the_examples(tmp_path):
    folder = tmp_path / "modified"
    images(folder, ending="jpg")
    columns = ["file", "original", "modified"]
    table(folder / "eda.csv", columns, [["a.jpg", "a dog ", "a wet dog"], ["b.jpg", "b", "b c"]])
    for with_images in (True, False):
        rows = find(folder / "eda.csv", tmp_path, images=with_images, limit=1)
        assert [(o.text, o.group, o.image is not None) for o in rows] == [
            ("a dog", "a.jpg", with_images)
        ]
    table(folder / "two.csv", columns, [["a.jpg", "a dog", "x"], ["a.jpg", "it runs", "y"]])
    [both] = find(folder / "two.csv", tmp_path, per="image")
    assert both.texts == ("a dog", "it runs")
    columns = ["label", "original", "hypothesis", "modified"]
    table(folder / "ve.csv", columns, [["neutral", "a premise", "a dog", "a wet dog"]] * 2)
    for with_images in (True, False):  # this one names no photos, as a list of captions does not
        [row] = find(folder / "ve.csv", tmp_path, images=with_images)
        assert (row.text, row.label, row.extra["premise"]) == ("a dog", "neutral", "a premise")
        assert row.image is None
