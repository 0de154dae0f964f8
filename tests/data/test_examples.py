"""Examples of any source, by image or by text."""

from __future__ import annotations

import hashlib
import json

import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Example, Member
from cfaug.data.index import open_index
from cfaug.data.index.disk_format import group_code
from cfaug.data.index.index import examples
from cfaug.data.shards.shards import write_shards
from tests.data.making import noise_image, pair

PHOTO = CounterfactualSet(
    "photo", "the photo's group", tuple(Member(f"caption {i}", "p", "s") for i in range(3)),
    {"p": noise_image(9)},
)  # fmt: skip
MIXED = CounterfactualSet(
    "mixed", "g", (Member("a", "x", "s"), Member("b", "y", "s"), Member("c", "x", "s")),
    {"x": noise_image(10), "y": noise_image(11)},
)  # fmt: skip


def test_an_example_an_image(tmp_path):
    sets = [pair(0), PHOTO, MIXED]
    write_shards(sets, tmp_path / "shards")
    found = list(examples(open_index(tmp_path / "shards", tmp_path / "cache"), "image"))
    assert [(one.key, one.group, one.texts) for one in found] == [
        ("pair-00000_0", "group-0", ("scene 0 as version 0",)),
        ("pair-00000_1", "group-0", ("scene 0 as version 1",)),
        ("photo_0", "the photo's group", ("caption 0", "caption 1", "caption 2")),
        ("mixed_0", "g", ("a", "c")),
        ("mixed_1", "g", ("b",)),
    ]
    images = [sets[0].images["image0"], sets[0].images["image1"], PHOTO.images["p"],
              MIXED.images["x"], MIXED.images["y"]]  # fmt: skip
    assert [one.image.read() for one in found] == images
    assert [one.image.digest for one in found] == [
        hashlib.blake2b(image, digest_size=16).hexdigest() for image in images
    ]
    assert (found[1].label, found[2].label) == ("class 1", None)
    assert found[1].extra == {
        "i": 1, "edit_kind": "subject", "edit_before": "cat", "edit_after": "dog 1",
    }  # fmt: skip


def test_an_example_a_text(tmp_path):
    write_shards([PHOTO, MIXED], tmp_path / "shards")
    index = open_index(tmp_path / "shards", tmp_path / "cache")
    found = list(examples(index, "text"))
    assert [one.text for one in found] == ["caption 0", "caption 1", "caption 2", "a", "b", "c"]
    assert [one.key for one in found] == [index.key(row) for row in range(6)]
    assert len({one.image.digest for one in found}) == 3
    assert [group_code(one.group) for one in found] == index.groups.tolist()


def test_every_key_and_group_is_kept_by_any_reader(tmp_path):
    classes = tmp_path / "classes"
    for name in ("cat", "dog"):
        (classes / name).mkdir(parents=True)
        for i in range(2):
            (classes / name / f"{i}.png").write_bytes(noise_image(i + 5 * (name == "cat")))
    listed = tmp_path / "listed"
    listed.mkdir()
    (listed / "a.png").write_bytes(noise_image(1))
    lines = [
        {"image": "a.png", "caption": "x", "neg_caption": "wrong", "image_id": 7, "question": "?"},
        {"image": "a.png", "caption": "y", "image_id": 7},
    ]
    (listed / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for folder, per in ((classes, "image"), (listed, "text"), (listed, "image")):
        index = open_index(folder, tmp_path / "cache")
        found = list(examples(index, per))
        assert all(isinstance(one, Example) for one in found)
        assert {group_code(one.group) for one in found} == set(index.groups.tolist())
        assert sum(len(one.texts) for one in found) == len(index)
    assert found[0].extra == {"question": "?", "negatives": ["wrong"]}
    assert {one.label for one in examples(open_index(classes, tmp_path / "cache"))} == {
        "cat",
        "dog",
    }


def test_a_file_that_changed_is_noticed_when_it_is_read(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(noise_image(1))
    (tmp_path / "a" / "1.txt").write_text("x")
    (one,) = examples(open_index(tmp_path / "a", tmp_path / "cache"))
    (tmp_path / "a" / "1.png").write_bytes(noise_image(2))
    with pytest.raises(UserError, match="changed since it was indexed"):
        one.image.read()
