"""MS-COCO and the Karpathy splits as they are downloaded, laid out by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.index import Index, open_index
from cfaug.data.index.disk_format import group_code
from cfaug.data.mixture.leakage import coco_ids, find_leaks
from cfaug.data.shards.shards import write_shards
from tests.data.hostile import assert_refused
from tests.data.making import PHOTOS, pair, photo_folder, texts

NAMES = ["chelsea.png", "coffee.png", "rocket.jpg"]
IDS = {"chelsea.png": 397133, "coffee.png": 37777, "rocket.jpg": 391895}


def coco_file(name: str, prefix: str = "") -> str:
    return f"{prefix}{IDS[name]:012d}{Path(name).suffix}"


def copy(name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(photo_folder() / name, target)


def annotations(names: list[str], prefix: str = "") -> dict[str, Any]:
    """What captions_*.json holds; captions of one photo lie apart, as they do there."""
    lines = [(n, text) for i in range(3) for n in names for text in PHOTOS[n][i : i + 1]]
    return {
        "info": {"year": 2017},
        "licenses": [],
        "images": [
            {"license": 4, "file_name": coco_file(n, prefix), "coco_url": "http://x", "height": 1,
             "width": 1, "id": IDS[n]}
            for n in names
        ],
        "annotations": [
            {"image_id": IDS[n], "id": 100 + i, "caption": f" {text}\n"}
            for i, (n, text) in enumerate(lines)
        ],
    }  # fmt: skip


def lay_out_coco(root: Path, split: str = "val2017", prefix: str = "") -> Path:
    for name in NAMES:
        copy(name, root / split / coco_file(name, prefix))
    (root / "annotations").mkdir(exist_ok=True)
    (root / "annotations" / f"captions_{split}.json").write_text(
        json.dumps(annotations(NAMES, prefix))
    )
    (root / "annotations" / f"instances_{split}.json").write_text("{not read")
    return root


def karpathy_list(coco: bool) -> dict[str, Any]:
    splits = dict(zip(NAMES, ("test", "train", "restval"), strict=True))
    images = []
    for number, name in enumerate(NAMES):
        sentences = [{"tokens": [], "raw": f"{text} ", "imgid": number, "sentid": 10 * number + i}
                     for i, text in enumerate(PHOTOS[name])]  # fmt: skip
        entry: dict[str, Any] = {"imgid": number, "split": splits[name], "sentences": sentences,
                                 "sentids": [s["sentid"] for s in sentences],
                                 "filename": f"{36979 + number}{Path(name).suffix}"}  # fmt: skip
        if coco:
            folder = "train2014" if splits[name] == "train" else "val2014"
            entry |= {"filepath": folder, "filename": coco_file(name, f"COCO_{folder}_"),
                      "cocoid": IDS[name]}  # fmt: skip
        images.append(entry)
    return {"dataset": "coco" if coco else "flickr30k", "images": images}


def lay_out_karpathy(root: Path, *, coco: bool, images: str = "", lists: str = "") -> Path:
    about = karpathy_list(coco)
    for name, entry in zip(NAMES, about["images"], strict=True):
        copy(name, root / images / entry.get("filepath", "") / entry["filename"])
    (root / lists).mkdir(exist_ok=True)
    (root / lists / f"dataset_{about['dataset']}.json").write_text(json.dumps(about))
    return root


def check(index: Index, names: list[str], kind: str) -> None:
    """The captions of these photos in order, each photo a set, its image readable."""
    assert index.kind == kind
    assert texts(index) == [text for name in names for text in PHOTOS[name]]
    sets = [number for number, name in enumerate(names) for _ in PHOTOS[name]]
    assert index.sets.tolist() == index.images.tolist() == sets
    for row in range(len(index)):
        assert min(decode_image(index.read_image(row), index.image_name(row)).size) > 8


@pytest.mark.parametrize("named", ["", "val2017"])
def test_coco_2017(tmp_path, named):
    lay_out_coco(tmp_path / "coco")
    index = open_index(tmp_path / "coco" / named, tmp_path / "cache")
    check(index, NAMES, "coco")
    assert index.key(0) == "000000397133_0"
    assert index.groups[0] == group_code("397133")


def test_coco_2014_and_2017_beside_each_other(tmp_path):
    lay_out_coco(lay_out_coco(tmp_path / "coco"), "val2014", "COCO_val2014_")
    check(open_index(tmp_path / "coco" / "val2014", tmp_path / "cache"), NAMES, "coco")
    assert_refused(
        tmp_path / "coco", tmp_path / "cache", r"several splits.*coco/val2014, .*coco/val2017"
    )


def test_coco_without_its_images(tmp_path):
    shutil.rmtree(lay_out_coco(tmp_path / "coco") / "val2017")
    assert_refused(tmp_path / "coco", tmp_path / "cache", r"no .*coco/val2017")


def test_photos_without_captions_are_passed_over(tmp_path):
    about = annotations(NAMES)
    about["annotations"] = [a for a in about["annotations"] if a["image_id"] != 37777]
    folder = lay_out_coco(tmp_path / "coco")
    (folder / "annotations" / "captions_val2017.json").write_text(json.dumps(about))
    check(open_index(folder, tmp_path / "cache"), ["chelsea.png", "rocket.jpg"], "coco")


def test_a_changed_annotation_is_another_source(tmp_path):
    folder = lay_out_coco(tmp_path / "coco")
    before = open_index(folder, tmp_path / "cache").hash
    assert open_index(folder / "val2017", tmp_path / "cache").hash == before
    file = folder / "annotations" / "captions_val2017.json"
    file.write_text(file.read_text().replace("tabby", "striped"))
    assert open_index(folder, tmp_path / "cache").hash != before


@pytest.mark.parametrize("lists", ["", "karpathy", "caption_datasets", "annotations"])
def test_karpathys_coco(tmp_path, lists):
    folder = lay_out_karpathy(tmp_path / "coco", coco=True, lists=lists)
    check(open_index(f"{folder}:test", tmp_path / "cache"), ["chelsea.png"], "karpathy")
    both = open_index(f"{folder}:train+restval", tmp_path / "cache")
    check(both, ["coffee.png", "rocket.jpg"], "karpathy")
    assert both.key(0) == "000000037777_0"
    assert both.groups[0] == group_code("37777")


@pytest.mark.parametrize("images", ["", "images", "flickr30k-images", "flickr30k_images"])
def test_karpathys_flickr30k(tmp_path, images):
    folder = lay_out_karpathy(tmp_path / "flickr30k", coco=False, images=images)
    index = open_index(f"{folder}:test", tmp_path / "cache")
    check(index, ["chelsea.png"], "karpathy")
    assert index.key(0) == "36979_0"
    assert coco_ids(index).tolist() == [-1] * len(index)


def test_a_split_must_be_named_and_known(tmp_path):
    folder = lay_out_karpathy(tmp_path / "flickr30k", coco=False)
    for name in ("", ":dev", ":test+dev", ":"):
        with pytest.raises(UserError) as caught:
            open_index(f"{folder}{name}", tmp_path / "cache")
        assert f"{folder}:test (1 photos)" in str(caught.value) or name == ":"
    assert_refused(tmp_path / "nowhere:test", tmp_path / "cache", "no folder")
    about = karpathy_list(coco=False)
    about["images"] = about["images"][:1]
    (folder / "dataset_flickr30k.json").write_text(json.dumps(about))
    check(open_index(folder, tmp_path / "cache"), ["chelsea.png"], "karpathy")
    (folder / "dataset_flickr8k.json").write_text("{}")
    assert_refused(f"{folder}:test", tmp_path / "cache", "several lists")


def test_counterfactuals_of_val2017_leak_into_the_karpathy_test(tmp_path):
    test = open_index(f"{lay_out_karpathy(tmp_path / 'k', coco=True)}:test", tmp_path / "cache")
    val = open_index(lay_out_coco(tmp_path / "coco"), tmp_path / "cache")
    write_shards([pair(0, group="37777"), pair(1, group="397133")], tmp_path / "cf")
    cf = open_index(tmp_path / "cf", tmp_path / "cache")
    for source in (val, cf):
        leaks = find_leaks([(source, np.arange(len(source)))], test)
        assert leaks.ids.tolist() == [397133]
        assert leaks.rows.tolist() == list(range(len(test)))


# What is broken or means harm.


COCO_HARM: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no images": (lambda a: a.pop("images"), r"list 'images'"),
    "annotations no list": (lambda a: a.update(annotations={}), r"list 'annotations'"),
    "an entry no object": (lambda a: a["annotations"].append(3), r"annotations\[6\]"),
    "caption no text": (lambda a: a["annotations"][1].update(caption=5), r"annotations\[1\]"),
    "caption empty": (lambda a: a["annotations"][2].update(caption=" \n"), r"annotations\[2\]"),
    "an unknown photo": (lambda a: a["annotations"][0].update(image_id=1), "no photo 1"),
    "a photo twice": (lambda a: a["images"].append(a["images"][0]), r"images\[3\].*duplicated"),
    "no file name": (lambda a: a["images"][1].pop("file_name"), r"images\[1\].*file_name"),
    "a name that leads out": (
        lambda a: a["images"][1].update(file_name="../../secret.png"), "leads out"
    ),
    "an image gone": (lambda a: a["images"][1].update(file_name="gone.png"), "gone.png"),
    "an id that is a list": (lambda a: a["images"][1].update(id=[1]), r"images\[1\]"),
}  # fmt: skip


@pytest.mark.parametrize("harm", COCO_HARM)
def test_annotations_that_cannot_be_used(tmp_path, harm):
    folder, about = lay_out_coco(tmp_path / "coco"), annotations(NAMES)
    change, named = COCO_HARM[harm]
    change(about)
    copy("coffee.png", tmp_path / "secret.png")
    (folder / "annotations" / "captions_val2017.json").write_text(json.dumps(about))
    assert_refused(folder, tmp_path / "cache", named)
    assert not list((tmp_path / "cache").iterdir())


KARPATHY_HARM: dict[str, tuple[Callable[[list[dict[str, Any]]], object], str]] = {
    "no split": (lambda i: i[1].pop("split"), r"images\[1\].*split"),
    "no file name": (lambda i: i[0].pop("filename"), r"images\[0\].*filename"),
    "no sentences": (lambda i: i[0].update(sentences=[]), r"images\[0\].*sentences"),
    "sentences no list": (lambda i: i[0].update(sentences="a cat"), r"images\[0\].*sentences"),
    "a sentence empty": (lambda i: i[0]["sentences"][0].update(raw=""), r"images\[0\]"),
    "a folder that leads out": (lambda i: i[0].update(filepath="../.."), "leads out"),
    "an image gone": (lambda i: i[0].update(filename="gone.png"), "gone.png"),
    "a photo twice": (lambda i: i.append(i[0]), "is duplicated"),
}  # fmt: skip


@pytest.mark.parametrize("harm", KARPATHY_HARM)
def test_a_list_that_cannot_be_used(tmp_path, harm):
    folder = lay_out_karpathy(tmp_path / "coco", coco=True)
    about = karpathy_list(coco=True)
    change, named = KARPATHY_HARM[harm]
    change(about["images"])
    (folder / "dataset_coco.json").write_text(json.dumps(about))
    assert_refused(f"{folder}:test", tmp_path / "cache", named)


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe\x00", b"[" * 200_000])
def test_json_that_is_none(tmp_path, content):
    folder = lay_out_karpathy(tmp_path / "flickr30k", coco=False)
    (folder / "dataset_flickr30k.json").write_bytes(content)
    assert_refused(f"{folder}:test", tmp_path / "cache", r"dataset_flickr30k\.json")
    coco = lay_out_coco(tmp_path / "coco")
    (coco / "annotations" / "captions_val2017.json").write_bytes(content)
    assert_refused(coco, tmp_path / "cache", r"captions_val2017\.json")
