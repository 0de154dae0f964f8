"""Splits: what says train, val or test in the lists of public data sets, at small size.

Each layout is written out by hand as its authors released it. Nothing mixes splits without a name.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.index.disk_format import RULES
from cfaug.data.index.index import Index
from cfaug.data.sources import columns
from cfaug.data.sources.splits import SplitSurvey, choose_split, split_kind, values_of
from tests.data.hostile import assert_refused
from tests.data.layouts import cells, images, jsonl, parquet, table
from tests.data.making import labels, noise_image, texts, write_tar
from tests.data.split_layouts import (
    CAPTIONED,
    CLASSES,
    NAMES,
    cc3m_tars,
    coco_folders,
    mscoco_hub,
    photos,
    waterbirds,
)
from tests.properties import examples


def opened(source: Path | str, cache: Path) -> Index:
    return open_index(source, cache)


def notes(index: Index) -> str:
    assert index.reading is not None
    return " ".join(index.reading.notes)


def name_of(value: object) -> str:
    return getattr(value, "__name__", "")


@pytest.mark.parametrize("lay_out", [*CAPTIONED, *CLASSES], ids=name_of)
def test_a_data_set_with_splits_is_refused_until_one_is_named(tmp_path, lay_out):
    x = tmp_path / "x"
    lay_out(x)
    with pytest.raises(UserError) as caught:
        opened(x, tmp_path / "cache")
    message = str(caught.value)
    split, _ = (CAPTIONED | CLASSES)[lay_out]
    assert "several splits" in message
    assert "row" in message
    coded = split if lay_out is not waterbirds else "2"
    for part in coded.split("+"):
        assert any(f"{x}:{name} (" in message for name in (part, part.upper())), message


@pytest.mark.parametrize("lay_out", [*CAPTIONED, *CLASSES], ids=name_of)
def test_a_split_is_read_and_said(tmp_path, lay_out):
    lay_out(tmp_path / "x")
    split, wanted = (CAPTIONED | CLASSES)[lay_out]
    index = opened(f"{tmp_path / 'x'}:{split}", tmp_path / "cache")
    assert (texts if lay_out in CAPTIONED else labels)(index) == wanted
    assert "read; not " in notes(index)


@pytest.mark.parametrize("lay_out", [*CAPTIONED, *CLASSES], ids=name_of)
def test_an_unknown_split_is_refused_with_the_choices(tmp_path, lay_out):
    lay_out(tmp_path / "x")
    split, _ = (CAPTIONED | CLASSES)[lay_out]
    shown = "2" if lay_out is waterbirds else split.split("+")[0]
    with pytest.raises(UserError, match=f"no split 'night'.*(?i:x:{shown})"):
        opened(f"{tmp_path / 'x'}:night", tmp_path / "cache")


def listed(folder: Path, column: str, values: list[str]) -> Path:
    """Write a list of three captions with one more column."""
    images(folder)
    rows = [(name, f"photo {name}", value) for name, value in zip(NAMES, values, strict=True)]
    table(folder / "captions.csv", ["image", "caption", column], rows)
    return folder


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("split", ["training", "validation", "testing"]),
        ("Split", ["train", "dev", "test"]),
        ("set", ["train", "val", "test"]),
        ("data_split", ["Train", "Val", "Test"]),
        ("PARTITION", ["train", "valid", "test2017"]),
        ("fold", ["train", "val", "test"]),
        ("phase", ["train", "val", "test"]),
        ("Usage", ["Training", "PublicTest", "PrivateTest"]),
        ("purpose", ["train", "val", "test"]),  # known by its values alone
        ("split", ["train", "unlabeled", "A"]),
        ("split", ["train", "", ""]),
        ("is_train", ["1", "0", "1"]),
        ("split", ["0", "1", "2"]),
        ("split", ["1", "3", "4"]),
    ],
)
def test_columns_and_values_that_say_several_splits(tmp_path, column, values):
    x = listed(tmp_path / "x", column, values)
    assert_refused(x, tmp_path / "cache", "several splits")


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("set", ["A", "B", "A"], "'set' is kept as a column .*'A' .2 rows.*'B' .1 row"),
        ("subset", ["laion", "laion", "cc"], "'subset' is kept"),
        ("split", ["easy", "hard", "hard"], "'split' is kept"),
        ("fold", ["1", "2", "3"], "'fold' is kept"),
        ("split", ["test", "test", "test"], "all 3 rows are of one split, 'test'"),
    ],
)
def test_what_is_read_whole_is_said(tmp_path, column, values, said, capsys):
    import re

    index = opened(listed(tmp_path / "x", column, values), tmp_path / "cache")
    assert len(index) == 3
    assert re.search(said, notes(index))


def test_a_value_that_is_no_name_of_a_split_can_be_named(tmp_path):
    listed(tmp_path / "x", "set", ["A", "B", "A"])
    index = opened(f"{tmp_path / 'x'}:A", tmp_path / "cache")
    assert texts(index) == ["photo a.png", "photo c.png"]


def test_a_cell_with_two_splits_belongs_to_both(tmp_path):
    listed(tmp_path / "x", "split", ["train;val", "test", "val"])
    for split, count in (("train", 1), ("val", 2), ("test", 1), ("train+val", 2)):
        assert len(opened(f"{tmp_path / 'x'}:{split}", tmp_path / "cache")) == count


def test_the_numbers_of_celeba_are_understood_by_name_and_other_numbers_are_not(tmp_path):
    listed(tmp_path / "x", "partition", ["0", "1", "2"])
    index = opened(f"{tmp_path / 'x'}:val", tmp_path / "cache")
    assert texts(index) == ["photo b.png"]
    assert "1 (val) is read" in notes(index)
    listed(tmp_path / "y", "partition", ["1", "2", "3"])
    assert_refused(f"{tmp_path / 'y'}:val", tmp_path / "cache", "no split 'val': choose from .*:1")


def test_two_columns_that_differ_are_refused_unless_one_is_called_split(tmp_path):
    images(tmp_path / "x")
    rows = [("a.png", "x", "train", "test"), ("b.png", "y", "val", "test"),
            ("c.png", "z", "test", "train")]  # fmt: skip
    table(tmp_path / "x" / "captions.csv", ["image", "caption", "set", "phase"], rows)
    assert_refused(f"{tmp_path / 'x'}:test", tmp_path / "cache", "set, phase each say the split")
    table(tmp_path / "x" / "captions.csv", ["image", "caption", "phase", "split"], rows)
    assert texts(opened(f"{tmp_path / 'x'}:train", tmp_path / "cache")) == ["z"]


def test_captions_and_classes_that_are_names_of_splits_are_none(tmp_path):
    """A train is a vehicle."""
    photos(tmp_path / "x", [f"{c}/{i}.png" for c in ("train", "bus") for i in range(2)])
    assert set(labels(opened(tmp_path / "x", tmp_path / "cache"))) == {"train", "bus"}
    listed(tmp_path / "y", "vehicle", ["train", "test", "bus"])
    assert len(opened(tmp_path / "y", tmp_path / "cache")) == 3


def test_files_and_a_column_that_disagree_are_refused(tmp_path):
    for split, said in (("train", ["train"] * 3), ("test", ["test", "train", "test"])):
        parquet(tmp_path / "x" / f"{split}-00000-of-00001.parquet",
                {"image": cells(len(split)), "text": list("abc"), "split": said})  # fmt: skip
    assert_refused(f"{tmp_path / 'x'}:test", tmp_path / "cache", "'train' in 1 row.*files of test")


def test_files_and_a_column_that_agree_are_read_by_either_name(tmp_path):
    for split, said in (("train", "train"), ("validation", "val")):
        parquet(tmp_path / "x" / f"{split}-00000-of-00001.parquet",
                {"image": cells(len(split)), "text": [f"{split} {i}" for i in "abc"],
                 "split": [said] * 3})  # fmt: skip
    for split in ("validation", "val"):
        index = opened(f"{tmp_path / 'x'}:{split}", tmp_path / "cache")
        assert texts(index) == ["validation a", "validation b", "validation c"]


def test_the_list_counts_where_a_folder_has_the_name_of_its_split(tmp_path):
    """HF's image folders have a list in each; a list above says more."""
    photos(tmp_path / "x", ["test/1.jpg", "train/2.jpg"])
    rows = [("test/1.jpg", "a dog", "test"), ("train/2.jpg", "a cat", "train")]
    table(tmp_path / "x" / "metadata.csv", ["file_name", "text", "split"], rows)
    assert texts(opened(f"{tmp_path / 'x'}:test", tmp_path / "cache")) == ["a dog"]
    assert texts(opened(f"{tmp_path / 'x'}/metadata.csv:train", tmp_path / "cache")) == ["a cat"]


