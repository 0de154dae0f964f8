"""Class-labelled test sets as they are released; the files are written by hand."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.index import open_index
from cfaug.data.sources import find_reader
from tests.data.hostile import assert_refused
from tests.data.making import labels, noise_image


def cifar(folder, count=5, *, fine=False, classes=("cat", "dog")):
    folder.mkdir()
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


@pytest.mark.parametrize("fine", [False, True])
def test_cifars_pixels_and_classes_come_back(tmp_path, fine):
    pixels = cifar(tmp_path / "cifar", fine=fine)
    index = open_index(tmp_path / "cifar", tmp_path / "index")
    assert index.kind == "cifar_binary"
    assert labels(index) == ["cat", "dog", "cat", "dog", "cat"]
    assert index.text(1) == "a photo of a dog"
    for row in range(len(index)):
        image = np.asarray(decode_image(index.read_image(row), "it"))
        assert (image == pixels[row].transpose(1, 2, 0)).all()


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


def test_parquet_of_the_hub_is_read_by_its_test_split_and_names(tmp_path):
    hub(tmp_path / "set/data/train-00000-of-00001.parquet", values=(0, 0, 0, 0))
    hub(tmp_path / "set/data/test-00000-of-00001.parquet")
    index = open_index(tmp_path / "set", tmp_path / "index")
    assert index.kind == "labelled_parquet"
    assert labels(index) == ["bee", "ant", "bee"]
    assert index.read_image(2) == noise_image(2)


def test_other_columns_and_words_for_classes(tmp_path):
    hub(tmp_path / "a/test.parquet", label="fine_label", image="img")
    assert labels(open_index(tmp_path / "a", tmp_path / "index")) == ["bee", "ant", "bee"]
    hub(tmp_path / "b/all.parquet", values=("wasp", "fly"), names=None)
    assert labels(open_index(tmp_path / "b", tmp_path / "index")) == ["wasp", "fly"]
    hub(tmp_path / "c/all.parquet", names=None)
    assert labels(open_index(tmp_path / "c", tmp_path / "index")) == ["00001", "00000", "00001"]


def test_a_class_that_the_schema_does_not_name(tmp_path):
    hub(tmp_path / "set/test.parquet", values=(0, 2))
    with pytest.raises(UserError, match=r"row 2: class 2; the file's schema names 2"):
        open_index(tmp_path / "set", tmp_path / "index")


def test_a_configurations_folder_is_looked_into(tmp_path):
    hub(tmp_path / "set/plain_text/train-00000-of-00001.parquet", values=(0, 0))
    hub(tmp_path / "set/plain_text/test-00000-of-00001.parquet", image="img")
    assert labels(open_index(tmp_path / "set", tmp_path / "index")) == ["bee", "ant", "bee"]
    hub(tmp_path / "set/other/test-00000-of-00001.parquet")
    with pytest.raises(UserError, match=r"several sets.*set/other, .*set/plain_text"):
        open_index(tmp_path / "set", tmp_path / "index")


def test_another_split_is_named_and_the_line_says_which_are_not_read(tmp_path):
    """The test split is the default of a test; training on it must not go unseen."""
    hub(tmp_path / "set/data/train-00000-of-00001.parquet", values=(0, 0, 0, 1))
    hub(tmp_path / "set/data/test-00000-of-00001.parquet")
    hub(tmp_path / "set/data/extra-00000-of-00002.parquet")
    index = open_index(tmp_path / "set", tmp_path / "index")
    said = index.reading.line("real", "set")
    for name in ("train", "extra"):
        assert f"not read: its split {name}, {tmp_path / 'set'}:{name}" in said
    train = open_index(f"{tmp_path / 'set'}:train", tmp_path / "index")
    assert labels(train) == ["ant", "ant", "ant", "bee"]
    assert train.kind == index.kind
    assert "not read" not in train.reading.line("real", "set")
    assert labels(open_index(f"{tmp_path / 'set'}:test", tmp_path / "index")) == labels(index)
    with pytest.raises(UserError, match=r"has no split 'dev'.*set.*:test \(1 file\)"):
        open_index(f"{tmp_path / 'set'}:dev", tmp_path / "index")


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


def test_a_split_without_classes_alone_is_named(tmp_path):
    hub(tmp_path / "set/test-00000-of-00001.parquet", values=(-1, 1))
    assert_refused(tmp_path / "set", tmp_path / "index", r"row 1: -1 is not a class")


def test_cifar_in_the_folder_of_its_archive(tmp_path):
    (tmp_path / "cifar10").mkdir()
    cifar(tmp_path / "cifar10/cifar-10-batches-bin")
    index = open_index(tmp_path / "cifar10", tmp_path / "index")
    assert labels(index) == ["cat", "dog", "cat", "dog", "cat"]


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
    with pytest.raises(UserError, match=r"row 2: the caption(.|\n)*row 3: the caption is empty"):
        open_index(tmp_path / "set", tmp_path / "index")


def test_an_import_of_classes_alone_is_not_taken_for_one_of_captions(tmp_path, monkeypatch):
    """The same file was imported before with its classes as captions: it is imported again."""
    hub_with_text(tmp_path / "set/test.parquet", ["a bee flies", "an ant", "two bees"])
    with monkeypatch.context() as patch:
        patch.setattr("cfaug.data.sources.labelled.CAPTION_COLUMNS", ())
        assert open_index(tmp_path / "set", tmp_path / "index").text(0) == "a photo of a bee"
    assert open_index(tmp_path / "set", tmp_path / "index").text(0) == "a bee flies"


def test_which_columns_are_read_is_said(tmp_path):
    hub_with_text(tmp_path / "set/test.parquet", ["a bee flies", "an ant", "two bees"])
    found = find_reader(tmp_path / "set").describe(tmp_path / "set")
    assert (found.used, found.unused) == (("image", "label", "text"), ("width",))
