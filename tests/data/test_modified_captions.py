"""Lists of modified captions in the forms that the authors of XMAI released: rows laid by hand."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.data.sources.xmai import read_modified_captions
from tests.data import layouts

SERIES = "{}    {}\nName: id, dtype: int64"


def table(file, columns, *rows):
    layouts.table(file, columns, rows)
    return file


def test_ms_coco_has_printed_series_and_five_captions_a_photo(tmp_path):
    file = table(
        tmp_path / "coco.csv", ["image_id", "original", "modified"],
        [SERIES.format(0, 397133), "A dog runs. ", "A wet dog runs."],
        [SERIES.format(0, 397133), "None", "nan"],
        [SERIES.format(10, 37), "A dog runs. ", "A dog."],
        [SERIES.format(0, 397133), "A dog runs. ", "Runs"],
    )  # fmt: skip
    found = read_modified_captions(file)
    assert found.duplicates == 1
    assert [(o.key, o.group, o.image) for o in found.rows] == [
        ("397133-0", "397133", "000000397133.jpg"),
        ("397133-1", "397133", "000000397133.jpg"),
        ("37-0", "37", "000000000037.jpg"),
    ]
    # No text is taken for a missing value, and none is tidied: published tables compare them raw.
    assert [(o.original, o.modified) for o in found.rows[:2]] == [
        ("A dog runs. ", "A wet dog runs."), ("None", "nan"),
    ]  # fmt: skip
    assert {(o.label, o.premise) for o in found.rows} == {(None, None)}


def test_an_index_column_of_pandas_changes_nothing(tmp_path):
    rows = [[SERIES.format(3, 8), "a dog", "a big dog"], [9, "a cat", "a red cat"]]
    plain = table(tmp_path / "a.csv", ["image_id", "original", "modified"], *rows)
    numbered = table(
        tmp_path / "b.csv", ["", "image_id", "original", "modified"],
        *[[i, *row] for i, row in enumerate(rows)],
    )  # fmt: skip

    def texts(file):
        return [(o.key, o.group, o.original, o.modified) for o in read_modified_captions(file).rows]

    assert texts(plain) == texts(numbered)
    assert texts(plain)[1] == ("9-0", "9", "a cat", "a red cat")


def test_snli_ve_has_the_premise_as_the_original_and_its_rows_are_the_keys(tmp_path):
    columns = ["", "Unnamed: 0", "label", "original", "hypothesis", "modified"]
    file = table(
        tmp_path / "ve.csv", columns,
        [0, 0, "contradiction", "a child walks", "a kid sits", "a green kid sits"],
        [1, 1, "neutral", "a child walks", "a kid sits", "a kid"],
        [2, 2, "entailment", "a dog runs", "a kid sits", ""],
    )  # fmt: skip
    found = read_modified_captions(file)
    assert found.duplicates == 1
    first, last = found.rows
    assert (first.key, first.group, first.label) == ("00000000", "a child walks", "contradiction")
    assert (first.original, first.modified) == ("a kid sits", "a green kid sits")
    assert (last.key, last.premise, last.modified) == ("00000002", "a dog runs", "")
    assert last.image is None


def test_what_the_released_script_writes_is_called_augmented_and_names_files(tmp_path):
    file = table(
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
    file = table(tmp_path / "x.csv", columns, row)
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
