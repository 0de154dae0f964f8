"""Lists about photos: SNLI-VE, the csv files of XMAI's authors, what methods made of captions."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.sources.xmai import read_modified_captions
from tests.data.hostile import assert_refused
from tests.data.layouts import jsonl, table
from tests.data.making import noise_image

SERIES = "{}    {}\nName: id, dtype: int64"


def rows(index) -> list[tuple[object, ...]]:
    of = (index.key, index.group_name, index.text, index.label, index.extra_row)
    return [tuple(part(row) for part in of) for row in range(len(index))]


def photos(folder: Path, *names: str) -> dict[str, bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    images = {name: noise_image(number, kind="JPEG") for number, name in enumerate(names)}
    for name, data in images.items():
        (folder / name).write_bytes(data)
    return images


def pair(photo, number, label, text, **changes):
    return {
        "annotator_labels": [label], "captionID": f"{photo}.jpg#{number[0]}", "gold_label": label,
        "pairID": f"{photo}.jpg#{number}", "sentence1": f"Premise of {photo}.",
        "sentence2": text, "Flickr30K_ID": photo, **changes,
    }  # fmt: skip


PAIRS = [
    pair("10", "0r1e", "entailment", "A man sleeps. "),
    pair("20", "1r1n", "neutral", "It  is a dog."),
    pair("10", "0r1n", "-", "Nobody agrees."),
    pair("10", "2r1c", "contradiction", "None"),
]


@pytest.fixture
def snli(tmp_path):
    folder = tmp_path / "ve"
    photos(folder / "flickr30k-images", "10.jpg", "20.jpg", "30.jpg")
    jsonl(folder / "snli_ve_dev.jsonl", PAIRS)
    return folder


def test_snli_ve_is_hypotheses_about_photos_with_premise_and_label(snli, tmp_path):
    index = open_index(snli, tmp_path / "cache")
    premise, pair_id = "premise", "pair_id"
    assert rows(index) == [
        ("10_0", "10.jpg", "A man sleeps.", "entailment",
         {premise: "Premise of 10.", pair_id: "10.jpg#0r1e"}),
        ("10_1", "10.jpg", "None", "contradiction",
         {premise: "Premise of 10.", pair_id: "10.jpg#2r1c"}),
        ("20_0", "20.jpg", "It is a dog.", "neutral",
         {premise: "Premise of 20.", pair_id: "20.jpg#1r1n"}),
    ]  # fmt: skip
    assert index.images.tolist() == [0, 0, 1]
    assert index.read_image(2) == (snli / "flickr30k-images" / "20.jpg").read_bytes()
    said = index.reading.line("source", "ve")
    assert "read as SNLI-VE (3 classes)" in said
    assert "1 examples without a gold label" in said
    assert "1 other images" in said


def test_a_split_is_named_with_the_folder_or_by_its_file(snli, tmp_path):
    cache = tmp_path / "cache"
    jsonl(snli / "snli_ve_test.jsonl", [pair("20", "1r1n", "neutral", "another dog")])
    dev = rows(open_index(f"{snli}:dev", cache))
    assert rows(open_index(snli / "snli_ve_dev.jsonl", cache)) == dev
    assert len(dev) == 3
    assert [row[2] for row in rows(open_index(f"{snli}:test", cache))] == ["another dog"]
    assert_refused(snli, cache, r"several splits; name one: .*ve:dev, .*ve:test")
    assert_refused(f"{snli}:train", cache, r"no split 'train'")


def test_photos_elsewhere_are_permitted_also_behind_a_link(snli, tmp_path):
    (snli / "flickr30k-images").rename(tmp_path / "flickr")
    with pytest.raises(
        UserError, match=r"line 1: there is no image '10.jpg'.*image_roots=\[FOLDER\]"
    ):
        open_index(snli, tmp_path / "cache")
    permitted = rows(open_index(snli, tmp_path / "cache", [tmp_path / "flickr"]))
    (snli / "images").symlink_to(tmp_path / "flickr")
    assert_refused(
        snli, tmp_path / "cache", r"images is a link that leads out of .*flickr; it is not"
    )
    assert rows(open_index(snli, tmp_path / "cache", [tmp_path / "flickr"])) == permitted


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (pair("40", "0r1e", "entailment", "x"), "line 5: there is no image '40.jpg'"),
        (pair("10", "9r1e", "maybe", "x"),
         "line 5: the label 'maybe' is invalid: choose from entailment, neutral, contradiction"),
        (pair("10", "9r1e", None, "x"), "line 5: the label None is invalid"),
        (pair("10", "9r1e", "neutral", " "), "line 5: the caption is empty"),
        (pair("10", "9r1e", "neutral", "x", sentence1=None), "line 5, sentence1: the caption"),
        (pair("10", "9r1e", "neutral", "x", Flickr30K_ID=""), "line 5: 'Flickr30K_ID' should be"),
        (pair("10", "9r1e", "neutral", "x", Flickr30K_ID="../../x"), "leads out of"),
        (pair("10", "9r1e", "neutral", "x", pairID=None), "line 5: 'pairID' should be a text"),
        (pair("20", "1r1n", "neutral", "another text"), "the pair '20.jpg#1r1n' is duplicated"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_used_is_named(snli, tmp_path, line, said):
    jsonl(snli / "snli_ve_dev.jsonl", [*PAIRS, line])
    with pytest.raises(UserError) as caught:
        open_index(snli, tmp_path / "cache")
    assert said in str(caught.value)


def test_lines_that_are_there_twice_and_other_encodings(snli, tmp_path):
    file = snli / "snli_ve_dev.jsonl"
    jsonl(file, [*PAIRS, PAIRS[0]])
    index = open_index(snli, tmp_path / "cache")
    assert len(index) == 3
    assert "1 examples that are there twice" in index.reading.line("source", "ve")
    with file.open("ab") as handle:
        handle.write(
            json.dumps(pair("10", "9r1e", "neutral", "café"), ensure_ascii=False).encode("latin-1")
        )
    assert_refused(snli, tmp_path / "cache", "line 6 is not UTF-8")


OBJECTS = ["", "image_id", "file", "url", "objects", "attributes", "original"]


def detected(tmp_path, *lines, columns=OBJECTS):
    folder = tmp_path / "coco"
    photos(folder / "images", "000000000007.jpg", "000000000008.jpg")
    table(folder / "objects.csv", columns, lines)
    return folder


def coco_line(number, photo, text, objects="['dog', \"man's hat\"]", attributes="['wet', '']"):
    name = f"{photo:012d}.jpg"
    return [str(number), SERIES.format(number, photo), name, "a url", objects, attributes, text]


def test_xmai_s_csv_of_ms_coco_has_detections_and_leaves_duplicates_out(tmp_path):
    folder = detected(
        tmp_path, coco_line(0, 7, "A dog. "), coco_line(1, 8, "A dog. ", "[]", "[]"),
        coco_line(2, 7, "A  hat."), coco_line(3, 7, "A dog. "),
    )  # fmt: skip
    both = [
        {
            "label": "dog",
            "score": None,
            "box": None,
            "attributes": [{"name": "wet", "score": None}],
        },
        {"label": "man's hat", "score": None, "box": None, "attributes": []},
    ]
    expected = [
        ("000000000007_0", "7", "A dog.", None, {"detections": both}),
        ("000000000007_1", "7", "A hat.", None, {"detections": both}),
        ("000000000008_0", "8", "A dog.", None, {"detections": []}),
    ]
    index = open_index(folder, tmp_path / "cache")
    assert rows(index) == expected
    assert rows(open_index(folder / "objects.csv", tmp_path / "cache")) == expected
    said = index.reading.line("source", "coco")
    assert "columns not used: url" in said
    assert "1 duplicated caption" in said


def test_one_s_own_csv_names_files_and_any_label(tmp_path):
    lines = [["a/Dog 1.jpg", "a dog", "['dog']", "['__no_attribute__']", "animal"]]
    columns = ["file", "text", "objects", "attributes", "label"]
    folder = detected(tmp_path, *lines, columns=columns)
    photos(folder / "a", "Dog 1.jpg")
    [(key, group, text, label, extra)] = rows(open_index(folder, tmp_path / "cache"))
    assert (group, text, label) == ("a/Dog 1.jpg", "a dog", "animal")
    assert key.startswith("a-dog-1-")
    assert extra["detections"][0]["attributes"] == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (coco_line(1, 8, "a dog", "['dog']", "['wet', 'big']"), "1 objects and 2 attributes"),
        (coco_line(1, 8, "a dog", "[dog]"), "objects should be a list of texts in quotes"),
        (coco_line(1, 8, "a dog", "[__import__('os')]"), "nothing of a cell is run"),
        (coco_line(1, 8, "a dog", "[' ']", "['']"), "the label of an object"),
        (coco_line(1, 9, "a dog"), "there is no image '000000000009.jpg'"),
        (coco_line(1, 8, " "), "the caption is empty"),
        (["1", "dog", "x.jpg", "", "[]", "[]", "a dog"], "image_id should be a number"),
    ],
)  # fmt: skip
def test_a_row_of_a_csv_that_cannot_be_used_is_named(tmp_path, line, said):
    folder = detected(tmp_path, coco_line(0, 7, "a dog"), line)
    with pytest.raises(UserError) as caught:
        open_index(folder, tmp_path / "cache")
    assert said in str(caught.value)
    assert "objects.csv, line 4" in str(caught.value)  # a printed Series has two lines


def test_a_list_with_such_columns_and_no_lists_in_them_is_a_plain_list_of_captions(tmp_path):
    folder = tmp_path / "own"
    photos(folder, "a.jpg")
    columns = ["image", "caption", "objects", "attributes"]
    table(folder / "captions.csv", columns, [["a.jpg", "a dog", "dog, cat", "wet, dry"]])
    index = open_index(folder, tmp_path / "cache")
    assert index.kind == "caption_list"
    assert index.extra_row(0) == {"objects": "dog, cat", "attributes": "wet, dry"}


ENCODED = ["", "label", "file", "objects", "attributes", "original", "hypothesis"]


def encoded(number, label, text, size=(200, 200), encode=base64.urlsafe_b64encode):
    data = encode(noise_image(number, size=size, kind="PNG")).decode()
    return ["0", label, data, "['dog']", "['wet']", "a premise", text]


def test_xmai_s_csv_of_snli_ve_holds_the_photos_and_is_imported(tmp_path):
    folder = tmp_path / "ve"
    lines = [
        encoded(1, "neutral", "a dog"), encoded(1, "entailment", "a pet"),
        encoded(2, "contradiction", "a cat", encode=base64.b64encode),
    ]  # fmt: skip
    assert len(lines[0][2]) > 131_072  # beyond the limit of csv for a field
    table(folder / "objects.csv", ENCODED, lines)
    index = open_index(folder, tmp_path / "cache")
    assert [row[2:4] for row in rows(index)] == [
        ("a dog", "neutral"), ("a pet", "entailment"), ("a cat", "contradiction"),
    ]  # fmt: skip
    assert index.groups[0] == index.groups[1] != index.groups[2]
    assert index.read_image(2) == noise_image(2, size=(200, 200), kind="PNG")
    extra = index.extra_row(0)
    assert extra["premise"] == "a premise"
    assert extra["detections"][0]["label"] == "dog"
    assert rows(open_index(folder / "objects.csv", tmp_path / "cache")) == rows(index)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("!" * 2000, "neither a file's name nor base64"),
        (base64.b64encode(b"no image " * 300).decode(), "the photo"),
    ],
)
def test_a_cell_that_is_no_photo_is_named(tmp_path, cell, said):
    line = encoded(1, "neutral", "a dog")
    table(tmp_path / "ve" / "objects.csv", ENCODED, [line, [*line[:2], cell, *line[3:]]])
    with pytest.raises(UserError) as caught:
        open_index(tmp_path / "ve", tmp_path / "cache")
    assert said in str(caught.value)
    assert "objects.csv, line 3" in str(caught.value)


def modified(tmp_path, *lines, name="eda.csv", columns=("image_id", "original", "modified")):
    folder = tmp_path / "modified"
    photos(folder / "images", "000000000007.jpg", "000000000008.jpg")
    table(folder / name, columns, lines)
    return folder


def test_modified_captions_beside_photos_are_sets_as_our_shards_are(tmp_path):
    folder = modified(
        tmp_path, [SERIES.format(0, 7), "A dog runs. ", "A wet dog runs."],
        [SERIES.format(0, 7), "A hat.", "A hat."], [SERIES.format(1, 8), "Gone.", " "],
        [SERIES.format(1, 8), "A cat.", "A red cat."], [SERIES.format(1, 8), "A cat.", "Twice."],
    )  # fmt: skip
    index = open_index(folder, tmp_path / "cache")
    edit = {"edit_kind": "modified", "edit_before": "", "edit_after": "wet"}
    members = rows(index)
    assert [row[:3] for row in members] == [
        ("7-0_0", "7", "A dog runs."), ("7-0_1", "7", "A wet dog runs."),
        ("7-1_0", "7", "A hat."), ("7-1_1", "7", "A hat."),
        ("8-1_0", "8", "A cat."), ("8-1_1", "8", "A red cat."),
    ]  # fmt: skip
    assert [row[4] for row in members[:4]] == [{}, edit, {}, {}]
    assert index.images.tolist() == [0, 0, 1, 1, 2, 2]
    said = index.reading.line("source", "modified")
    assert "1 duplicated rows" in said
    assert "1 rows without any word left" in said
    table(folder / "clare.csv", ["image_id", "original", "modified"], [["7", "A dog.", "A pet."]])
    assert_refused(folder, tmp_path / "cache", r"several lists; name one of .*clare.csv, .*eda.csv")
    assert len(open_index(folder / "clare.csv", tmp_path / "cache")) == 2


def test_hypotheses_keep_label_and_premise(tmp_path):
    columns = ["label", "original", "hypothesis", "modified", "file"]
    line = ["neutral", "a premise", "a dog", "a wet dog", "000000000007.jpg"]
    index = open_index(modified(tmp_path, line, columns=columns), tmp_path / "cache")
    assert [row[3] for row in rows(index)] == ["neutral", "neutral"]
    assert [row[4]["premise"] for row in rows(index)] == ["a premise", "a premise"]
    other = ["neutral", "a premise", "a dog", "a wet dog", ""]
    assert_refused(
        modified(tmp_path, line, other, columns=columns),
        tmp_path / "cache",
        r"line 3 names no photo",
    )


# SNLI-VE as parquet of the Hub: images once, hypotheses with labels by the schema's names.


NAMES = ["entailment", "neutral", "contradiction"]


def write(file, rows, names=NAMES):
    file.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "image": [{"bytes": noise_image(n), "path": None} for n, *_ in rows],
        "filename": [f"{n}.jpg" for n, *_ in rows],
        "premise": ["a premise" for _ in rows],
        "hypothesis": [text for _, text, _ in rows],
        "label": [label for *_, label in rows],
    }
    features = {"label": {"names": names, "_type": "ClassLabel"}}
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(pa.table(columns).replace_schema_metadata(about), file)


ROWS = [(1, "a man", 0), (1, "nobody agrees", -1), (1, "a cat", 2), (2, "a dog", 1)]


def read(index):
    of = (index.group_name, index.text, index.label, index.extra_row)
    return [tuple(part(row) for part in of) for row in range(len(index))]


def test_rows_of_one_image_are_a_set_with_labels_by_name(tmp_path):
    write(tmp_path / "hub" / "data" / "test-00000-of-00001.parquet", ROWS)
    index = open_index(tmp_path / "hub", tmp_path / "cache")
    premise = {"premise": "a premise"}
    assert read(index) == [
        ("1.jpg", "a man", "entailment", premise), ("1.jpg", "a cat", "contradiction", premise),
        ("2.jpg", "a dog", "neutral", premise),
    ]  # fmt: skip
    assert index.images.tolist() == [0, 0, 1]
    assert index.kind == "entailment_parquet"
    assert index.read_image(2) == noise_image(2)
    assert "1 examples without a gold label" in index.reading.line("source", "hub")


def test_a_split_is_named_with_the_folder_and_labels_may_be_words(tmp_path):
    hub = tmp_path / "hub"
    write(hub / "test-00000-of-00001.parquet", ROWS)
    words = [(number, text, "-" if label < 0 else NAMES[label]) for number, text, label in ROWS]
    write(hub / "dev-00000-of-00001.parquet", words)
    dev = read(open_index(f"{hub}:dev", tmp_path / "cache"))
    assert dev == read(open_index(f"{hub}:test", tmp_path / "cache"))
    assert_refused(hub, tmp_path / "cache", "several splits; name one")


@pytest.mark.parametrize(
    ("row", "names", "said"),
    [
        ((3, "a dog", 7), NAMES, "row 5: the label 7 has no name"),
        ((3, "a dog", 1), ["yes", "no", "maybe"], "row 1: the label 'yes' is invalid"),
        ((3, " ", 1), NAMES, "row 5: the caption is empty"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, row, names, said):
    write(tmp_path / "hub" / "a.parquet", [*ROWS, row], names)
    assert_refused(tmp_path / "hub", tmp_path / "cache", said)


# Lists of modified captions in the forms that the authors of XMAI released.


def listed(file, columns, *rows):
    table(file, columns, rows)
    return file


def test_ms_coco_has_printed_series_and_five_captions_a_photo(tmp_path):
    file = listed(
        tmp_path / "coco.csv", ["image_id", "original", "modified"],
        [SERIES.format(0, 397133), "A dog runs. ", "A wet dog runs."],
        [SERIES.format(0, 397133), "None", "nan"],
        [SERIES.format(10, 37), "A dog runs. ", "A dog."],
        [SERIES.format(0, 397133), "A dog runs. ", "Runs"],
    )  # fmt: skip
    captions = read_modified_captions(file)
    assert captions.duplicates == 1
    assert [(o.key, o.group, o.image) for o in captions.rows] == [
        ("397133-0", "397133", "000000397133.jpg"),
        ("397133-1", "397133", "000000397133.jpg"),
        ("37-0", "37", "000000000037.jpg"),
    ]
    # No text is taken for a missing value, and none is tidied: published tables compare them raw.
    assert [(o.original, o.modified) for o in captions.rows[:2]] == [
        ("A dog runs. ", "A wet dog runs."), ("None", "nan"),
    ]  # fmt: skip
    assert {(o.label, o.premise) for o in captions.rows} == {(None, None)}


def test_snli_ve_has_the_premise_as_the_original_and_its_rows_are_the_keys(tmp_path):
    columns = ["", "Unnamed: 0", "label", "original", "hypothesis", "modified"]
    file = listed(
        tmp_path / "ve.csv", columns,
        [0, 0, "contradiction", "a child walks", "a kid sits", "a green kid sits"],
        [1, 1, "neutral", "a child walks", "a kid sits", "a kid"],
        [2, 2, "entailment", "a dog runs", "a kid sits", ""],
    )  # fmt: skip
    captions = read_modified_captions(file)
    assert captions.duplicates == 1
    first, last = captions.rows
    assert (first.key, first.group, first.label) == ("00000000", "a child walks", "contradiction")
    assert (first.original, first.modified) == ("a kid sits", "a green kid sits")
    assert (last.key, last.premise, last.modified) == ("00000002", "a dog runs", "")
    assert last.image is None


def test_what_the_released_script_writes_is_called_augmented_and_names_files(tmp_path):
    file = listed(
        tmp_path / "own.csv", ["file", "original", "augmented"],
        ["a/Dog 1.jpg", "a dog", "a big dog"], ["a/Dog 1.jpg", "a pet", "a big pet"],
    )  # fmt: skip
    first, second = read_modified_captions(file).rows
    assert first.image == first.group == "a/Dog 1.jpg"
    assert first.key != second.key


@pytest.mark.parametrize(
    ("columns", "row", "said"),
    [
        (["image_id", "original", "modified"], ["dog", "a", "b"], "a pandas Series of one"),
        (["image_id", "original", "modified"], [SERIES.format(1, "x"), "a", "b"], "image_id"),
        (["image_id", "original", "modified"], ["7", " ", "b"], "the original text is empty"),
        (["original", "caption"], ["a", "b"], "one column should be called modified or augmented"),
        (["original", "modified", "augmented"], ["a", "b", "c"], "one column should be called"),
        (["image_id", "modified"], ["7", "b"], "'original' should be a text"),
        (["label", "original", "hypothesis", "modified"], ["maybe", "p", "a", "b"],
         "the label 'maybe' is invalid: choose from entailment, neutral, contradiction"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_line(tmp_path, columns, row, said):
    file = listed(tmp_path / "x.csv", columns, row)
    with pytest.raises(UserError) as caught:
        read_modified_captions(file)
    assert said in str(caught.value)
    assert f"{file}, line 2" in str(caught.value)


def test_other_encodings_endings_and_empty_files_are_refused(tmp_path):
    file = tmp_path / "x.csv"
    file.write_bytes("original,modified\ncafé,cafe\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"line 2 is not UTF-8"):
        read_modified_captions(file)
    file.write_text("original,modified\n")
    with pytest.raises(UserError, match="holds no modified caption"):
        read_modified_captions(file)
    with pytest.raises(UserError, match=r"choose from \.csv"):
        read_modified_captions(tmp_path / "x.pkl")


def test_a_photo_that_pandas_wrote_as_a_float_is_the_whole_number(tmp_path):
    columns = ["image_id", "original", "modified"]
    file = listed(tmp_path / "x.csv", columns, ["7.0", "a dog", "a big dog"], [7, "a", "a pet"])
    first, second = read_modified_captions(file).rows
    assert (first.group, first.image) == (second.group, second.image) == ("7", "000000000007.jpg")
