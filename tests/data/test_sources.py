from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.index import Index, open_index
from cfaug.data.sources import READERS
from tests.data.hostile import assert_refused
from tests.data.making import PHOTOS, labels, noise_image, photo_bytes, photo_folder, write_tar

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
    captioned = [(name, text) for name, texts in PHOTOS.items() for text in texts]
    for shard, lines in enumerate((captioned[:4], captioned[4:])):
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
    assert adjacent_sets(index) == [len(texts) for texts in PHOTOS.values()]
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
    assert_refused(
        tmp_path / "wds:val",
        tmp_path / "cache",
        r"wds has no split 'val'.*dataset_NAME.json.*wds/val",
    )


def test_names_that_look_alike_stay_two(tmp_path):
    members = {}
    for name in ("a/IMG 1", "a/img-1", "b/IMG 1"):
        members |= {f"{name}.jpg": photo_bytes("coffee.png"), f"{name}.txt": name.encode()}
    write_tar(tmp_path / "wds" / "00000.tar", members)
    index = open_index(tmp_path / "wds", tmp_path / "cache")
    assert len(set(index.sets.tolist())) == 3
    assert len({index.key(row) for row in range(3)}) == 3


def test_an_unknown_form_lists_the_known_ones(tmp_path):
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "notes.md").write_text("nothing")
    with pytest.raises(UserError) as caught:
        open_index(tmp_path / "odd", tmp_path / "cache")
    assert str(tmp_path / "odd") in str(caught.value)
    assert all(reader.description in str(caught.value) for reader in READERS)
    assert_refused(tmp_path / "nowhere", tmp_path / "cache", r"no folder .*nowhere")
    assert not os.path.exists(tmp_path / "cache")


# Class-labelled test sets as they are released.


def cifar(folder, count=5, *, fine=False, classes=("cat", "dog")):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(3)
    pixels = rng.integers(0, 256, (count, 3, 32, 32), np.uint8)
    records = []
    for i in range(count):
        head = bytes([7, i % 2]) if fine else bytes([i % 2])
        records.append(head + pixels[i].tobytes())
    names = "fine_label_names.txt" if fine else "batches.meta.txt"
    (folder / names).write_text("\n".join(classes) + "\n\n")
    (folder / ("test.bin" if fine else "test_batch.bin")).write_bytes(b"".join(records))
    return pixels


@pytest.mark.parametrize(("home", "fine"), [("cifar-10-batches-bin", False), ("", True)])
def test_cifars_pixels_and_classes_come_back(tmp_path, home, fine):
    pixels = cifar(tmp_path / "cifar" / home, fine=fine)
    index = open_index(tmp_path / "cifar", tmp_path / "index")
    assert index.kind == "cifar_binary"
    assert labels(index) == ["cat", "dog", "cat", "dog", "cat"]
    assert index.text(1) == "a photo of a dog"
    for row in range(len(index)):
        image = np.asarray(decode_image(index.read_image(row), "it"))
        assert (image == pixels[row].transpose(1, 2, 0)).all()


@pytest.mark.parametrize(("home", "fine"), [("cifar-10-batches-bin", False), ("", True)])
def test_cifars_training_split_is_named(tmp_path, home, fine):
    cifar(tmp_path / "cifar" / home, fine=fine)
    folder, written = tmp_path / "cifar" / home, []
    names = ("train.bin",) if fine else ("data_batch_1.bin", "data_batch_2.bin")
    for number, name in enumerate(names):
        pixels = np.random.default_rng(number).integers(0, 256, (3, 3, 32, 32), np.uint8)
        heads = [b"\x07" * fine + bytes([i % 2]) for i in range(3)]
        records = (head + image.tobytes() for head, image in zip(heads, pixels, strict=True))
        (folder / name).write_bytes(b"".join(records))
        written += list(pixels)
    index = open_index(f"{tmp_path / 'cifar'}:train", tmp_path / "index")
    assert labels(index) == ["cat", "dog", "cat"] * len(names)
    for row, pixels in enumerate(written):
        image = np.asarray(decode_image(index.read_image(row), "it"))
        assert (image == pixels.transpose(1, 2, 0)).all()
    assert len(open_index(tmp_path / "cifar", tmp_path / "index")) == 5
    with pytest.raises(UserError, match="dev"):
        open_index(f"{tmp_path / 'cifar'}:dev", tmp_path / "index")


def test_a_torn_cifar_and_a_class_too_many_are_named(tmp_path):
    cifar(tmp_path / "torn")
    file = tmp_path / "torn/test_batch.bin"
    file.write_bytes(file.read_bytes()[:-1])
    assert_refused(tmp_path / "torn", tmp_path / "index", "records")
    cifar(tmp_path / "few", classes=("cat",))
    assert_refused(tmp_path / "few", tmp_path / "index", "record 1: class 1")


