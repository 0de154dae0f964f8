"""N5: of several lists of a folder none is chosen in silence."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.sources.columns import image_records
from cfaug.data.sources.lists import table_records
from tests.data.hostile import assert_refused
from tests.data.layouts import TEXTS, captions_csv, images, jsonl, parquet, sides, table
from tests.data.making import texts
from tests.properties import examples

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


# N38: lists that were refused by a sentence about something else, or that can simply be read.


COCO = (
    "A man, a dog, and a horse.",
    "A kitchen with a stove, microwave and refrigerator.",
    "a close up of a person eating a hot dog, with ketchup",
    'A sign that says "stop", in red',
)
"""The second is of MS-COCO's captions of 2017 (COCO Consortium, CC BY 4.0)."""


def test_flickr8ks_captions_are_read_to_the_end_of_their_line(tmp_path, capsys):
    """N38: commas without quotes were "nothing that says what they show"."""
    images(tmp_path / "set" / "Images")
    lines = [f"{name}.png,{text}" for name, text in zip(TEXTS, COCO, strict=False)]
    (tmp_path / "set" / "captions.txt").write_text("\n".join(["image,caption", *lines]) + "\n")
    index = open_index(tmp_path / "set", tmp_path / "cache")
    assert texts(index) == list(COCO[:3])
    said = capsys.readouterr().err
    assert "captions.txt: a comma in a caption without quotes is read as such" in said


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.text(st.sampled_from("ab ,;'\"|")).map(lambda text: f"a{text}"), min_size=1))
@example(list(COCO))
def test_whatever_follows_the_first_comma_is_the_caption(tmp_path_factory, captions):
    """N38: quoted or not, as Flickr8k's own file and its copies are."""
    file = tmp_path_factory.mktemp("x") / "captions.txt"
    file.write_text("image,caption\n" + "".join(f"{i}.jpg,{c}\n" for i, c in enumerate(captions)))
    assert [record["caption"] for _, record in image_records(file)] == captions
    table(file, ["image", "caption"], [(f"{i}.jpg", c) for i, c in enumerate(captions)])
    assert [record["caption"] for _, record in image_records(file)] == captions


def test_a_text_of_no_known_form_is_named(tmp_path):
    """N38: a captions.txt without a header was not mentioned."""
    images(tmp_path / "set")
    (tmp_path / "set" / "captions.txt").write_text("a.png a dog\n")
    with pytest.raises(UserError, match=r"what they show \(captions\.txt: of no form that is kno"):
        open_index(tmp_path / "set", tmp_path / "cache")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("captions.csv", ["image,caption", "a.png,a dog"]),
        ("captions.tsv", ["image\tcaption", "a.png\ta dog"]),
        ("captions.jsonl", ['{"image": "a.png", "caption": "a"}'] * 2),
        ("captions.csv", ["image,caption\na.png,a dog", "b.png,a bus"]),
    ],
)
def test_carriage_returns_are_the_cause(tmp_path, name, lines):
    """N38: "put a caption with quotes in quotes"."""
    images(tmp_path / "set")
    (tmp_path / "set" / name).write_bytes("\r".join(lines).encode() + b"\r")
    with pytest.raises(UserError, match=r"lines end in \\r alone, as on old Macs; save the file"):
        open_index(tmp_path / "set", tmp_path / "cache")


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("image;caption;notes (a, b)", ["a.png", "a dog, running", "x"]),
        ("image,caption,notes (a; b)", ["a.png", "a dog", "x;y"]),
        ("image|caption|sizes, in cm; approximate", ["a.png", "a; b, c", "3"]),
        ("image,caption;or text", ["a.png", "a dog"]),
        ('image;caption;"notes; a, b"', ["a.png", "a dog", ""]),
    ],
)
def test_the_separator_is_the_one_that_divides_the_rows_too(tmp_path, header, row):
    """N38: ``image;caption;notes (a, b)`` was "1 field, the header has 2"."""
    mark = header[len("image")]
    file = tmp_path / "captions.csv"
    quoted = [f'"{cell}"' if mark in cell else cell for cell in row]
    file.write_text(f"{header}\n{mark.join(quoted)}\n")
    [(_, record)] = table_records(file)
    assert [*record.values()] == row
    file.write_text(f"{header}\n\n{mark.join(quoted)}\n\n")
    assert [*record.values()] == row


def test_saved_by_datasets_is_said(tmp_path):
    """N38: "dataset_info.json: there should be a list 'images'"."""
    home = tmp_path / "set" / "train"
    home.mkdir(parents=True)
    (home / "dataset_info.json").write_text(json.dumps({"features": {}}))
    (home / "state.json").write_text(json.dumps({"_data_files": []}))
    (home / "data-00000-of-00001.arrow").write_bytes(b"ARROW1")
    (tmp_path / "set" / "dataset_dict.json").write_text(json.dumps({"splits": ["train"]}))
    for name in ("set", "set/train", "set:train"):
        assert_refused(tmp_path / name, tmp_path / "cache", r"written by save_to_disk .*to_parquet")


def test_files_of_datasets_beside_other_data_hide_nothing(tmp_path):
    """N38: ``dataset_infos.json`` of a Hub folder was taken for a list of Karpathy's."""
    captions_csv(tmp_path / "set")
    (tmp_path / "set" / "dataset_infos.json").write_text("{}")
    assert texts(open_index(tmp_path / "set", tmp_path / "cache")) == [*TEXTS.values()]
