"""N38: lists that were refused by a sentence about something else, or that can simply be read."""

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
from tests.data.layouts import TEXTS, captions_csv, images, table
from tests.data.making import texts
from tests.properties import examples

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
