"""``original/`` and ``edited/KIND/``: what is read, and what is asked about instead of guessed."""

from __future__ import annotations

import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.index import Index, open_index
from cfaug.data.sources import find_reader
from tests.data.edits import PHOTOS, file_of, lay, put
from tests.data.hostile import assert_refused
from tests.data.layouts import table
from tests.properties import examples


def opened(folder: Path, cache: Path) -> Index:
    assert find_reader(folder).kind == "edited_folders"
    return open_index(folder, cache)


def rows_of(index: Index) -> list[tuple[str | None, str, str, str | None, str]]:
    """Return (class, kind, words after, severity, file below the source) of every row."""
    read = []
    for row in range(len(index)):
        extra = index.extra_row(row)
        read.append((
            index.label(row), extra.get("edit_kind") or "", extra.get("edit_after") or "",
            extra.get("severity"), file_of(index, row),
        ))  # fmt: skip
    return read


def test_each_photo_is_a_set_with_all_its_edits(tmp_path):
    lay(tmp_path / "x", ("fog", "motion_blur", "reconstruction"))
    put(tmp_path / "x", "edited/fog/Thumbs.db", "edited/fog/export.xmp", "notes.md")
    index = opened(tmp_path / "x", tmp_path / "cache")
    rows = rows_of(index)
    assert len(rows) == 4 * len(PHOTOS)
    for number, name in enumerate(PHOTOS):
        label = name.partition("/")[0]
        files = ["original", "edited/reconstruction", "edited/fog", "edited/motion_blur"]
        kinds = ["", "reconstruction", "fog", "motion_blur"]
        words = ["", "", "fog", "motion blur"]
        assert rows[4 * number : 4 * number + 4] == [
            (label, kind, after, None, f"{folder}/{name}.png")
            for kind, after, folder in zip(kinds, words, files, strict=True)
        ]
    line = index.reading.line("test", "x")
    assert "4 photos by class (cat: 2, dog: 2), 8 edits by kind (fog: 4, motion_blur: 4)" in line
    assert "4 reconstructions" in line
    assert "2 other files (notes.md, edited/fog/export.xmp)" in line


@pytest.mark.parametrize("around", ["", "noise/"])
def test_severities_as_imagenet_c_has_them(tmp_path, around):
    """Also in folders around the kinds, as the archives of ImageNet-C unpack; classes by id."""
    names = [f"n0212304{n % 2}/ILSVRC2012_val_{n:08d}" for n in range(4)]
    kinds = [f"{around}gaussian_noise/{level}" for level in (1, 3, 5)]
    lay(tmp_path / "x", kinds, names, (".JPEG", ".JPEG"))
    rows = rows_of(opened(tmp_path / "x", tmp_path / "cache"))
    assert Counter((kind, words, level) for _, kind, words, level, _ in rows if kind) == {
        (f"{around}gaussian_noise", f"gaussian noise, severity {level}", level): 4
        for level in "135"
    }
    assert {label for label, *_ in rows} == {"n02123040", "n02123041"}


def test_a_reconstruction_may_lie_beside_the_folders(tmp_path):
    lay(tmp_path / "x")
    put(tmp_path / "x", *(f"reconstruction/{name}.png" for name in PHOTOS[:3]))
    kinds = Counter(kind for _, kind, *_ in rows_of(opened(tmp_path / "x", tmp_path / "cache")))
    assert kinds == {"": 4, "fog": 4, "snow": 4, "reconstruction": 3}


def test_edits_of_another_format_belong_by_name_and_are_said(tmp_path):
    lay(tmp_path / "x", endings=(".jpg", ".png"))
    index = opened(tmp_path / "x", tmp_path / "cache")
    assert len(index) == 12
    line = index.reading.line("test", "x")
    assert "8 edits have another ending than their photo (.png of .jpg)" in line


@pytest.mark.parametrize("form", ["{}.png", "original/{}.png", "{}"])
def test_a_list_says_classes_and_captions(tmp_path, form):
    lay(tmp_path / "x", names=["1", "2", "3"])
    lines = [
        (form.format(n), label, f"a {label} here") for n, label in zip("123", "aba", strict=True)
    ]
    table(tmp_path / "x" / "labels.csv", ("image", "label", "caption"), lines)
    index = opened(tmp_path / "x", tmp_path / "cache")
    assert [index.label(row) for row in range(0, 9, 3)] == ["a", "b", "a"]
    assert [index.text(row) for row in range(0, 4)] == ["a a here"] * 3 + ["a b here"]


