"""Annotators of objects: attributes on crops, nouns of the caption, and files in three forms."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Annotator, DualEncoder
from cfaug.core.types import Example
from cfaug.data.detections import Detection, detections_of
from cfaug.generate.annotation import AnnotationStage
from cfaug.generate.annotators import DetectionsFromFile, DetectMentioned, DetectObjects
from cfaug.generate.crop_attributes import CropAttributes
from cfaug.generate.failures import Rejection
from cfaug.models.specs import HFClip
from cfaug.models.task_specs import ZeroShotDetection
from tests.generate.photos import photo
from tests.models import tiny


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    shelf = tmp_path_factory.mktemp("weights")
    words = shelf / "attributes.txt"
    words.write_text("red\nblue\ngreen\non\n")
    names = shelf / "names.txt"
    names.write_text("ball\ncube\n")
    saved = tiny.save_all(shelf, "owlv2", "dual")
    return {
        "clip": HFClip(str(saved["dual"])),
        "words": str(words),
        "detector": ZeroShotDetection(
            str(saved["owlv2"]), vocabulary=str(names), threshold=0.05, most=4
        ),
    }


def crops(models, **settings):
    return CropAttributes(models["clip"], models["words"], device="cpu", **settings)


def image(seed, width=40, height=32):
    return decode_image(photo(seed, width, height).read(), "it")


BOXES = [(4.0, 3.0, 20.0, 30.0), (-9.0, -2.0, 12.5, 9.0), (31.2, 8.7, 55.0, 40.0)]


def test_attributes_are_ranked_by_the_encoder_on_each_crop_alone(models):
    detected = [
        [Detection("ball", 0.9, BOXES[0]), Detection("cube", 0.8, BOXES[1])],
        [],
        [Detection("ball", None, BOXES[2])],
    ]
    images = [image(0), image(1), image(2)]
    ranked = crops(models, most=2, padding=0.0, chunk=2).add(images, detected)
    model = models["clip"].load(DualEncoder)
    words = ["red", "blue", "green", "on"]
    windows = {BOXES[0]: (4, 3, 20, 30), BOXES[1]: (0, 0, 13, 9), BOXES[2]: (31, 8, 40, 32)}
    seen = set()
    for picture, objects, before in zip(images, ranked, detected, strict=True):
        assert [replace(detection, attributes=()) for detection in objects] == before
        for detection in objects:
            crop = model.transform(picture.crop(windows[detection.box]))
            with torch.no_grad():
                seeing = model.encode_image(torch.from_numpy(crop.copy())[None])[0]
                logits = []
                for word in words:
                    tokens = model.tokenize([f"a photo of a {word} {detection.label}"])
                    saying = model.encode_text(tokens)[0]
                    cosine = seeing @ saying / (seeing.norm() * saying.norm())
                    logits.append(float(cosine * model.logit_scale()))
            shares = np.exp(logits) / np.exp(logits).sum()
            best = sorted(range(4), key=lambda i: -shares[i])[:2]
            assert [a.name for a in detection.attributes] == [words[i] for i in best]
            assert [a.score for a in detection.attributes] == pytest.approx(shares[best], abs=1e-4)
            seen.add(detection.attributes[0].name)
    assert len(seen) > 1 or len({o.attributes for row in ranked for o in row}) == 3


def test_a_padded_box_shows_more_and_what_has_no_crop_has_no_attributes(models):
    far = Detection("ball", 0.5, (90.0, 90.0, 95.0, 99.0))
    known = Detection("ball", 0.5, BOXES[0])
    named = crops(models).add([image(0)], [[known, far, Detection("cube")]])[0]
    assert [len(detection.attributes) for detection in named] == [3, 0, 0]
    kept = crops(models).add([image(0)], [named])[0]
    assert kept == named  # those that are known are not asked for again
    tight = crops(models, padding=0.0).add([image(0)], [[known]])[0]
    assert tight[0].attributes != named[0].attributes
    with pytest.raises(UserError, match="once each"):
        crops(models, template="a {attribute}")


def test_a_detector_with_attributes_is_an_annotator_that_is_asked_once(models, tmp_path):
    plain = DetectObjects(models["detector"], device="cpu")
    asked = replace(plain, attributes=crops(models))
    assert isinstance(asked, Annotator)
    given = [Example(f"e{n}", f"g{n}", ("a ball",), photo(n)) for n in range(3)]
    attempt = AnnotationStage([asked], tmp_path, batch=2).annotate(given)
    without = AnnotationStage([plain], batch=2).annotate(given)
    for place, annotated in attempt.done.items():
        objects = detections_of(annotated)
        assert objects
        assert all(len(o.attributes) == 3 for o in objects)
        bare = detections_of(without.done[place])
        assert [replace(o, attributes=()) for o in objects] == list(bare)
    again = AnnotationStage([asked], tmp_path, batch=2).annotate(given)
    assert again == attempt
    fewer, shipped = crops(models, most=1), replace(crops(models), vocabulary=None)
    every = [plain, asked, *(replace(asked, attributes=ranker) for ranker in (fewer, shipped))]
    assert len({annotator.identity() for annotator in every}) == 4
    assert set(asked.describe()) == {"detections", "detections.attributes"}


class NounList:
    """A tagger that knows a few nouns."""

    def tag(self, sentences):
        nouns = {"ball", "beach", "cube", "fire", "hydrant", "2"}
        return [["NN" if word in nouns else "X" for word in words] for words in sentences]

    def describe(self):
        return {"tagger": "a few nouns"}


def test_nouns_of_the_caption_are_looked_for_by_name(models):
    asked = DetectMentioned(models["detector"], device="cpu", tagger=NounList())
    assert asked.find_nouns(("A red ball on the beach, near 2 fire hydrant.", "the ball")) == (
        "ball", "beach", "fire hydrant",
    )  # fmt: skip
    given = [
        Example("a", "g", ("a red ball on the beach",), photo(0)),
        Example("b", "g", ("a cube",), photo(0)),
        Example("c", "g", ("it is red",), photo(0)),
    ]
    done = AnnotationStage([asked]).annotate(given).done
    labels = {
        place: {o.label for o in detections_of(annotated)} for place, annotated in done.items()
    }
    assert labels[0] <= {"ball", "beach"}
    assert labels[0]
    assert labels[1] == {"cube"}
    assert labels[2] == set()
    plain = DetectObjects(models["detector"], device="cpu")
    assert asked.identity() != plain.identity()
    with pytest.raises(UserError, match="needs a tagger"):
        DetectMentioned(models["detector"], device="cpu")


COCO = {
    "images": [
        {"id": 7, "file_name": "000000000007.jpg", "width": 40, "height": 32},
        {"id": 8, "file_name": "sub/dog.jpg", "width": 40, "height": 32},
        {"id": 9, "file_name": "empty.jpg"},
    ],
    "annotations": [
        {"image_id": 7, "category_id": 1, "bbox": [4, 3, 10, 10], "id": 1},
        {"image_id": 7, "category_id": 2, "bbox": [30.5, 3, 20, 40], "id": 2, "score": 0.5},
        {"image_id": 8, "category_id": 2, "bbox": [0, 0, 5, 5], "id": 3},
    ],
    "categories": [{"id": 1, "name": "Dog"}, {"id": 2, "name": "fire hydrant"}],
}


def write(file, content):
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(file)


def example(group, key="a", **changes):
    return Example(key, group, ("a dog",), **changes)


def found_by(annotator, *given):
    return AnnotationStage([annotator]).annotate(given)


def test_coco_instances_name_images_by_id_file_or_stem_and_boxes_are_cut(tmp_path):
    small = {"image_id": 7, "category_id": 1, "bbox": [1, 1, 0.25, 0.5], "id": 4}
    content = {**COCO, "annotations": [*COCO["annotations"], small]}
    asked = DetectionsFromFile(write(tmp_path / "instances.json", content))
    assert isinstance(asked, Annotator)
    given = [example(g, f"e{n}") for n, g in enumerate(["7", "sub/dog.jpg", "photos/dog", "9"])]
    done = found_by(asked, *given).done
    first, second, tiny_one = detections_of(done[0])
    assert tiny_one.box == (1.0, 1.0, 1.25, 1.5)  # of less than a pixel, as MS-COCO has some
    # The scored one is the more certain; a box that reaches out of the image is cut.
    assert (first.label, first.score, first.box) == ("fire hydrant", 0.5, (30.5, 3.0, 40.0, 32.0))
    assert (second.label, second.score, second.box) == ("dog", None, (4.0, 3.0, 14.0, 13.0))
    assert [o.label for o in detections_of(done[1])] == ["fire hydrant"]
    assert detections_of(done[2]) == detections_of(done[1])
    assert detections_of(done[3]) == ()


def test_coco_results_take_the_categories_of_another_file(tmp_path):
    rows = [{**annotation, "score": 0.25 * n} for n, annotation in enumerate(COCO["annotations"])]
    results = write(tmp_path / "results.json", rows)
    instances = write(tmp_path / "instances.json", COCO)
    asked = DetectionsFromFile(results, more=[instances])
    done = found_by(asked, example("7"), example("empty", "b")).done
    assert [(o.label, o.score) for o in detections_of(done[0])] == [
        ("fire hydrant", 0.25), ("dog", 0.0),
    ]  # fmt: skip
    assert detections_of(done[1]) == ()
    with pytest.raises(UserError, match="numbers of categories and no names"):
        found_by(DetectionsFromFile(results), example("7"), example("8", "b"))


def test_visual_genome_joins_objects_and_attributes(tmp_path):
    dog = {"object_id": 11, "names": ["Dog", "puppy"], "x": 4, "y": 3, "w": 10, "h": 10}
    ball = {"object_id": 12, "names": ["ball"], "x": 0, "y": 0, "w": 5, "h": 5}
    objects = write(tmp_path / "objects.json", [{"image_id": 2343, "objects": [dog, ball]}])
    described = {**dog, "attributes": ["Wet ", "brown", "wet"]}
    attributes = write(
        tmp_path / "attributes.json", [{"image_id": 2343, "attributes": [described]}]
    )
    for file, more in [(objects, [attributes]), (attributes, [objects])]:
        asked = DetectionsFromFile(file, more=more)
        detections = detections_of(found_by(asked, example("VG_100K/2343")).done[0])
        by_label = {o.label: [a.name for a in o.attributes] for o in detections}
        assert by_label == {"dog": ["wet", "brown"], "ball": []}
        assert {o.label: o.box for o in detections}["dog"] == (4.0, 3.0, 14.0, 13.0)
    alone = detections_of(found_by(DetectionsFromFile(attributes), example("2343")).done[0])
    assert [(o.label, len(o.attributes)) for o in alone] == [("dog", 2)]


def test_own_lists_have_a_line_an_image_and_ask_for_attributes_where_they_say_none(
    models, tmp_path
):
    box = [4, 3, 20, 30]
    lines = [
        {"image": "p/a.png", "detections": [{"label": "ball", "box": box}]},
        {"image": "p/b.png", "detections": [{"label": "ball", "box": box, "attributes": ["wet"]}]},
    ]
    file = write(tmp_path / "own.jsonl", "\n".join(map(json.dumps, lines)))
    asked = DetectionsFromFile(file, match="file", attributes=crops(models))
    given = [
        example("g", f"e{n}", image=photo(n), extra={"file": f"{name}.png"})
        for n, name in enumerate("ab")
    ]
    done = AnnotationStage([asked], tmp_path / "cache").annotate(given).done
    first, second = (detections_of(done[n])[0] for n in range(2))
    assert len(first.attributes) == 3
    assert [a.name for a in second.attributes] == ["wet"]
    plain = DetectionsFromFile(file, match="file")
    assert plain.identity() != asked.identity()
    assert plain.reads == ()
    assert set(asked.describe()) == {"detections", "detections.attributes"}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"bbox": [50, 3, 10, 10]}, "lies outside of the image, which is 40 x 32"),
        ({"bbox": [4, 3, 0, 10]}, "is empty"),
        ({"bbox": [4, 3, 10]}, "four finite numbers"),
        ({"score": float("nan")}, "finite number or null, not nan"),
    ],
)
def test_an_image_with_an_invalid_object_is_rejected_and_the_rest_goes_on(tmp_path, entry, said):
    broken = {**COCO["annotations"][0], **entry}
    content = {**COCO, "annotations": [broken, *COCO["annotations"][1:]]}
    asked = DetectionsFromFile(write(tmp_path / "instances.json", content))
    attempt = found_by(asked, example("7", "a"), example("8", "b"), example("10", "c"))
    assert set(attempt.done) == {1}
    assert isinstance(attempt.failed[0], Rejection)
    assert attempt.failed[0].reason == "invalid detections"
    assert "annotations[0]" in attempt.failed[0].error
    assert said in attempt.failed[0].error
    assert attempt.failed[2].reason == "no detections"
    assert "has no entry for the image '10'" in attempt.failed[2].error


def test_a_file_without_sizes_is_held_against_the_photo(tmp_path):
    line = {"key": "a", "detections": [{"label": "dog", "box": [60, 0, 70, 9]}]}
    asked = DetectionsFromFile(write(tmp_path / "own.jsonl", json.dumps(line)), match="key")
    attempt = found_by(asked, example("g", image=photo(0)), example("g", "b"))
    assert "which is 40 x 32" in attempt.failed[0].error
    # Nobody knows how large an image is that is not there.
    assert detections_of(found_by(asked, example("g")).done[0])[0].box == (60, 0, 70, 9)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", {**COCO, "categories": [{"id": 1, "name": "dog"}]}, "there is no category 2"),
        ("a.json", {**COCO, "images": COCO["images"][1:]}, "there is no image 7 in 'images'"),
        ("a.json", {**COCO, "images": COCO["images"] * 2}, "the image '7' is duplicated"),
        ("a.json", {**COCO, "categories": COCO["categories"] * 2}, "category 1 is duplicated"),
        ("a.json", {"boxes": []}, "no detections in a known form; it should be COCO's"),
        ("a.json", "{", "is not JSON"),
        ("a.json", [{"image_id": 1, "objects": [{"names": ["dog"]}]}], "'object_id' should be"),
        ("a.jsonl", '{"key": "a"}', "needs 'detections' and one of key"),
        ("a.jsonl", '{"key": "a", "detections": []}\n' * 2, "the image 'a' is duplicated"),
        ("missing.json", None, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_as_a_whole(tmp_path, name, content, said):
    file = tmp_path / name
    if content is not None:
        write(file, content)
    with pytest.raises(UserError, match=said):
        found_by(DetectionsFromFile(str(file)), example("7"), example("8", "b"))


def test_images_that_are_named_otherwise_are_an_error_that_says_so(tmp_path):
    asked = DetectionsFromFile(write(tmp_path / "instances.json", COCO))
    with pytest.raises(UserError, match=r"any of 2 images, the first of them 'x'.*another match"):
        found_by(asked, example("x"), example("y", "b"))
    twice = {**COCO, "images": [*COCO["images"], {"id": 10, "file_name": "other/dog.jpg"}]}
    asked = DetectionsFromFile(write(tmp_path / "twice.json", twice))
    with pytest.raises(UserError, match=r"'dog' could be the images 8, 10"):
        found_by(asked, example("dog"), example("dog", "b"))
