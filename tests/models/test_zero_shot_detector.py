"""Detectors that are told names: held against plain transformers, an image and a name at a time."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.protocols import Detector, OpenVocabularyDetector
from cfaug.data.detections import clip_box
from cfaug.models import detector
from cfaug.models.task_specs import ZeroShotDetection
from cfaug.models.visual_words import visual_words
from tests.models import tiny

NAMES = ["red ball", "cube", "star", "grass"]
KINDS = ["owlv2", "grounding_dino"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    shelf = tmp_path_factory.mktemp("detectors")
    (shelf / "names.txt").write_text(
        "# what to look for\nRed  ball\nCube, box\nstar\ncube\ngrass\n"
    )
    return {"names": str(shelf / "names.txt"), **tiny.save_all(shelf, *KINDS)}


def spec(folders, kind, **settings):
    everything = {"vocabulary": folders["names"], "threshold": 0.0, "overlap": 1.0, "most": None}
    return ZeroShotDetection(str(folders[kind]), **{**everything, **settings})


IMAGES = [
    tiny.image(*size, seed) for seed, size in enumerate([(64, 64), (60, 40), (64, 64), (40, 60)])
]


def plain_scores(folder, kind, image, names):
    """Return (boxes, names) scores and the boxes of one image, by transformers alone."""
    from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

    model = AutoModelForZeroShotObjectDetection.from_pretrained(folder).eval()
    processor = AutoProcessor.from_pretrained(folder)
    size = torch.tensor([image.size[::-1]])
    if kind == "owlv2":
        columns = []
        for name in names:
            asked = processor(text=[[name]], images=image, return_tensors="pt")
            with torch.no_grad():
                output = model(**asked)
            [detections] = processor.post_process_grounded_object_detection(
                output, threshold=-1, target_sizes=size, text_labels=[[name]]
            )
            columns.append(detections["scores"])
        return torch.stack(columns, 1), detections["boxes"]
    asked = processor(text=[names], images=image, return_tensors="pt")
    with torch.no_grad():
        output = model(**asked)
    [detections] = processor.post_process_grounded_object_detection(
        output, threshold=-1, text_threshold=2, target_sizes=size
    )
    words = processor.tokenizer.convert_ids_to_tokens(asked["input_ids"][0])
    columns = {name: torch.zeros(len(detections["boxes"])) for name in names}
    number = 0
    for place, word in enumerate(words):
        if word in (".", "[CLS]", "[SEP]"):
            number += word == "."
        else:
            score = torch.sigmoid(output.logits[0, :, place])
            columns[names[number]] = torch.maximum(columns[names[number]], score)
    return torch.stack(list(columns.values()), 1), detections["boxes"]


@pytest.mark.parametrize("kind", KINDS)
def test_objects_are_those_of_plain_transformers_whatever_else_is_in_the_batch(folders, kind):
    model = spec(folders, kind).load()
    assert isinstance(model, OpenVocabularyDetector)
    assert model.vocabulary == tuple(NAMES)
    detected = model.detect(IMAGES)
    assert json.loads(json.dumps(detected)) == detected
    for image, objects in zip(IMAGES, detected, strict=True):
        assert model.detect([image]) == [objects]
        scores, boxes = plain_scores(folders[kind], kind, image, NAMES)
        best, number = scores.max(1)
        expected = [
            {"label": NAMES[label], "score": score, "box": clip_box(box, *image.size)}
            for score, label, box in zip(
                best.tolist(), number.tolist(), boxes.tolist(), strict=True
            )
            if clip_box(box, *image.size)
        ]
        assert len(objects) == len(expected) > 5
        assert [o["score"] for o in objects] == sorted((o["score"] for o in objects), reverse=True)
        for ours in objects:  # equal scores may come in another order
            same = next(
                n
                for n, theirs in enumerate(expected)
                if ours["label"] == theirs["label"]
                and np.isclose(ours["score"], theirs["score"], atol=1e-4)
                and np.allclose(ours["box"], theirs["box"], atol=0.02)
            )
            expected.pop(same)
    assert model.detect([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_each_image_is_searched_for_its_own_names(folders, kind):
    model = spec(folders, kind, threshold=0.01).load()
    asked = [["cube"], ["cube", "star", "cube"], [], ["grass"]]
    detected = model.detect_named(IMAGES, asked)
    for image, names, objects in zip(IMAGES, asked, detected, strict=True):
        assert {o["label"] for o in objects} <= set(names)
        assert model.detect_named([image], [names]) == [objects]
    assert detected[2] == []
    assert len(detected[0]) > 2


@pytest.mark.parametrize("kind", KINDS)
def test_more_names_than_the_model_reads_at_once_are_asked_in_portions(folders, kind, monkeypatch):
    whole = spec(folders, kind).load().detect_named(IMAGES[:2], [NAMES] * 2)
    parts = spec(folders, kind).load()
    monkeypatch.setattr(detector, "NAMES_AT_ONCE", 2)
    asked = []
    ask = parts._ask
    monkeypatch.setattr(
        parts, "_ask", lambda batch, names, sizes: asked.append(names) or ask(batch, names, sizes)
    )
    detected = parts.detect_named(IMAGES[:2], [NAMES] * 2)
    assert [tuple(names) for names in asked[:2]] == [("red ball", "cube"), ("star", "grass")]
    if kind == "owlv2":  # each name is read alone: the boxes are the same, and have their best name
        assert detected == whole
    else:  # a text of other names: each portion finds boxes of its own
        assert [len(objects) for objects in detected] == [2 * len(objects) for objects in whole]


def test_one_text_is_cut_into_portions_that_the_model_reads_whole(folders):
    model = spec(folders, "grounding_dino").load()
    # With full stops 14 tokens of five names, the text's two own, and no room for sand.
    names = ["red ball", "blue cube", "green star", "the beach", "grass", "sand"]
    assert [(n, list(part)) for n, part in model._portions(names)] == [
        (0, names[:5]), (5, names[5:]),
    ]  # fmt: skip
    with pytest.raises(UserError, match="reads 16 tokens"):
        model.detect_named(IMAGES[:1], [["a red ball on the beach " * 3]])


def test_of_overlapping_boxes_of_a_name_the_most_certain_stays(folders):
    every = spec(folders, "owlv2").load().detect(IMAGES)
    model = spec(folders, "owlv2", overlap=0.1, threshold=0.2, most=3).load()

    def shared(a, b):
        across = min(a[2], b[2]) - max(a[0], b[0])
        down = min(a[3], b[3]) - max(a[1], b[1])
        both = max(across, 0) * max(down, 0)
        areas = [(c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)]
        return both / (sum(areas) - both)

    dropped = 0
    for objects, kept in zip(every, model.detect(IMAGES), strict=True):
        expected = []
        for detection in objects:  # the most certain first
            if detection["score"] > 0.2 and all(
                detection["label"] != o["label"] or shared(detection["box"], o["box"]) <= 0.1
                for o in expected
            ):
                expected.append(detection)
        assert kept == expected[:3]
        dropped += len(objects) - len(expected)
    assert dropped


def test_a_specification_says_what_it_provides_and_what_changes_answers(folders, tmp_path):
    plain = spec(folders, "owlv2")
    assert isinstance(plain.load(Detector), Detector)
    (tmp_path / "same.txt").write_text("\n".join(NAMES))
    (tmp_path / "other.txt").write_text("cube")
    same = spec(folders, "owlv2", vocabulary=str(tmp_path / "same.txt"))
    other = spec(folders, "owlv2", vocabulary=str(tmp_path / "other.txt"))
    assert plain.identity() == same.identity() != other.identity()
    assert ZeroShotDetection(str(folders["owlv2"])).settings["vocabulary"] == visual_words(
        "objects"
    )
    for settings, said in [
        ({"template": "a photo"}, "needs {label} exactly once"),
        ({"threshold": 2}, "threshold=2 should be a number from 0 to 1"),
        ({"overlap": -1}, "overlap=-1 should be a number from 0 to 1"),
        ({"most": 0}, "at least 1"),
    ]:
        with pytest.raises(UserError, match=said):
            ZeroShotDetection("anything", **settings)


def test_detectors_of_another_kind_are_refused(folders, tmp_path):
    with pytest.raises(UserError):
        ZeroShotDetection(str(tiny.save_detector(tmp_path / "yolos"))).load()
