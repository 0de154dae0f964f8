"""Captions that are missing, or are what programs write for a missing value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.index.reading import ScanReport
from cfaug.data.sources.odd_texts import is_missing
from tests.data.hostile import assert_refused
from tests.data.layouts import cells, images, jsonl, parquet, table
from tests.data.making import noise_image, write_tar

NAMES = ("a.png", "b.png", "c.png")


def many(folder: Path, missing: list[str], rows: int) -> None:
    """Write a list of captions of three images, the first ones missing."""
    images(folder)
    texts = missing + [f"a photo of thing {i}" for i in range(rows - len(missing))]
    listed = [(NAMES[i % 3], text) for i, text in enumerate(texts)]
    table(folder / "captions.csv", ["image", "caption"], listed)


def report(folder: Path, cache: Path) -> ScanReport:
    scanned = open_index(folder, cache).reading
    assert scanned is not None
    return scanned


@pytest.mark.parametrize("text", ["nan", "None", "NULL", "N/A", "<NA>", "null", "#N/A", "NaN"])
def test_more_missing_captions_than_a_hundredth_are_refused_with_their_number(tmp_path, text):
    many(tmp_path / "x", [text, text], 12)
    with pytest.raises(UserError) as caught:
        open_index(tmp_path / "x", tmp_path / "cache")
    for words in ("2 of 12 rows", repr(text), "2 times", "missing value", f"'{text}.'"):
        assert words in str(caught.value)


def test_a_single_one_is_said(tmp_path):
    many(tmp_path / "x", ["None"], 3)
    [note] = report(tmp_path / "x", tmp_path / "cache").notes
    assert "1 of 3 rows" in note


def test_few_missing_captions_are_said(tmp_path):
    many(tmp_path / "x", ["NULL", "NULL"], 200)
    scanned = report(tmp_path / "x", tmp_path / "cache")
    assert scanned.rows == 200
    [note] = scanned.notes
    assert "2 of 200 rows have a caption" in note
    assert "'NULL' 2 times" in note
    assert f"note: {note}" in scanned.line("real", "x")


def test_a_caption_of_such_a_word_is_kept_with_a_full_stop(tmp_path):
    many(tmp_path / "x", ["None.", "null and void", "a nan bread"], 12)
    assert report(tmp_path / "x", tmp_path / "cache").notes == ()


def test_missing_captions_of_a_webdataset_and_missing_negatives(tmp_path):
    files = {}
    for i in range(3):
        files |= {f"{i}.png": noise_image(i), f"{i}.txt": b"nan" if i else b"a dog"}
    write_tar(tmp_path / "x" / "00000.tar", files)
    assert_refused(tmp_path / "x", tmp_path / "cache", "2 of 3 rows .*'nan' 2 times")
    images(tmp_path / "y")
    rows = [(name, f"a thing {name}", "None") for name in NAMES]
    table(tmp_path / "y" / "captions.csv", ["image", "caption", "neg_caption"], rows)
    assert_refused(tmp_path / "y", tmp_path / "cache", "3 of 3 rows .*'None' 3 times")


def test_a_class_of_such_a_name_is_a_class(tmp_path):
    images(tmp_path / "x")
    rows = [("a.png", "none"), ("b.png", "cancer"), ("c.png", "none")]
    table(tmp_path / "x" / "labels.csv", ["image", "label"], rows)
    scanned = report(tmp_path / "x", tmp_path / "cache")
    assert (scanned.classes, scanned.rows) == (2, 3)
    [note] = scanned.notes
    assert "2 rows are of a class" in note
    assert "'none' 2 times" in note


def test_words_that_are_no_missing_values():
    for text in ("none of them", "Nan", "a null", "nothing", "unknown", "banana"):
        assert is_missing(text) == (text == "Nan")


TEXTS = ["a dog", "a cat", None]


def null_csv(x: Path) -> None:
    images(x)
    table(x / "captions.csv", ["image", "caption"],
          [(n, t or "") for n, t in zip(NAMES, TEXTS, strict=True)])  # fmt: skip


def null_jsonl(x: Path) -> None:
    images(x)
    records = [{"image": n, "caption": t} for n, t in zip(NAMES, TEXTS, strict=True)]
    jsonl(x / "captions.jsonl", records)


def null_json(x: Path) -> None:
    null_jsonl(x)
    lines = (x / "captions.jsonl").read_text().splitlines()
    (x / "captions.jsonl").unlink()
    (x / "captions.json").write_text(json.dumps([json.loads(line) for line in lines]))


def null_parquet(x: Path) -> None:
    parquet(x / "all.parquet", {"image": cells(), "caption": TEXTS})


def null_labelled(x: Path) -> None:
    columns = {"image": cells(), "label": ["ant", "bee", "cat"], "text": TEXTS}
    parquet(x / "all.parquet", columns)


def null_named(x: Path) -> None:
    images(x)
    parquet(x / "captions.parquet", {"file_name": list(NAMES), "text": TEXTS})


def null_pairs(x: Path) -> None:
    parquet(x / "all.parquet", {
        "image": cells(), "caption": ["a dog", "a cat", "a bus"],
        "cf_image": cells(10), "cf_caption": ["a wolf", "a lion", None],
    })  # fmt: skip


def null_tar(x: Path) -> None:
    files = {}
    for i, text in enumerate(TEXTS):
        files |= {f"{i}.png": noise_image(i), f"{i}.json": json.dumps({"caption": text}).encode()}
    write_tar(x / "00000.tar", files)


PLACES = {
    null_csv: "line 4", null_jsonl: "line 3", null_json: r"\[2\]", null_parquet: "row 3",
    null_labelled: "row 3", null_named: "row 3", null_pairs: "row 3", null_tar: "2.json",
}  # fmt: skip


@pytest.mark.parametrize("lay_out", PLACES, ids=lambda lay_out: lay_out.__name__)
def test_a_missing_caption_is_named_by_its_row(tmp_path, lay_out):
    lay_out(tmp_path / "x")
    said = rf"{PLACES[lay_out]}: the caption is (missing|empty)"
    assert_refused(tmp_path / "x", tmp_path / "cache", said)


def test_a_missing_image_is_named_by_its_row(tmp_path):
    images(tmp_path / "x")
    rows = [{"image": "a.png", "caption": "a dog"}, {"image": None, "caption": "a cat"}]
    jsonl(tmp_path / "x" / "captions.jsonl", rows)
    assert_refused(tmp_path / "x", tmp_path / "cache", "line 2: the image is missing")


def test_an_empty_row_is_named(tmp_path):
    images(tmp_path / "x")
    rows = [{}, {"image": "a.png", "caption": "a dog"}]
    jsonl(tmp_path / "x" / "captions.jsonl", rows)
    assert_refused(tmp_path / "x", tmp_path / "cache", "line 1: none of the .*the row is empty")