def hub(file, label="label", values=(1, 0, 1), names=("ant", "bee"), image="image"):
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"bytes": noise_image(i), "path": f"{i}.png"} for i in range(len(values))]
    table = pa.table({image: rows, label: list(values)})
    if names is not None:
        about = {"info": {"features": {label: {"names": list(names), "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(about)})
    pq.write_table(table, file)


def test_other_columns_and_words_for_classes(tmp_path):
    hub(tmp_path / "a/test.parquet", label="fine_label", image="img")
    assert labels(open_index(tmp_path / "a", tmp_path / "index")) == ["bee", "ant", "bee"]
    hub(tmp_path / "b/all.parquet", values=("wasp", "fly"), names=None)
    assert labels(open_index(tmp_path / "b", tmp_path / "index")) == ["wasp", "fly"]
    hub(tmp_path / "c/all.parquet", names=None)
    assert labels(open_index(tmp_path / "c", tmp_path / "index")) == ["00001", "00000", "00001"]


def test_a_class_that_the_schema_does_not_name(tmp_path):
    hub(tmp_path / "set/test.parquet", values=(0, 2))
    assert_refused(
        tmp_path / "set", tmp_path / "index", r"row 2: class 2; the file's schema names 2"
    )


def test_a_configurations_folder_is_looked_into(tmp_path):
    hub(tmp_path / "set/plain_text/train-00000-of-00001.parquet", values=(0, 0))
    hub(tmp_path / "set/plain_text/test-00000-of-00001.parquet", image="img")
    assert labels(open_index(tmp_path / "set", tmp_path / "index")) == ["bee", "ant", "bee"]
    hub(tmp_path / "set/other/test-00000-of-00001.parquet")
    assert_refused(
        tmp_path / "set", tmp_path / "index", r"several sets.*set/other, .*set/plain_text"
    )


def test_another_split_is_named_and_the_line_says_which_are_not_read(tmp_path):
    """The test split is the default of a test; training on it must not go unseen."""
    hub(tmp_path / "set/data/train-00000-of-00001.parquet", values=(0, 0, 0, 1))
    hub(tmp_path / "set/data/test-00000-of-00001.parquet")
    hub(tmp_path / "set/data/extra-00000-of-00002.parquet")
    index = open_index(tmp_path / "set", tmp_path / "index")
    assert labels(index) == ["bee", "ant", "bee"]
    assert index.read_image(2) == noise_image(2)
    said = index.reading.line("real", "set")
    for name in ("train", "extra"):
        assert f"not read: its split {name}, {tmp_path / 'set'}:{name}" in said
    train = open_index(f"{tmp_path / 'set'}:train", tmp_path / "index")
    assert labels(train) == ["ant", "ant", "ant", "bee"]
    assert train.kind == index.kind
    assert "not read" not in train.reading.line("real", "set")
    assert labels(open_index(f"{tmp_path / 'set'}:test", tmp_path / "index")) == labels(index)
    assert_refused(
        f"{tmp_path / 'set'}:dev", tmp_path / "index", r"has no split 'dev'.*set.*:test \(1 file\)"
    )


def test_a_training_split_alone_is_read_if_it_is_named(tmp_path):
    hub(tmp_path / "set/train-00000-of-00001.parquet")
    assert_refused(tmp_path / "set", tmp_path / "index", r"or name .*set:train to take it")
    assert labels(open_index(f"{tmp_path / 'set'}:train", tmp_path / "index"))


def test_imagenets_synonyms_are_read_as_ids_and_its_test_split_has_no_classes(tmp_path):
    names = ["tench, Tinca tinca", *(f"class {i}" for i in range(1, 1000))]
    hub(tmp_path / "set/data/test-00000-of-00001.parquet", values=(-1, -1), names=names)
    hub(tmp_path / "set/data/validation-00000-of-00001.parquet", values=(837, 0, 836), names=names)
    index = open_index(tmp_path / "set", tmp_path / "index")
    assert labels(index) == ["n04356056", "n01440764", "n04355933"]
    assert index.text(1) == "a photo of a tench"


def hub_with_text(file, texts, column="text", values=(1, 0, 1)):
    hub(file, values=values)
    table = pq.read_table(file)
    table = table.append_column(column, pa.array(texts)).append_column("width", pa.array([8] * 3))
    pq.write_table(table, file)


@pytest.mark.parametrize("column", ["text", "caption"])
def test_a_text_beside_a_class_is_the_caption_and_the_class_its_label(tmp_path, column):
    hub_with_text(tmp_path / "set/test.parquet", ["a bee flies", "an ant", "two bees"], column)
    index = open_index(tmp_path / "set", tmp_path / "index")
    assert [index.text(row) for row in range(3)] == ["a bee flies", "an ant", "two bees"]
    assert labels(index) == ["bee", "ant", "bee"]


def test_several_captions_of_a_labelled_image_are_one_set(tmp_path):
    texts = [["a bee", "a bee flies"], ["an ant"], ["two bees"]]
    hub_with_text(tmp_path / "set/data/train-00000-of-00001.parquet", texts, "captions")
    index = open_index(tmp_path / "set", tmp_path / "index")
    assert index.sets.tolist() == index.images.tolist() == [0, 0, 1, 2]
    assert labels(index) == ["bee", "bee", "ant", "bee"]


def test_a_text_that_is_none_is_named_by_its_row(tmp_path):
    hub_with_text(tmp_path / "set/test.parquet", ["a bee", None, " "])
    assert_refused(
        tmp_path / "set",
        tmp_path / "index",
        r"row 2: the caption(.|\n)*row 3: the caption is empty",
    )


def test_a_split_without_classes_alone_is_named(tmp_path):
    hub(tmp_path / "set/test-00000-of-00001.parquet", values=(-1, 1))
    assert_refused(tmp_path / "set", tmp_path / "index", r"row 1: -1 is not a class")
