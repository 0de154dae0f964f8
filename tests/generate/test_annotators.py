"""Annotators: what a model says of a content is asked once, and added to every example of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cfaug.core.errors import RejectedError, UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Annotator
from cfaug.core.types import Example
from cfaug.data.shards.shards import read_sets
from cfaug.generate.annotation import AnnotationStage, content_key
from cfaug.generate.annotators import CaptionImages, CaptionsFromFile, DetectObjects
from cfaug.generate.failures import Rejection
from cfaug.generate.job import generate
from cfaug.models.task_specs import ImageCaptioning, ObjectDetection
from tests.generate.photos import photo
from tests.generate.tiny import contents
from tests.generate.tiny import job as small_job
from tests.models import tiny
from tests.records import Photo


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    shelf = tmp_path_factory.mktemp("weights")
    tiny.save_blip(shelf / "blip")
    tiny.save_detector(shelf / "detector")
    return {
        "captioner": ImageCaptioning(str(shelf / "blip"), max_new_tokens=4),
        "detector": ObjectDetection(str(shelf / "detector"), threshold=0.0),
    }


@dataclass(frozen=True)
class Counting:
    """Passes questions on to an annotator, and remembers the batches."""

    inner: Annotator
    batches: list[list[str]] = field(default_factory=list)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def annotate(self, examples):
        self.batches.append([example.key for example in examples])
        return self.inner.annotate(examples)


def examples(count, start=0):
    return [Example(f"e{n}", f"g{n}", (), photo(n)) for n in range(start, start + count)]


def extras(attempt):
    return {place: dict(example.extra) for place, example in sorted(attempt.done.items())}


def test_captions_and_objects_are_the_models_and_reach_the_examples(models):
    asked = [CaptionImages(models["captioner"], device="cpu"),
             DetectObjects(models["detector"], device="cpu")]  # fmt: skip
    assert all(isinstance(annotator, Annotator) for annotator in asked)
    given = [replace(example, extra={"file": f"{example.key}.jpg"}) for example in examples(5)]
    stage = AnnotationStage(asked, batch=2, texts_from="captions")
    attempt = stage.annotate(given)
    # A captioner with random weights says nothing of some photos: those are rejected.
    assert all(isinstance(rejection, Rejection) for rejection in attempt.failed.values())
    assert len(attempt.done) + len(attempt.failed) == 5
    assert len({example.text for example in attempt.done.values()}) > 1
    detector = models["detector"].load()
    for n, example in attempt.done.items():
        assert list(example.extra) == ["file", "captions", "detections"]
        assert example.texts == tuple(example.extra["captions"])
        [alone] = detector.detect([decode_image(given[n].image.read(), "it")])
        assert example.extra["detections"] == alone
    described = stage.describe()
    assert models["captioner"].weights_hash() in described["captions"]
    assert set(described) == {"captions", "detections"}


def test_what_is_known_is_not_asked_again_whoever_asks(models, tmp_path):
    def stage():
        counting = Counting(DetectObjects(models["detector"], device="cpu"))
        return counting, AnnotationStage([counting], tmp_path, batch=2)

    first, whole = stage()
    attempt = whole.annotate(examples(5))
    assert first.batches == [["e0", "e1"], ["e2", "e3"], ["e4"]]
    second, again = stage()
    # The same images, in another order and with other texts.
    others = [
        replace(example, texts=("a",), key=f"x{n}") for n, example in enumerate(examples(5)[::-1])
    ]
    assert extras(again.annotate(others)) == dict(enumerate(list(extras(attempt).values())[::-1]))
    assert second.batches == []
    third, more = stage()
    more.annotate(examples(3, start=4))  # of the first batch one is known, and it is asked whole
    assert third.batches == [["e4", "e5"], ["e6"]]
    names = [len(json.loads(line)) for f in tmp_path.rglob("*.jsonl") for line in f.open()]
    assert len(names) == 7  # each content once


def test_an_image_that_occurs_twice_is_asked_about_once(models):
    asked = Counting(DetectObjects(models["detector"], device="cpu"))
    given = [Example(f"e{n}", "g", ("a",), photo(n % 2)) for n in range(6)]
    attempt = AnnotationStage([asked], batch=10).annotate(given)
    assert asked.batches == [["e0", "e1"]]
    assert extras(attempt)[0] == extras(attempt)[4] != extras(attempt)[1]


def test_other_weights_settings_or_names_share_nothing(models, tmp_path):
    plain = DetectObjects(models["detector"], device="cpu")
    other = ObjectDetection(str(tiny.save_detector(tmp_path / "other", seed=1)), threshold=0.0)
    moved = models["detector"].at(str(tiny.save_detector(tmp_path / "moved")))
    every = [
        plain, replace(plain, model=other), replace(plain, name="objects"),
        replace(plain, model=replace(models["detector"], threshold=0.5)),
    ]  # fmt: skip
    assert len({annotator.identity() for annotator in every}) == 4
    assert replace(plain, model=moved).identity() == plain.identity()


def test_a_damaged_file_is_asked_for_again(models, tmp_path, capsys):
    def run():
        asked = Counting(DetectObjects(models["detector"], device="cpu"))
        return asked, extras(AnnotationStage([asked], tmp_path, batch=2).annotate(examples(2)))

    _, before = run()
    [file] = tmp_path.rglob("*.jsonl")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))
    asked, after = run()
    assert before == after
    assert asked.batches == [["e0", "e1"]]
    assert "damaged" in capsys.readouterr().err
    assert run()[0].batches == []


def test_bad_images_are_named_and_tried_again_next_time(models, tmp_path):
    detect = DetectObjects(models["detector"], device="cpu")
    bad = replace(examples(4)[1], image=Photo(b"no image"))
    whole = photo(0).content
    damaged = Example("e5", "g", (), Photo(whole[: len(whole) // 2]), "cat")
    given = [examples(4)[0], bad, *examples(4)[2:], Example("e4", "g", ("no image",)), damaged]
    attempt = AnnotationStage([detect], tmp_path, batch=3).annotate(given)
    assert sorted(attempt.done) == [0, 2, 3]
    assert attempt.failed[1].key == "e1"
    assert "is not an image" in attempt.failed[1].error
    assert "no image to annotate" in attempt.failed[4].error
    assert (attempt.failed[5].key, attempt.failed[5].reason) == ("e5", "photo_broken")
    assert "example 'e5'" in attempt.failed[5].error
    asked = Counting(detect)
    again = AnnotationStage([asked], tmp_path, batch=3).annotate(
        [*given[:1], examples(4)[1], *given[2:4]]
    )
    assert sorted(again.done) == [0, 1, 2, 3]
    assert again.failed == {}
    assert asked.batches == [["e0", "e1", "e2"]]


def test_each_annotator_sees_what_those_before_said(tmp_path):
    file = tmp_path / "captions.csv"
    file.write_text("image,caption\nb.jpg,a  dog\na.jpg,a cat\nb.jpg,two dogs\n")
    given = [Example(n, n, (), photo(0), extra={"file": f"{n}.jpg"}) for n in ("a", "b")]
    asked = CaptionsFromFile(str(file), column="image", match="file")
    assert isinstance(asked, Annotator)
    attempt = AnnotationStage([asked], tmp_path / "cache", texts_from="captions").annotate(given)
    assert [example.texts for example in attempt.done.values()] == [
        ("a cat",),
        ("a dog", "two dogs"),
    ]
    assert not (tmp_path / "cache").exists()
    other = tmp_path / "captions.jsonl"
    other.write_text('{"key": "a", "caption": "x"}\n')
    partly = AnnotationStage([CaptionsFromFile(str(other))]).annotate(given)
    assert list(partly.done) == [0]
    assert "captions.jsonl has no caption of example 'b'" in partly.failed[1].error
    assert partly.failed[1].reason == "no caption"  # rejected: the rest is published
    [alone] = AnnotationStage([CaptionsFromFile(str(other))]).annotate(given[1:]).failed.values()
    assert alone.reason == "no caption"


def test_a_file_that_names_no_example_or_is_not_there_is_a_mistake(tmp_path):
    file = tmp_path / "captions.jsonl"
    file.write_text('{"key": "else", "caption": "x"}\n')
    given = [Example(key, "g", ("t",)) for key in "abc"]
    with pytest.raises(UserError, match="has no caption of example 'a': no record has key='a'"):
        AnnotationStage([CaptionsFromFile(str(file))]).annotate(given)
    for wrong in (tmp_path, tmp_path / "nowhere.jsonl"):
        with pytest.raises(UserError, match=rf"{wrong}, .* takes captions .* cannot be read"):
            AnnotationStage([CaptionsFromFile(str(wrong))]).identities()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"id": "a", "caption": "x"}', "line 1 has no 'key'; it has id, caption"),
        ('{"key": "a", "caption": ""}', "line 1: the caption '' is empty"),
        ('{"key": "a", "caption": 3}', "line 1: the caption 3 is empty or not a text"),
        ("no json", "is not JSON"),
    ],
)
def test_a_file_that_is_no_list_of_captions_is_refused(tmp_path, content, words):
    file = tmp_path / "captions.jsonl"
    file.write_text(content)
    given = [Example("a", "g", ("t",)), Example("b", "g", ("t",))]
    with pytest.raises(UserError, match=words):
        AnnotationStage([CaptionsFromFile(str(file))]).annotate(given)


def test_names_that_collide_are_refused(models, tmp_path):
    detect = DetectObjects(models["detector"], device="cpu")
    with pytest.raises(UserError, match="'detections' is duplicated"):
        AnnotationStage([detect, detect])
    given = [Example("a", "g", ("t",), photo(0), extra={"detections": []})]
    with pytest.raises(UserError, match="has 'detections' already"):
        AnnotationStage([detect]).annotate(given)
    with pytest.raises(UserError, match="no list of texts named 'captions'"):
        AnnotationStage([detect], texts_from="captions").annotate(examples(1))


class Saying:
    """An annotator that says what it was told to say of each key."""

    name, reads = "captions", ("image",)

    def __init__(self, said):
        self.said = said

    def identity(self):
        return "saying"

    def describe(self):
        return {}

    def annotate(self, given):
        for example in given:
            if self.said[example.key] is None:
                raise RejectedError("broken photo", f"{example.key} cannot be decoded")
        return [{"captions": self.said[example.key]} for example in given]


def test_what_cannot_be_described_is_rejected_and_the_rest_goes_on(tmp_path):
    said = {"e0": ["a cat"], "e1": [], "e2": ["", " "], "e3": None, "e4": ["", "a dog"]}
    given = [replace(example, texts=("a photo of a cat",)) for example in examples(5)]
    stage = AnnotationStage([Saying(said)], tmp_path, 2, texts_from="captions", replace_texts=True)
    attempt = stage.annotate(given)
    assert {place: example.texts for place, example in attempt.done.items()} == {
        0: ("a cat",), 4: ("a dog",),
    }  # fmt: skip
    reasons = {place: rejection.reason for place, rejection in attempt.failed.items()}
    assert reasons == {1: "no caption", 2: "no caption", 3: "broken photo"}
    kept = AnnotationStage([Saying(said)], tmp_path, 2, texts_from="captions").annotate(given)
    assert {example.texts for example in kept.done.values()} == {("a photo of a cat",)}
    alone = AnnotationStage([Saying({"e0": None})], texts_from="captions").annotate(given[:1])
    assert alone.failed[0].error == "e0 cannot be decoded"


def test_a_key_is_of_what_is_read():
    example = Example("a", "g", ("t",), photo(0), "cat", {"x": [1]})
    changes = {"key": "b", "group": "h", "texts": ("u",), "label": "dog", "extra": {"x": [2]},
               "image": photo(1)}  # fmt: skip
    for name, value in changes.items():
        changed = replace(example, **{name: value})
        assert content_key(changed, (name,)) != content_key(example, (name,))
        rest = tuple(set(changes) - {name})
        assert content_key(changed, rest) == content_key(example, rest)


def test_a_full_disk_is_said(models):
    stage = AnnotationStage([DetectObjects(models["detector"], device="cpu")], Path("/dev/full"))
    with pytest.raises(UserError, match="cannot be written"):
        stage.annotate(examples(1))


def test_a_recipe_s_annotators_reach_the_members_and_resume(models, tmp_path, capsys):
    """Photos without a caption: captioned from a file, searched for objects, then edited."""
    file = tmp_path / "captions.jsonl"
    lines = [{"key": f"e{n}", "caption": f"a tree beside {n} cat"} for n in range(6)]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    detect = Counting(DetectObjects(models["detector"], device="cpu"))

    def job(folder, **changes):
        given = [*examples(6), Example("e6", "g6", (), photo(6))]  # of which there is no caption
        made = small_job(tmp_path / folder, captions=given, **changes)
        asked = {"captions": CaptionsFromFile(str(file)), "objects": detect, "none": None}
        parts = replace(made.recipe, annotators=asked, texts_from="captions")
        return replace(made, recipe=parts, cache=tmp_path / "cache")

    summary = generate(job("one"))
    assert (summary.failures, summary.rejected["no caption"]) == ((), 1)
    assert "has no caption of example 'e6'" in capsys.readouterr().err
    sets = list(read_sets(tmp_path / "one"))
    assert {counterfactual.members[0].text for counterfactual in sets} <= {
        line["caption"] for line in lines
    }
    assert len(sets) > 1
    assert all(
        member.extra["detections"] for counterfactual in sets for member in counterfactual.members
    )
    batches = len(detect.batches)
    generate(job("two"))
    assert len(detect.batches) == batches  # known by content
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    file.write_text(file.read_text().replace("cat", "dog"))
    with pytest.raises(UserError, match="annotator captions"):
        generate(job("two"))