def test_folders_that_a_list_overrules_are_said(tmp_path):
    names = ["2024-05/1", "2024-06/2"]
    lay(tmp_path / "x", names=names)
    lines = [(f"{name}.png", label) for name, label in zip(names, ("cat", "dog"), strict=True)]
    table(tmp_path / "x" / "labels.csv", ("image", "label"), lines)
    line = opened(tmp_path / "x", tmp_path / "cache").reading.line("test", "x")
    assert "by class (cat: 1, dog: 1)" in line
    assert "the classes are those of the list, not the folders (2024-05, 2024-06)" in line


def test_classes_may_be_numbers_and_kinds_may_be_called_as_classes_are(tmp_path):
    lay(tmp_path / "digits", ("fog/2",), ["0/1", "3/1"])
    rows = rows_of(opened(tmp_path / "digits", tmp_path / "cache"))
    assert [row[:4] for row in rows[1::2]] == [
        ("0", "fog", "fog, severity 2", "2"), ("3", "fog", "fog, severity 2", "2"),
    ]  # fmt: skip
    lay(tmp_path / "weather", ("fog",), ["fog/1", "sun/1"])
    rows = rows_of(opened(tmp_path / "weather", tmp_path / "cache"))
    assert [row[:2] for row in rows] == [("fog", ""), ("fog", "fog"), ("sun", ""), ("sun", "fog")]


def test_folders_elsewhere_may_be_linked_where_that_is_permitted(tmp_path):
    lay(tmp_path / "there")
    (tmp_path / "x").mkdir()
    for side in ("original", "edited"):
        (tmp_path / "x" / side).symlink_to(tmp_path / "there" / side)
    assert_refused(tmp_path / "x", tmp_path / "cache", "link")
    index = open_index(tmp_path / "x", tmp_path / "cache", [tmp_path / "there"])
    assert (index.kind, len(index)) == ("edited_folders", 12)


def one_more(*files: str):
    return lambda x: put(lay(x), *files)


def with_list(*lines: tuple[str, str], names=("1", "2")):
    return lambda x: table(lay(x, names=names) / "labels.csv", ("image", "label"), lines)


CLASSES = with_list(("1.png", "cat"), ("2.png", "dog"), ("fog/1.png", "cat"))


def empty(x: Path) -> None:
    lay(x)
    (x / "edited" / "rain").mkdir()


def empty_severity(x: Path) -> None:
    lay(x, ("fog/1", "fog/2"))
    (x / "edited" / "fog" / "3").mkdir()


ASKED = {
    "two originals": (one_more("original/cat/1.jpg"), "differ in their ending alone: which is the"),
    "two edits": (one_more("edited/fog/cat/1.jpg"), "both the edit fog of .*: which of them is it"),
    "no original": (one_more("edited/fog/cat/9.png"), r"cat/9\.png has no original: there is no "),
    "an editor's suffix": (one_more("edited/fog/cat/1-edit.png"),
                           r"is it of .*original/cat/1\.png\? give it the same name"),
    "other case": (one_more("edited/fog/cat/A.png", "original/cat/a.png"),
                   r"cat/A\.png has no original.*is it of .*cat/a\.png\?"),
    "another class": (one_more("edited/fog/dog/3.png", "original/cat/3.png"),
                      r"dog/3\.png has no original.*is it of .*cat/3\.png\?"),
    "class before kind": (one_more("edited/cat/fog/1.png"), "fog/1.png has no original"),
    "no kind": (one_more("edited/cat/1.png"), "of which kind is this edit"),
    "no kind at all": (lambda x: lay(x, [""]), "of which kind are they"),
    "severity alone": (lambda x: lay(x, ["3"]), "says a severity and no kind: of which kind"),
    "two severities": (lambda x: lay(x, ["fog/1/2"]), "what are the folders edited/fog/1/2/"),
    "an empty kind": (empty, "edited/rain holds no image: are edits missing"),
    "an empty severity": (empty_severity, "edited/fog/3 holds no image"),
    "no reconstructions": (lambda x: (lay(x), (x / "reconstruction").mkdir()),
                           "reconstruction holds no image: are edits missing"),
    "no original of a severity": (
        lambda x: put(lay(x, ["fog/1"]), "edited/fog/1/cat/9.png"), "is no original/cat/9 with"),
    "a kind in another format": (one_more("edited/rain/cat/1.heic"),
                                 r"rain holds no image, but 1 of a format that is not read"),
    "no photos": (lambda x: put(x, "edited/fog/1.png"), "where are they"),
    "two folders of photos": (one_more("originals/cat/1.png"), "which of them holds the photos"),
    "two folders of edits": (one_more("after/fog/cat/1.png"), "which of them holds the edits"),
    "kind original": (one_more("edited/original/cat/1.png"), "which edit is it"),
    "no classes": (lambda x: lay(x, names=["1", "2"]), "2 of 2 photos have no class.*Which are th"),
    "some classes": (lambda x: lay(x, names=["cat/1", "2"]), "2 of 2 photos have no class"),
    "folders of splits": (lambda x: lay(x, names=["train/1", "val/2"]), "have no class"),
    "a list of some": (with_list(("1.png", "cat")), r"1 of 2 photos have no class.*2\.png"),
    "a list with two classes": (with_list(("1.png", "cat"), ("1.png", "dog"), ("2.png", "dog")),
                                "'dog' here and 'cat' in an earlier line: which is right"),
    "list against folders": (with_list(("a/1.png", "b"), ("b/2.png", "a"), names=("a/1", "b/2")),
                             "the list says the class 'b', and its folder says 'a': which is ri"),
    "a class below a kind": (
        lambda x: (CLASSES(x), put(x, "edited/fog/cat/1.png")),
        "what are the folders edited/fog/cat/; 'cat' is a class"),
    "photos of two depths": (
        lambda x: (CLASSES(x), put(x, "original/fog/1.png", "edited/snow/fog/1.png")),
        "is this an edit of .* or "),
}  # fmt: skip
"""{what: (how it is laid out, the question)}."""


