"""VisoGender's files: every version of the columns, and photos that are not there."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.papers.visogender.files import VisoGenderPhotos, read_annotations
from tests.papers.visogender.making import lay_photos, oo_rows, op_rows, write_tsv


@pytest.fixture
def files(tmp_path):
    return [write_tsv(tmp_path / "OO.tsv", oo_rows()), write_tsv(tmp_path / "OP.tsv", op_rows())]


def test_both_contexts_are_read(files):
    annotations = read_annotations(files)
    assert [annotation.idx for annotation in annotations] == [
        row["IDX"] for row in (*oo_rows(), *op_rows())
    ]
    first, last = annotations[0], annotations[-1]
    assert (first.context, first.occupation, first.other) == ("OO", "teacher", "board")
    assert (first.gender, first.other_gender, first.sector) == ("masculine", "", "education")
    assert (last.context, last.other, last.other_gender) == ("OP", "patient", "feminine")
    assert last.where == f"{files[1]}, line 25"


def test_words_are_written_as_in_captions(tmp_path):
    rows = [{**row, "Object": "mixing_spoon"} for row in oo_rows()]
    (word,) = {
        annotation.other for annotation in read_annotations([write_tsv(tmp_path / "OO.tsv", rows)])
    }
    assert word == "mixing spoon"


def test_columns_in_any_order_and_of_any_version(tmp_path):
    older = {"Occupation_perceived_gender": "Occupation_Gender",
             "Participant_perceived_gender": "Participant_Gender"}  # fmt: skip
    words = {"masculine": "man", "feminine": "Woman "}
    rows = [
        {older.get(n, n): words.get(v, v) for n, v in reversed(row.items())} for row in op_rows()
    ]
    theirs = read_annotations([write_tsv(tmp_path / "new.tsv", op_rows())])
    ours = read_annotations([write_tsv(tmp_path / "old.tsv", rows)])
    assert [(o.idx, o.gender, o.other_gender) for o in ours] == [
        (o.idx, o.gender, o.other_gender) for o in theirs
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"IDX": "OO_2"}, r"line 3: IDX=OO_2 is duplicated, see .*line 2"),
        ({"Occupation_perceived_gender": "masculin"}, "line 2: .*'masculin' is invalid: choose"),
        ({"Occupation": " "}, "line 2: Occupation is missing"),
        ({"IDX": ""}, "line 2: IDX is missing"),
        ({"Object": "NA"}, "line 2: Object is missing"),
    ],
)
def test_rows_that_are_invalid_are_named(tmp_path, changes, said):
    first, *others = oo_rows()
    with pytest.raises(UserError, match=said):
        read_annotations([write_tsv(tmp_path / "OO.tsv", [{**first, **changes}, *others])])


@pytest.mark.parametrize(
    ("rows", "column", "said"),
    [
        (oo_rows, "IDX", "the column IDX is missing"),
        (oo_rows, "Object", "the column Object or Participant is missing"),
        (oo_rows, "Occupation_perceived_gender", "Occupation_perceived_gender is missing"),
        (op_rows, "Participant_perceived_gender", "Participant_perceived_gender is missing"),
    ],
)
def test_columns_that_are_missing_are_named(tmp_path, rows, column, said):
    lacking = [{n: v for n, v in row.items() if n != column} for row in rows()]
    with pytest.raises(UserError, match=said):
        read_annotations([write_tsv(tmp_path / "a.tsv", lacking)])


def test_files_that_are_none(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_annotations([tmp_path / "none.tsv"])
    (tmp_path / "empty.tsv").write_text("\t".join(oo_rows()[0]) + "\n")
    with pytest.raises(UserError, match="no annotation"):
        read_annotations([tmp_path / "empty.tsv"])


def test_photos_are_found_by_their_idx(files, tmp_path):
    photos = lay_photos(tmp_path / "photos", [*oo_rows(), *op_rows()])
    (photos / "other.txt").write_text("not an image")
    index = open_index(photos, tmp_path / "index", reader=VisoGenderPhotos(files))
    assert len(index) == 36
    row = index.extra_row(12)
    assert (row["idx"], row["occupation"], row["context"]) == ("OP_1", "teacher", "OP")
    assert index.text(12) == "The teacher and their student"
    assert index.read_image(12) == (photos / "OP_images/OP_1.png").read_bytes()
    again = open_index(photos, tmp_path / "index", reader=VisoGenderPhotos(files))
    assert again.folder == index.folder
    other = open_index(photos, tmp_path / "index", reader=VisoGenderPhotos(files[:1]))
    assert (len(other), other.folder == index.folder) == (12, False)


def test_photos_that_are_missing_are_named_or_left_out(files, tmp_path):
    photos = lay_photos(tmp_path / "photos", oo_rows())
    (photos / "OO_images/OO_3.png").unlink()
    (photos / "OO_images/OO_5.png").write_text("<html>404</html>")

    def opened(**how):
        reader = VisoGenderPhotos(files[:1], **how)
        return open_index(photos, tmp_path / "index", reader=reader)

    with pytest.raises(UserError, match=r"1 of 12 photos are missing in .*: OO_3; put them there"):
        opened()
    index = opened(without_missing=True)
    assert len(index) == 10
    said = index.reading.line("test", "photos")
    assert "1 photos that are not in" in said
    assert "OO_3" in said
    assert "1 files that are not images (OO_5)" in said
    (photos / "OO_images/OO_3.png").write_bytes((photos / "OO_images/OO_1.png").read_bytes())
    with pytest.raises(UserError, match=r"OO_5.*without_missing=true"):
        opened()
    with pytest.raises(UserError, match=r"there is no folder .*/none: name that"):
        open_index(tmp_path / "none", tmp_path / "index", reader=VisoGenderPhotos(files))
    (photos / "OO_1.jpg").write_bytes((photos / "OO_images/OO_1.png").read_bytes())
    with pytest.raises(UserError, match=r"two images are called 'OO_1', OO_1.jpg and OO_images"):
        opened()


def test_annotations_that_cannot_be_asked_about_are_left_out(tmp_path):
    rows = oo_rows()
    rows[0]["Occupation_perceived_gender"] = "neutral"
    rows[1]["URL type (Type NA if can't find)"] = "NA"
    files = [write_tsv(tmp_path / "OO.tsv", rows)]
    photos = lay_photos(tmp_path / "photos", rows)
    (photos / "OO_images/OO_2.png").unlink()
    index = open_index(photos, tmp_path / "index", reader=VisoGenderPhotos(files))
    assert len(index) == 10  # whose photo was never there is no mistake of the folder's
    said = index.reading.line("test", "photos")
    assert "1 photos without a gender (OO_1)" in said
    assert "(OO_2)" in said


def test_files_in_which_no_gender_was_noted_are_named(tmp_path):
    rows = [{**row, "Occupation_perceived_gender": "neutral"} for row in oo_rows()]
    file = write_tsv(tmp_path / "OO.tsv", rows)
    photos = lay_photos(tmp_path / "photos", rows)
    with pytest.raises(UserError, match=r"OO.tsv: of no photo the gender of everyone was noted"):
        open_index(photos, tmp_path / "index", reader=VisoGenderPhotos([file]))
