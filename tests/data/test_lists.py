from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.sources.columns import image_records
from cfaug.data.sources.lists import is_list_of_texts, list_records, read_texts, table_records
from tests.data.hostile import assert_refused
from tests.data.layouts import TEXTS, captions_csv, images, jsonl, parquet, table
from tests.data.making import texts
from tests.properties import examples


def read(file: Path) -> list[dict[str, object]]:
    return [dict(record) for _, record in list_records(file)]


def places(file: Path) -> list[str]:
    return [where.removeprefix(f"{file}, ") for where, _ in list_records(file)]


def written(folder: Path, text: str | bytes, name: str = "captions.csv") -> Path:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


FIELDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)


@given(
    rows=st.lists(st.tuples(FIELDS, FIELDS), max_size=6),
    name=st.sampled_from(["a.csv", "a.tsv", "bars.csv", "semicolons.csv", "tabs.csv"]),
    end=st.sampled_from(["\n", "\r\n"]),
    bom=st.booleans(),
)
def test_what_csv_writes_is_read_back(tmp_path_factory, rows, name, end, bom):
    file = tmp_path_factory.mktemp("lists") / name
    mark = {"a.tsv": "\t", "tabs.csv": "\t", "bars.csv": "|", "semicolons.csv": ";"}.get(name, ",")
    with file.open("w", newline="", encoding="utf-8-sig" if bom else "utf-8") as handle:
        table = csv.writer(handle, delimiter=mark, lineterminator=end, quoting=csv.QUOTE_ALL)
        table.writerows([("image", "caption"), *rows])
    assert read(file) == [{"image": image, "caption": text} for image, text in rows]


@given(records=st.lists(st.dictionaries(FIELDS, FIELDS | st.lists(FIELDS, max_size=2), max_size=3)))
def test_what_json_writes_is_read_back(tmp_path_factory, records):
    folder = tmp_path_factory.mktemp("lists")
    lines = "\n".join(map(json.dumps, records))
    assert read(written(folder, lines, "a.jsonl")) == records
    assert read(written(folder, json.dumps(records), "a.json")) == records


HEAD = "image,caption\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # B8: both were read before, the first as "a dog", the second as one pair of all the rest.
        (HEAD + "a.jpg,a dog, running, fast\n",
         r"line 2: 4 fields, the header has 2: quote captions that contain a comma"),
        (HEAD + 'a.jpg,a\nb.jpg,"a cat\nc.jpg,x\nd.jpg,y\n', r"line 3: a quote opens here"),
        (HEAD + 'a.jpg,"a cat\nb.jpg,"a, b"\n', r"line 2: a quote opens here and is not closed"),
        (HEAD + "a.jpg\n", r"line 2: 1 field, the header has 2"),
        ("image\tcaption\na.jpg\ta\tb\n", r"line 2: 3 fields.* that contain a tab"),
        (HEAD + 'a.jpg,"a "big" dog"\n', r"line 2: .*write its own twice"),
        (HEAD + 'a.jpg,"' + "x" * 200_000 + '"\n', r"line 2: a field is longer than 131,072"),
        ("image,caption,caption\n", r"line 1: the column 'caption' is duplicated"),
        ("image,,caption\n", r"line 1: column 2 of the header has no name"),
        (b"image,caption\na.jpg,caf\xe9\n", r"line 2 is not UTF-8 \(byte 0xe9\)"),
        (b"image,caption\na.jpg,a\0b\n", r"line 2 holds a NUL byte"),
        ((HEAD + "a.jpg,a\n").encode("utf-16"), r"line 1 is not UTF-8"),
    ],
)  # fmt: skip
def test_a_malformed_table_is_refused_with_its_line(tmp_path, text, said):
    file = written(tmp_path, text)
    with pytest.raises(UserError, match=rf"{file}, {said}"):
        read(file)


def test_a_line_without_end_is_not_read_into_memory(tmp_path):
    file = tmp_path / "captions.jsonl"
    with file.open("wb") as handle:
        handle.truncate(2**40)  # a hole of a tebibyte
    with pytest.raises(UserError, match=r"line 1 is longer than 16,777,216 bytes"):
        read(file)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"a": 1}\n\n{"a":\n', r"line 3 is not JSON"),
        ("a.jsonl", "[1]\n", r"line 1 should be a JSON object"),
        ("a.jsonl", '{"a": 1, "a": 2}\n', r"line 1: the name 'a' is duplicated"),
        ("a.jsonl", "[" * 100_000 + "\n", r"line 1 is not JSON"),
        ("a.json", '[{"a": 1}, 2]', r"\[1\] should be a JSON object"),
        ("a.json", '{"a": 1}', r"should be a list of JSON objects"),
        ("a.xlsx", "", r"choose from \.csv, \.json, \.jsonl, \.tsv"),
    ],
)  # fmt: skip
def test_malformed_json_is_refused_with_its_place(tmp_path, name, text, said):
    with pytest.raises(UserError, match=rf"{name}.*{said}"):
        read(written(tmp_path, text, name))