def hateful_memes(x: Path) -> None:
    """A list a split: train.jsonl, dev_seen.jsonl, test_seen.jsonl, beside img/."""
    photos(x / "img", ["1.png", "2.png", "3.png"])
    for number, split in enumerate(("train", "dev_seen", "test_seen"), 1):
        jsonl(x / f"{split}.jsonl", [
            {"id": number, "img": f"img/{number}.png", "label": 0, "text": f"a meme of {split}"}
        ])  # fmt: skip


@pytest.mark.parametrize(
    ("split", "read"),
    [("train", "train"), ("dev_seen", "dev_seen"), ("val", "dev_seen"), ("test", "test_seen")],
)
def test_a_list_that_is_called_by_its_split(tmp_path, split, read):
    hateful_memes(tmp_path / "x")
    assert_refused(tmp_path / "x", tmp_path / "cache", "several lists .*train.jsonl")
    index = opened(f"{tmp_path / 'x'}:{split}", tmp_path / "cache")
    assert texts(index) == [f"a meme of {read}"]


def named_tars(x: Path) -> None:
    """Tars in one folder that are called by their splits."""
    for number, split in enumerate(("train", "val")):
        files = {f"{split}{number}.jpg": noise_image(number, kind="JPEG"),
                 f"{split}{number}.txt": f"a {split}".encode()}  # fmt: skip
        write_tar(x / f"{split}-{number:05d}.tar", files)


