from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.index import Index, open_index
from cfaug.data.sources import READERS
from tests.data.hostile import assert_refused
from tests.data.making import PHOTOS, photo_bytes, photo_folder, write_tar

Rows = list[tuple[str, str | None]]


def rows(index: Index) -> Rows:
    return [(index.text(row), index.label(row)) for row in range(len(index))]


def captions(names: list[str] | None = None) -> Rows:
    return [(text, None) for name in names or PHOTOS for text in PHOTOS[name]]


def images_decode(index: Index) -> None:
    for row in range(len(index)):
        assert min(decode_image(index.read_image(row), index.image_name(row)).size) > 8


def adjacent_sets(index: Index) -> list[int]:
    """Return how many rows each set has, after checking that they share image and group."""
    counts: dict[int, int] = {}
    for row, number in enumerate(index.sets.tolist()):
        counts[number] = counts.get(number, 0) + 1
        assert index.images[row] == number
        assert index.groups[row] == index.groups[index.sets.tolist().index(number)]
    return list(counts.values())


def copy_photos(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in PHOTOS:
        shutil.copy(photo_folder() / name, folder / name)


SETS = [len(texts) for texts in PHOTOS.values()]


@pytest.mark.parametrize("many", ["list", "line"])
def test_captions_jsonl(tmp_path, many):
    copy_photos(tmp_path / "photos")
    lines = [
        {"file_name": name, "captions" if many == "list" else "text": found}
        for name, texts in PHOTOS.items()
        for found in ([texts] if many == "list" else texts)
    ]
    text = "\n".join(map(json.dumps, lines))
    (tmp_path / "photos" / "captions.jsonl").write_text(text + "\n\n")
    index = open_index(tmp_path / "photos", tmp_path / "cache")
    assert index.kind == "caption_list"
    assert rows(index) == captions()
    assert adjacent_sets(index) == SETS
    images_decode(index)


def test_captions_csv_with_images_in_a_folder_of_their_own(tmp_path):
    copy_photos(tmp_path / "photos" / "images")
    with (tmp_path / "photos" / "captions.csv").open("w", newline="") as handle:
        table = csv.writer(handle)
        table.writerow(["image", "caption"])
        lines = [(name, text) for name, texts in PHOTOS.items() for text in texts]
        table.writerows(lines[::2] + lines[1::2])  # captions of one photo far apart
    index = open_index(tmp_path / "photos", tmp_path / "cache")
    assert sorted(rows(index)) == sorted(captions())
    assert sorted(adjacent_sets(index)) == sorted(SETS)
    images_decode(index)


def test_a_text_beside_each_image(tmp_path):
    copy_photos(tmp_path / "photos")
    for name, texts in PHOTOS.items():
        (tmp_path / "photos" / name).with_suffix(".txt").write_text("\n".join(texts) + "\n")
    index = open_index(tmp_path / "photos", tmp_path / "cache")
    assert index.kind == "sidecar_text"
    assert rows(index) == captions(sorted(PHOTOS))
    assert sorted(adjacent_sets(index)) == sorted(SETS)


def test_image_folder(tmp_path):
    copy_photos(tmp_path / "all")
    classes = {"tabby_cat": "chelsea.png", "rocket": "rocket.jpg"}
    for label, name in classes.items():
        (tmp_path / "classes" / label).mkdir(parents=True)
        shutil.copy(tmp_path / "all" / name, tmp_path / "classes" / label / "IMG 1.JPG")
    index = open_index(tmp_path / "classes", tmp_path / "cache")
    assert index.kind == "image_folder"
    assert rows(index) == [
        ("a photo of a rocket", "rocket"),
        ("a photo of a tabby cat", "tabby_cat"),
    ]


def test_linked_class_folders_are_followed_if_permitted(tmp_path):
    for label in ("cat", "rocket"):
        (tmp_path / "store" / label).mkdir(parents=True)
        shutil.copy(photo_folder() / "chelsea.png", tmp_path / "store" / label)
    (tmp_path / "classes").mkdir()
    for label in ("cat", "rocket"):
        (tmp_path / "classes" / label).symlink_to(tmp_path / "store" / label)
    (tmp_path / "store" / "cat" / "round").symlink_to(tmp_path / "classes")
    assert_refused(tmp_path / "classes", tmp_path / "cache", "is a link that leads out of")
    index = open_index(tmp_path / "classes", tmp_path / "cache", [tmp_path / "store"])
    assert {index.label(row) for row in range(len(index))} == {"cat", "rocket"}


def img2dataset(folder: Path) -> None:
    """Lay out what img2dataset writes: failed downloads are only in the parquet and the counts."""
    found = [(name, text) for name, texts in PHOTOS.items() for text in texts]
    for shard, lines in enumerate((found[:4], found[4:])):
        members = {}
        for number, (name, text) in enumerate(lines):
            key = f"{shard:05d}{2 * number:04d}"
            about = {"caption": text, "url": f"https://x/{name}", "key": key, "status": "success",
                     "error_message": None, "width": 64, "height": 64, "sha256": "0"}  # fmt: skip
            members |= {
                f"{key}.jpg": photo_bytes(name),
                f"{key}.json": json.dumps(about).encode(),
                f"{key}.txt": text.encode(),
            }
        write_tar(folder / f"{shard:05d}.tar", members)
        stats = {"count": 9, "successes": len(lines), "failed_to_download": 9 - len(lines)}
        (folder / f"{shard:05d}_stats.json").write_text(json.dumps(stats))
        (folder / f"{shard:05d}.parquet").write_bytes(b"PAR1 not read PAR1")


def test_img2dataset_shards(tmp_path):
    img2dataset(tmp_path / "laion")
    index = open_index(tmp_path / "laion", tmp_path / "cache")
    assert index.kind == "webdataset"
    assert rows(index) == captions()
    assert index.key(0) == "000000000_0"
    assert len(set(index.sets.tolist())) == len(set(index.images.tolist())) == len(index)
    images_decode(index)


def clip_benchmark_retrieval(folder: Path) -> None:
    """Lay out what ``clip_benchmark.datasets.builder`` and its ``webdataset_dump`` write."""
    names = list(PHOTOS)
    for shard, part in enumerate((names[:3], names[3:])):
        members = {}
        for name in part:
            key = f"s{names.index(name):07d}"
            members[f"{key}.txt"] = "\n".join(PHOTOS[name]).encode()
            members[f"{key}.jpg"] = photo_bytes(name)
        write_tar(folder / "test" / f"{shard}.tar", members)
    (folder / "test" / "nshards.txt").write_text("2\n")


@pytest.mark.parametrize("name", ["wds", "wds/test", "wds:test"])
def test_clip_benchmark_retrieval(tmp_path, name):
    clip_benchmark_retrieval(tmp_path / "wds")
    index = open_index(tmp_path / name, tmp_path / "cache")
    assert index.kind == "clip_benchmark"
    assert rows(index) == captions()
    assert adjacent_sets(index) == SETS
    images_decode(index)


def test_clip_benchmark_classification(tmp_path):
    classes = ["polar bear", "rocket", "cat"]
    members = {
        "s0000000.cls": b"1", "s0000000.webp": photo_bytes("rocket.jpg", kind="WEBP"),
        "s0000001.cls": b"2", "s0000001.webp": photo_bytes("chelsea.png", kind="WEBP"),
    }  # fmt: skip
    write_tar(tmp_path / "wds" / "test" / "0.tar", members)
    (tmp_path / "wds" / "test" / "nshards.txt").write_text("1")
    (tmp_path / "wds" / "classnames.txt").write_text("\n".join(classes) + "\n")
    index = open_index(tmp_path / "wds", tmp_path / "cache")
    assert [index.label(row) for row in range(2)] == ["rocket", "cat"]
    assert all(index.text(row) for row in range(2))
    write_tar(tmp_path / "wds" / "test" / "0.tar", members | {"s0000000.cls": b"3"})
    assert_refused(tmp_path / "wds", tmp_path / "cache", r"s0000000.*'3'.*3 lines")


def test_clip_benchmark_with_a_shard_missing(tmp_path):
    clip_benchmark_retrieval(tmp_path / "wds")
    (tmp_path / "wds" / "test" / "1.tar").unlink()
    assert_refused(tmp_path / "wds", tmp_path / "cache", r"test/1\.tar")


def test_several_splits_must_be_named(tmp_path):
    clip_benchmark_retrieval(tmp_path / "wds")
    shutil.copytree(tmp_path / "wds" / "test", tmp_path / "wds" / "train")
    assert_refused(tmp_path / "wds", tmp_path / "cache", r"wds/test.*wds/train")
    assert len(open_index(tmp_path / "wds" / "train", tmp_path / "cache")) == len(captions())
    with pytest.raises(UserError, match=r"wds has no split 'val'.*dataset_NAME.json.*wds/val"):
        open_index(tmp_path / "wds:val", tmp_path / "cache")


def test_names_that_look_alike_stay_two(tmp_path):
    members = {}
    for name in ("a/IMG 1", "a/img-1", "b/IMG 1"):
        members |= {f"{name}.jpg": photo_bytes("coffee.png"), f"{name}.txt": name.encode()}
    write_tar(tmp_path / "wds" / "00000.tar", members)
    index = open_index(tmp_path / "wds", tmp_path / "cache")
    assert len(set(index.sets.tolist())) == 3
    assert len({index.key(row) for row in range(3)}) == 3


def test_groups_join_both_sources(tmp_path):
    """A photo listed by the real source and edited by the other is one group."""
    from cfaug.data.shards.shards import write_shards
    from tests.data.making import pair

    copy_photos(tmp_path / "photos")
    lines = [{"image": "coffee.png", "caption": "coffee", "image_id": 391895}]
    (tmp_path / "photos" / "captions.jsonl").write_text(json.dumps(lines[0]))
    write_shards([pair(0, group="391895")], tmp_path / "cf")
    real, edited = (open_index(tmp_path / n, tmp_path / "cache") for n in ("photos", "cf"))
    assert real.groups[0] == edited.groups[0] == edited.groups[1]


def test_an_unknown_form_lists_the_known_ones(tmp_path):
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "notes.md").write_text("nothing")
    with pytest.raises(UserError) as caught:
        open_index(tmp_path / "odd", tmp_path / "cache")
    assert str(tmp_path / "odd") in str(caught.value)
    assert all(reader.description in str(caught.value) for reader in READERS)
    assert_refused(tmp_path / "nowhere", tmp_path / "cache", r"no folder .*nowhere")
    assert not os.path.exists(tmp_path / "cache")
