"""Lists of photos and edits: the forms in which people write them, and what is asked about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import Index, open_index
from cfaug.data.sources import find_reader
from tests.data.edits import file_of, put
from tests.data.hostile import assert_refused
from tests.data.layouts import jsonl, table

FILES = [f"{side}/{n}.png" for side in ("photos", "fog", "snow", "again") for n in range(3)]
LABELS = ("cat", "dog", "cat")


def rows_of(index: Index) -> list[tuple[str, str | None, str, str, str]]:
    """Return (file, class, kind, words before, words after) of every row."""
    rows = []
    for row in range(len(index)):
        extra = index.extra_row(row)
        words = [extra.get(f"edit_{name}") or "" for name in ("kind", "before", "after")]
        rows.append((file_of(index, row), index.label(row), *words))
    return rows


WANTED = [
    row for n, label in enumerate(LABELS) for row in (
        (f"photos/{n}.png", label, "", "", ""),
        (f"fog/{n}.png", label, "fog", "clear", "foggy"),
        (f"snow/{n}.png", label, "snow", "clear", "snowy"),
    )
]  # fmt: skip
WORDS = {"fog": "foggy", "snow": "snowy"}


def lines(photo="photo", edit="edit", kind="kind", before="before", after="after", label="label"):
    return [
        {photo: f"photos/{n}.png", edit: f"{name}/{n}.png", label: LABELS[n], kind: name,
         before: "clear", after: WORDS[name]}
        for n in range(3) for name in ("fog", "snow")
    ]  # fmt: skip


def as_csv(x: Path, **names: str) -> None:
    records = lines(**names)
    table(x / "edits.csv", tuple(records[0]), [tuple(r.values()) for r in records])


def as_wide_csv(x: Path) -> None:
    columns = ("image", "edit_1", "kind_1", "edit_2", "kind_2", "class")
    rows = [(f"photos/{n}.png", f"fog/{n}.png", "fog", f"snow/{n}.png", "snow", LABELS[n])
            for n in range(3)]  # fmt: skip
    table(x / "mine.csv", columns, rows)


def as_json_of_sets(x: Path) -> None:
    def edit(n: int, name: str) -> dict[str, str]:
        return {"image": f"{name}/{n}.png", "kind": name, "before": "clear", "after": WORDS[name]}

    sets = [{"photo": f"photos/{n}.png", "label": LABELS[n],
             "edits": [edit(n, name) for name in WORDS]} for n in range(3)]  # fmt: skip
    (x / "edits.json").write_text(json.dumps(sets))


FORMS = {
    "csv": as_csv,
    "tsv of a generator": lambda x: table(
        x / "out.tsv", ("source_image", "target_image", "edit_type", "edit_before", "edit_after",
                        "class_name"),
        [(r["photo"], r["edit"], r["kind"], r["before"], r["after"], r["label"]) for r in lines()],
        "\t"),
    "jsonl": lambda x: jsonl(x / "x.jsonl", lines("original", "edited", "corruption")),
    "image and edited_image": lambda x: jsonl(x / "x.jsonl", lines("image", "edited_image")),
    "image is the edit": lambda x: jsonl(x / "x.jsonl", lines("original", "image")),
    "captions and kinds": lambda x: jsonl(x / "x.jsonl", [
        {**record, "caption": "a pet, clear", "cf_caption": f"a pet, {record['after']}"}
        for record in lines("image", "cf_image")]),
    "a list of edits in each line": as_json_of_sets,
}  # fmt: skip


@pytest.mark.parametrize("lay_out", FORMS.values(), ids=FORMS)
def test_lines_of_a_photo_are_a_set(tmp_path, lay_out):
    put(tmp_path / "x", *FILES)
    lay_out(tmp_path / "x")
    assert find_reader(tmp_path / "x").kind == "edit_list"
    index = open_index(tmp_path / "x", tmp_path / "cache")
    assert rows_of(index) == WANTED
    line = index.reading.line("test", "x")
    assert "not read: 3 other images (again/0.png, again/1.png, again/2.png)" in line
    assert "3 photos by class (cat: 2, dog: 1), 6 edits by kind (fog: 3, snow: 3), no rec" in line


def test_edits_side_by_side_with_their_kinds(tmp_path):
    put(tmp_path / "x", *FILES)
    as_wide_csv(tmp_path / "x")
    rows = rows_of(open_index(tmp_path / "x", tmp_path / "cache"))
    assert [row[:3] for row in rows] == [row[:3] for row in WANTED]


def test_before_and_after_may_be_the_images(tmp_path):
    put(tmp_path / "x", *FILES)
    lines = [(f"photos/{n}.png", f"fog/{n}.png", LABELS[n]) for n in range(3)]
    table(tmp_path / "x" / "out.csv", ("before", "after", "label"), lines)
    rows = rows_of(open_index(tmp_path / "x", tmp_path / "cache"))
    assert [row[2:] for row in rows] == [("", "", ""), ("edited", "", "edited")] * 3


@pytest.mark.parametrize("as_column", [True, False])
def test_a_reconstruction_comes_first(tmp_path, as_column):
    put(tmp_path / "x", *FILES)
    records = lines()
    if as_column:
        records = [{**r, "reconstruction": r["photo"].replace("photos", "again")}
                   for r in records if r["kind"] == "fog"]  # fmt: skip
    else:
        records += [{**r, "edit": r["photo"].replace("photos", "again"), "kind": "Reconstruction",
                     "before": "", "after": ""} for r in records if r["kind"] == "fog"]  # fmt: skip
    jsonl(tmp_path / "x" / "edits.jsonl", records)
    rows = rows_of(open_index(tmp_path / "x", tmp_path / "cache"))
    size = 3 if as_column else 4
    assert [row[2] for row in rows[:size]] == ["", "reconstruction", "fog", "snow"][:size]
    assert [row[0] for row in rows[1::size]] == [f"again/{n}.png" for n in range(3)]


def test_classes_by_folder_photos_without_edits_and_words_that_are_not_known(tmp_path):
    put(tmp_path / "x", "cat/1.png", "dog/2.png", "out/1.png")
    lines = [("dog/2.png", ""), ("cat/1.png", "out/1.png")]
    table(tmp_path / "x" / "edits.csv", ("photo", "edit"), lines)
    index = open_index(tmp_path / "x", tmp_path / "cache")
    assert rows_of(index) == [
        ("dog/2.png", "dog", "", "", ""), ("cat/1.png", "cat", "", "", ""),
        ("out/1.png", "cat", "edited", "", "edited"),
    ]  # fmt: skip
    assert "1 photos have no edit (dog/2)" in index.reading.line("test", "x")


@pytest.mark.parametrize(
    ("change", "question"),
    [
        ({1: {"label": "dog"}}, "'dog' here and 'cat' in .*line 1, of one photo: which is right"),
        ({1: {"label": ""}}, "line 2: the photo has no class .*which is it"),
        ({1: {"edit": "fog/0.png"}}, "line 2: 'fog/0.png' is an edit here, and also in .*line 1"),
        ({1: {"edit": "photos/1.png"}}, r"photos/1\.png is an edit here, and a photo in .*line 3"),
        ({1: {"photo": "photos/9.png"}}, "line 2: there is no image 'photos/9.png'"),
        ({1: {"photo": "photos/0.jpg"}}, "differ in their ending alone: are they one photo"),
        ({1: {"edit": "../secret.png"}}, "leads out of"),
        ({1: {"kind": "original"}}, "'original' is the kind of photos, not of an edit: which edit"),
    ],
)
def test_what_could_mean_two_things_is_asked_about(tmp_path, change, question):
    put(tmp_path / "x", *FILES, "photos/0.jpg")
    jsonl(tmp_path / "x" / "x.jsonl", [r | change.get(n, {}) for n, r in enumerate(lines())])
    assert_refused(tmp_path / "x", tmp_path / "cache", question)


def test_no_classes_and_several_lists_are_asked_about(tmp_path):
    put(tmp_path / "x", *FILES)
    without = [{k: v for k, v in r.items() if k != "label"} for r in lines()]
    jsonl(tmp_path / "x" / "a.jsonl", without)
    assert_refused(tmp_path / "x", tmp_path / "cache", "have no class.*Which are they")
    jsonl(tmp_path / "x" / "b.jsonl", lines())
    assert_refused(tmp_path / "x", tmp_path / "cache", r"several lists of edits, a\.jsonl, b\.")
    assert len(open_index(tmp_path / "x" / "b.jsonl", tmp_path / "cache")) == 9
    (tmp_path / "x" / "b.jsonl").rename(tmp_path / "x" / "edits.jsonl")
    index = open_index(tmp_path / "x", tmp_path / "cache")
    assert "1 other lists of edits (a.jsonl)" in index.reading.line("test", "x")


def test_two_columns_of_photos_are_asked_about(tmp_path):
    put(tmp_path / "x", *FILES)
    jsonl(tmp_path / "x" / "x.jsonl", [{**r, "source": r["photo"]} for r in lines()])
    assert_refused(tmp_path / "x", tmp_path / "cache", "photo, source could each be the photo")


def test_a_list_of_pairs_with_captions_is_one_of_pairs(tmp_path):
    put(tmp_path / "x", *FILES)
    pairs = [{"image": f"photos/{n}.png", "caption": "a", "cf_image": f"fog/{n}.png",
              "cf_caption": "b", "label": "cat"} for n in range(3)]  # fmt: skip
    jsonl(tmp_path / "x" / "x.jsonl", pairs)
    assert find_reader(tmp_path / "x").kind == "caption_list"


def test_a_header_that_is_misspelt_is_said_once_with_the_name_that_is_meant(tmp_path):
    put(tmp_path, *FILES)
    as_csv(tmp_path, photo="foto")
    with pytest.raises(
        UserError, match=r"edits\.csv: none of .*, photo; .*'data.fields={photo: \w+}' says so$"
    ) as e:
        open_index(tmp_path / "edits.csv", tmp_path / "cache")
    assert "\n" not in str(e.value)


def test_a_column_that_is_called_almost_as_one_that_is_read_is_asked_about(tmp_path):
    put(tmp_path, *FILES)
    as_csv(tmp_path, kind="knid", before="befor", label="class")
    reader = find_reader(tmp_path / "edits.csv")
    notes = reader.describe(tmp_path / "edits.csv").notes
    assert notes[:2] == (
        "the column knid is not read: did you mean kind?",
        "the column befor is not read: did you mean before?",
    )
    as_csv(tmp_path)
    assert not [n for n in reader.describe(tmp_path / "edits.csv").notes if "did you mean" in n]