def test_tars_that_are_called_by_their_splits(tmp_path):
    named_tars(tmp_path / "x")
    assert_refused(tmp_path / "x", tmp_path / "cache", "several splits, by the names of its files")
    assert texts(opened(f"{tmp_path / 'x'}:val", tmp_path / "cache")) == ["a val"]


@pytest.mark.parametrize("key", ["meta", "extra", "split"])
def test_a_split_inside_an_object(tmp_path, key):
    photos(tmp_path / "x", list(NAMES))
    inner = "name" if key == "split" else "split"
    jsonl(tmp_path / "x" / "captions.jsonl", [
        {"image": name, "caption": f"photo {i}", key: {inner: split}}
        for i, (name, split) in enumerate(zip(NAMES, ["train", "val", "test"], strict=True))
    ])  # fmt: skip
    assert_refused(tmp_path / "x", tmp_path / "cache", "several splits")
    assert texts(opened(f"{tmp_path / 'x'}:val", tmp_path / "cache")) == ["photo 1"]


def test_folders_of_splits_of_tars_or_parquet_are_named(tmp_path):
    for split in ("train", "test"):
        columns = {"image": cells(), "text": [f"{split} {i}" for i in "abc"]}
        parquet(tmp_path / "x" / split / "0.parquet", columns)
    assert_refused(tmp_path / "x", tmp_path / "cache", "splits in folders; name one of .*x/test, ")
    assert texts(opened(f"{tmp_path / 'x'}:test", tmp_path / "cache"))[0] == "test a"


def test_folders_of_splits_beside_another_are_not_classes(tmp_path):
    photos(tmp_path / "x", [f"{f}/c/{i}.png" for f in ("train", "val", "extra") for i in (1, 2)])
    assert_refused(tmp_path / "x", tmp_path / "cache", "splits, not classes")


def test_folders_of_splits_are_not_classes(tmp_path):
    photos(tmp_path / "x", ["train2017/1.png", "train2017/2.png", "val2017/1.png"])
    assert_refused(tmp_path / "x", tmp_path / "cache", r"splits, not classes.*train2017 \(2 images")


