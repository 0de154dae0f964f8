from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.sources.lists import is_list_of_texts, list_records, read_texts
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


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match=rf"{name} is not a regular file"):
        read(tmp_path / name)


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
    assert read(file) == [{"": "0", "image": "a.jpg", "caption": "a dog"}]


def test_a_quote_within_a_field_is_a_character(tmp_path):
    file = written(tmp_path, HEAD + 'a.jpg,a 12" disc\n')
    assert read(file)[0]["caption"] == 'a 12" disc'


# Lists in cells: what Python and JSON print is read; the rest is refused, and nothing is run.


# repr and json.dumps write what cannot be printed as escapes; half of a character is no text.
TEXTS = st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=8), max_size=5)


@settings(max_examples=examples(100), deadline=None)
@given(TEXTS)
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