@pytest.mark.parametrize(("lay_out", "question"), ASKED.values(), ids=ASKED)
def test_what_could_mean_two_things_is_asked_about(tmp_path, lay_out, question):
    lay_out(tmp_path / "x")
    assert_refused(tmp_path / "x", tmp_path / "cache", question)
    with pytest.raises(UserError, match=r"\?|no original"):
        open_index(tmp_path / "x", tmp_path / "cache")


def test_two_folders_that_are_exchanged_are_asked_about(tmp_path):
    lay(tmp_path)
    (tmp_path / "original").rename(tmp_path / "kept")
    (tmp_path / "edited").rename(tmp_path / "original")
    (tmp_path / "kept").rename(tmp_path / "edited")
    with pytest.raises(UserError, match=r"original/ holds the kinds, .*folders exchanged\? R") as e:
        open_index(tmp_path, tmp_path / "cache")
    assert "\n" not in str(e.value)


def test_names_that_look_alike_in_another_unicode_form_are_asked_about(tmp_path):
    composed, apart = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    put(tmp_path / "x", f"original/cat/{composed}.png", f"edited/fog/cat/{apart}.png")
    put(tmp_path / "x", "original/dog/1.png")
    assert_refused(tmp_path / "x", tmp_path / "cache", r"is it of .*\? give it the same name")


def test_folders_of_pairs_and_class_folders_stay_what_they_are(tmp_path):
    put(tmp_path / "classes", "after/1.png", "cat/1.png", "edited/fog/1.png")
    assert find_reader(tmp_path / "classes").kind == "image_folder"
    put(tmp_path / "pairs", "original/a/1.png", "edited/a/1.png")
    assert find_reader(tmp_path / "pairs").kind == "paired_folders"


NAMES = st.text("abC1_- é", min_size=1, max_size=6).map(str.strip).filter(
    lambda name: name not in ("", ".", "..") and not name.startswith(("-", "_", "."))
)  # fmt: skip


@given(
    labels=st.sets(NAMES, min_size=2, max_size=3),
    stems=st.sets(NAMES, min_size=1, max_size=3),
    kinds=st.sets(st.sampled_from(["fog", "gaussian_noise", "Old photo", "b.w"]), min_size=1),
    levels=st.sets(st.sampled_from(["1", "2.5", "severity_3"]), max_size=2),
)
@settings(max_examples=examples(50), deadline=None)
def test_whatever_the_names_every_edit_is_of_its_photo(
    tmp_path_factory, labels, stems, kinds, levels
):
    folder = tmp_path_factory.mktemp("named")
    names = [f"{label}/{stem}" for label in labels for stem in stems]
    lay(folder / "x", [f"{kind}/{n}" for kind in kinds for n in levels] or list(kinds), names)
    rows = rows_of(opened(folder / "x", folder / "cache"))
    photos = {file.removeprefix("original/") for *_, file in rows if file.startswith("original/")}
    assert photos == {f"{name}.png" for name in names}
    photo = ""
    for label, kind, _, level, file in rows:
        if not kind:
            photo = file.removeprefix("original/")
            assert label == photo.partition("/")[0]
            continue
        parts = file.split("/")
        assert (parts[1], "/".join(parts[-2:])) == (kind, photo)
        assert (level or "") == (parts[2].rpartition("_")[2] if levels else "")
    assert len(rows) == len(names) * (1 + len(kinds) * max(1, len(levels)))