def test_pairs_in_two_folders_with_a_list_of_splits(tmp_path):
    for side, start in (("original", 0), ("edited", 10)):
        images(tmp_path / "x" / side, start=start)
    rows = [(name, f"a {name}", f"an edited {name}", split)
            for name, split in zip(NAMES, ["train", "test", "train"], strict=True)]  # fmt: skip
    columns = ["image", "caption", "cf_caption", "split"]
    table(tmp_path / "x" / "captions.csv", columns, rows)
    assert_refused(tmp_path / "x", tmp_path / "cache", "several splits")
    index = opened(f"{tmp_path / 'x'}:test", tmp_path / "cache")
    assert texts(index) == ["a b.png", "an edited b.png"]


SPELLINGS = {
    "train": [
        "train",
        "Training",
        "TRAIN",
        "train_set",
        "train-set",
        "train2014",
        "train_balanced",
    ],
    "val": ["val", "valid", "validation", "dev", "VAL", "val2017", "dev_seen", "val_unseen"],
    "test": ["test", "testing", "Test", "testA", "test-dev", "test_std", "PrivateTest"],
    "restval": ["restval", "rest_val"],
    "trainval": ["trainval", "train+val"],
    None: ["A", "", "latest", "contest", "training wheels", "0", "values", "devil", "protest"],
}


def test_spellings_of_splits():
    for kind, spellings in SPELLINGS.items():
        for spelling in spellings:
            assert split_kind(spelling) == kind, spelling


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from(["train", "val", "test", "", "A", "train;test"]), min_size=1),
    st.sampled_from(["train", "val", "test", "A"]),
)
def test_every_row_is_read_under_the_split_that_it_names(cells_said, named):
    """Against a plain loop: a named split reads the rows that name it, or is refused."""
    survey = SplitSurvey()
    for said in cells_said:
        survey.add({"image": "x", "split": said})
    wanted = [named in said.split(";") for said in cells_said]
    try:
        choice = choose_split(Path(f"/nowhere/x:{named}"), survey)
    except UserError as error:
        assert not any(wanted)
        assert "no split" in str(error)  # noqa: PT017
        return
    read = [choice.reads({"split": said}) for said in cells_said]
    assert read == wanted
    said_splits = {name for said in cells_said for name in values_of(said)}
    if len(said_splits | ({""} if "" in cells_said else set())) > 1 and said_splits - {"A"}:
        with pytest.raises(UserError, match="several splits"):
            choose_split(Path("/nowhere/x"), survey)


# Indexes and imports of before the rule.


def age(folder: Path, rules: int | None = None) -> None:
    """Make an index in the cache one of earlier rules; ``None`` is before splits were read."""
    import zlib

    file = folder / "index.json"
    about = json.loads(file.read_text())
    del about["rules"], about["check"]
    about |= {} if rules is None else {"rules": rules}
    check = zlib.crc32(json.dumps(about, sort_keys=True).encode())
    file.write_text(json.dumps({**about, "check": check}))


def texts_beside(folder: Path) -> Path:
    photos(folder, [f"{k}.png" for k in range(3)])
    for k in range(3):
        (folder / f"{k}.txt").write_text(f"caption {k}")
    return folder


def classes(first: str, second: str, folder: Path) -> Path:
    photos(folder, [f"{first}/0.png", f"{second}/1.png"])
    return folder


@pytest.mark.parametrize(
    ("lay_out", "rules", "anew"),
    [
        (partial(listed, column="split", values=["test"] * 3), None, True),
        (partial(listed, column="width", values=["8"] * 3), 1, True),  # its captions may be lists
        (partial(listed, column="width", values=["8"] * 3), 2, False),
        (texts_beside, None, False),
        (texts_beside, 1, False),
        (partial(classes, "cat", "dog"), 1, False),
        (partial(classes, "cat_train", "dog_a"), 1, True),
    ],
)
def test_only_an_index_that_could_be_read_otherwise_is_made_again(tmp_path, lay_out, rules, anew):
    x, cache = lay_out(folder=tmp_path / "x"), tmp_path / "cache"
    first = opened(x, cache)
    age(first.folder, rules)
    again = opened(x, cache)
    made = json.loads((again.folder / "index.json").read_text())
    assert (made.get("rules") != rules) == anew or made.get("rules") == RULES == rules
    assert again.hash == first.hash


