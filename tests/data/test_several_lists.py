"""N5: of several lists of a folder none is chosen in silence."""

from __future__ import annotations

import json

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from tests.data.hostile import assert_refused
from tests.data.layouts import TEXTS, images, jsonl, parquet, sides, table
from tests.data.making import texts

WRITERS = {
    "csv": lambda file, rows: table(file, ["image", "caption"], rows),
    "tsv": lambda file, rows: table(file, ["image", "caption"], rows, "\t"),
    "txt": lambda file, rows: table(file, ["image", "caption"], rows),
    "jsonl": lambda file, rows: jsonl(file, [{"image": i, "caption": c} for i, c in rows]),
    "json": lambda file, rows: file.write_text(
        json.dumps([{"image": i, "caption": c} for i, c in rows])
    ),
    "parquet": lambda file, rows: parquet(
        file, {"image": [i for i, _ in rows], "caption": [c for _, c in rows]}
    ),
}


def write_list(file, suffix=""):
    """Write a list whose captions name it, in the format of its extension."""
    rows = [(f"{name}.png", f"{text}{suffix}") for name, text in TEXTS.items()]
    WRITERS[file.suffix[1:]](file, rows)


@pytest.mark.parametrize(
    "names",
    [
        ("captions.csv", "captions.jsonl", "captions.tsv"),
        ("captions.csv", "metadata.jsonl"),
        ("captions.txt", "captions.json"),
        ("metadata.csv", "metadata.parquet"),
        ("pairs.csv", "results.csv", "annotations.json"),
    ],
)
def test_several_lists_are_refused_by_name_and_each_can_be_named(tmp_path, names):
    """N5: captions.csv was read, with no word of the others."""
    images(tmp_path / "set")
    for name in names:
        write_list(tmp_path / "set" / name, f" of {name}")
    with pytest.raises(UserError) as caught:
        open_index(tmp_path / "set", tmp_path / "cache")
    said = str(caught.value)
    assert "several lists of images and captions" in said
    assert [name for name in names if name not in said] == []
    assert "name the one to read, such as" in said
    for name in names:
        index = open_index(tmp_path / "set" / name, tmp_path / "cache")
        assert texts(index) == [f"{text} of {name}" for text in TEXTS.values()]
        others = [one for one in names if one != name]
        assert sorted(index.reading.left_out) == sorted(others)
        assert f"not read: {others[0]}" in index.reading.line("real", "set") or others[1:]


def test_other_tables_beside_the_list_are_named_as_unread(tmp_path):
    """N5: a list without captions does not compete, and is said not to be read."""
    images(tmp_path / "set")
    write_list(tmp_path / "set" / "captions.csv")
    table(tmp_path / "set" / "metadata.csv", ["file_name", "width"], [("a.png", "8")])
    write_list(tmp_path / "set" / "old.csv", " old")
    index = open_index(tmp_path / "set", tmp_path / "cache")
    assert texts(index) == [*TEXTS.values()]
    assert "not read: metadata.csv; not read: old.csv" in index.reading.line("real", "set")


def test_a_list_of_labels_may_be_named_too(tmp_path):
    images(tmp_path / "set")
    write_list(tmp_path / "set" / "captions.csv")
    rows = [(f"{n}.png", n * 2) for n in TEXTS]
    table(tmp_path / "set" / "labels.csv", ["image", "label"], rows)
    assert texts(open_index(tmp_path / "set", tmp_path / "cache")) == [*TEXTS.values()]
    index = open_index(tmp_path / "set" / "labels.csv", tmp_path / "cache")
    assert index.kind == "label_list"
    assert [index.label(row) for row in range(3)] == ["aa", "bb", "cc"]


def test_two_lists_above_paired_folders_are_refused(tmp_path):
    sides(tmp_path / "set", "original", "counterfactual")
    for name in ("captions.csv", "captions.tsv"):
        write_list(tmp_path / "set" / name)
    assert_refused(tmp_path / "set", tmp_path / "cache", r"captions\.csv, captions\.tsv")


def test_parquet_with_images_inside_is_no_list_to_name(tmp_path):
    """It is named by its folder, as before."""
    cells = [{"bytes": b"", "path": f"{name}.png"} for name in TEXTS]
    parquet(tmp_path / "set" / "train.parquet", {"image": cells, "text": [*TEXTS.values()]})
    with pytest.raises(UserError, match="is a file: name the folder"):
        open_index(tmp_path / "set" / "train.parquet", tmp_path / "cache")