def test_places_are_the_lines_on_which_records_begin(tmp_path):
    file = written(tmp_path, '\ufeffimage,caption\r\n\r\na.jpg,"a\r\nb"\r\n  \r\nb.jpg,"b"\r\n')
    assert places(file) == ["line 3", "line 6"]
    assert places(written(tmp_path, "\n{}\r\n\n{}", "a.jsonl")) == ["line 2", "line 4"]


def test_the_column_that_pandas_writes_for_its_index_may_stay(tmp_path):
    file = written(tmp_path, ",image,caption\n0,a.jpg,a dog\n")
    assert read(file) == [{"image": "a.jpg", "caption": "a dog"}]


def test_a_quote_within_a_field_is_a_character(tmp_path):
    file = written(tmp_path, HEAD + 'a.jpg,a 12" disc\n')
    assert read(file)[0]["caption"] == 'a 12" disc'


# Lists in cells: what Python and JSON print is read; the rest is refused, and nothing is run.


# repr and json.dumps write what cannot be printed as escapes; half of a character is no text.
LISTS = st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=8), max_size=5)


@settings(max_examples=examples(100), deadline=None)
@given(LISTS)
def test_what_python_or_json_prints_of_a_list_of_texts_is_read_back(texts):
    for cell in (repr(texts), texts, f" {texts!r} "):
        assert is_list_of_texts(cell)
        assert read_texts(cell, "it") == texts
    plain = [text for text in texts if text.isascii() and "/" not in text]
    assert read_texts(json.dumps(plain), "it") == plain


@pytest.mark.parametrize(
    "cell",
    [
        "", "dog", "['dog'", "'dog'", "['dog', 3]", "['dog' 'cat']", "[['dog']]",
        "['dog', ['cat']]",
        "[dog]", "['dog', None]", "('dog',)", "{'dog'}", "['dog'] + ['cat']",
        "['dog', 'a'.upper()]",
        "[__import__('os').system('true')]", "[f'{1}']", "[b'dog']", "[u'dog']",
        "['\\x']", "['a\nb']", "[,]", "['a',,]", "[" * 100_000, "['" + "a" * 2**20 + "']",
        "['dog'" + " " * 500_000 + "x]", "['dog'," + " " * 500_000 + "x]",
        "[" + " " * 500_000 + "x]", "['dog" + "\\'" * 200_000 + "]", r"['half \ud800']",
        None, 3, ["dog", 3],
    ],
)  # fmt: skip
def test_anything_else_is_refused(cell):
    with pytest.raises(UserError) as caught:
        read_texts(cell, "line 2, objects")
    assert str(caught.value).startswith("line 2, objects")
    assert len(str(caught.value)) < 300


# Of several lists of a folder none is chosen in silence (N5).


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
        others = [other for other in names if other != name]
        assert sorted(index.reading.left_out) == sorted(others)
        line = index.reading.line("real", "set")
        assert [other for other in others if f"not read: {other}" not in line] == []


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


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.text(st.sampled_from("ab ,;'\"|")).map(lambda text: f"a{text}"), min_size=1))
@example(list(COCO))
def test_whatever_follows_the_first_comma_is_the_caption(tmp_path_factory, captions):
    """N38: quoted or not, as Flickr8k's own file and its copies are."""
    file = tmp_path_factory.mktemp("x") / "captions.txt"
    file.write_text("image,caption\n" + "".join(f"{i}.jpg,{c}\n" for i, c in enumerate(captions)))
    assert [record["caption"] for _, record in image_records(file)] == captions
    table(file, ["image", "caption"], [(f"{i}.jpg", c) for i, c in enumerate(captions)])
    assert [record["caption"] for _, record in image_records(file)] == captions


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
    assert_refused(
        tmp_path / "set",
        tmp_path / "cache",
        r"lines end in \\r alone, as on old Macs; save the file",
    )


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


def test_parquet_with_images_inside_is_no_list_to_name(tmp_path):
    """It is named by its folder, as before."""
    cells = [{"bytes": b"", "path": f"{name}.png"} for name in TEXTS]
    parquet(tmp_path / "set" / "train.parquet", {"image": cells, "text": [*TEXTS.values()]})
    with pytest.raises(UserError, match="is a file: name the folder"):
        open_index(tmp_path / "set" / "train.parquet", tmp_path / "cache")


def test_objects_a_line_in_a_json_are_named(tmp_path):
    """POPE's lists are called .json."""
    file = tmp_path / "coco_pope_random.json"
    file.write_text('{"image": "1.jpg"}\n{"image": "2.jpg"}\n')
    with pytest.raises(UserError, match=r"Extra data.* is called coco_pope_random\.jsonl"):
        list(list_records(file))