def test_an_index_that_holds_rejected_captions_is_made_again(tmp_path, monkeypatch):
    """VizWiz as an earlier version read it: the same index without a rule for its marks."""
    folder, cache = tmp_path / "x", tmp_path / "cache"
    photos(folder, ["images/1.png"])
    annotations = [
        {"image_id": 1, "caption": "a red mug", "is_rejected": False},
        {"image_id": 1, "caption": "Quality issues are too severe.", "is_rejected": True},
    ]
    content = {"images": [{"id": 1, "file_name": "1.png"}], "annotations": annotations}
    (folder / "captions.json").write_text(json.dumps(content))
    with monkeypatch.context() as earlier:
        earlier.setattr("cfaug.data.sources.coco.REJECTED", "no_such_mark")
        first = opened(folder, cache)
    assert len(first) == 2
    age(first.folder, 1)
    assert len(opened(folder, cache)) == 1


@pytest.mark.parametrize("lay_out", [coco_folders, cc3m_tars, mscoco_hub], ids=name_of)
def test_an_old_index_of_mixed_splits_is_not_used(tmp_path, lay_out, monkeypatch):

    x, cache = tmp_path / "x", tmp_path / "cache"
    lay_out(x)
    with monkeypatch.context() as before:  # as every row was read
        before.setattr(SplitSurvey, "columns", lambda self: [])
        before.setattr(SplitSurvey, "has_folders", lambda self, alone=False: False)
        index = opened(x, cache)
    assert len(index) == 3
    columns._choose_rows.cache_clear()
    age(index.folder)
    for file in cache.glob("imported-*/imported.json"):
        about = json.loads(file.read_text())
        del about["notes"]
        file.write_text(json.dumps(about))
    assert_refused(x, cache, "several splits")


def test_old_indexes_with_missing_captions_are_not_used(tmp_path, monkeypatch):
    from cfaug.data.sources.odd_texts import MissingTexts

    images(tmp_path / "x")
    rows = [(NAMES[0], "nan"), (NAMES[1], "NULL"), (NAMES[2], "a dog")]
    table(tmp_path / "x" / "captions.csv", ["image", "caption"], rows)
    with monkeypatch.context() as before:
        before.setattr(MissingTexts, "check", lambda self, source: None)
        index = opened(tmp_path / "x", tmp_path / "cache")
    age(index.folder)
    assert_refused(tmp_path / "x", tmp_path / "cache", "2 of 3 rows")


# Other lists than those of training data.


def test_captions_to_generate_from(tmp_path):
    from cfaug.generate.source import read_captions

    rows = [("a dog", "train"), ("a cat", "test"), ("a bus", "train")]
    table(tmp_path / "captions.csv", ["caption", "split"], rows)
    with pytest.raises(UserError, match=r"several splits.*captions.csv:test \(1 row\)"):
        read_captions(tmp_path / "captions.csv")
    read = read_captions(f"{tmp_path / 'captions.csv'}:train")
    assert [example.text for example in read.captions] == ["a dog", "a bus"]
    assert "note: of the splits by its column 'split', train is read" in read.line("x")


def test_questions_of_one_split(tmp_path):
    from cfaug.data.sources.question_sets import read_questions

    images(tmp_path / "x")
    asked = {"q": "is it red?", "options": ["yes", "no"], "answer": 0}
    jsonl(tmp_path / "x" / "questions.jsonl", [
        {"id": str(i), "image": name, "category": "colour", "basic": asked,
         "counterfactuals": [], "split": split}
        for i, (name, split) in enumerate(zip(NAMES, ["train", "val", "val"], strict=True))
    ])  # fmt: skip
    for source in (tmp_path / "x", tmp_path / "x" / "questions.jsonl"):
        with pytest.raises(UserError, match="several splits"):
            read_questions(source)
        assert [image.key for image in read_questions(f"{source}:val")] == ["1", "2"]
