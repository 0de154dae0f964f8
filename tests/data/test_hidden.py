"""N4: what systems and programs leave beside images is no data, and is said to be left out."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.sources.question_sets import read_questions
from cfaug.evaluation import classification
from tests.data.layouts import TEXTS, captions_csv, images, jsonl, parquet, sidecars, sides, table
from tests.data.making import noise_image, texts, write_tar
from tests.data.question_files import own_record, write_own

LITTER = (".ipynb_checkpoints", ".thumbnails", "__MACOSX", "@eaDir", "lost+found")


def litter(folder):
    """Put a hidden image and its text beside each image, and hidden folders with images."""
    for name in LITTER:
        (folder / name).mkdir(parents=True)
        (folder / name / "a.png").write_bytes(noise_image(77))
        (folder / name / "a.txt").write_text("a thumbnail")
    for name in ("._a.png", "._a.txt", ".DS_Store", "Thumbs.db", "desktop.ini"):
        (folder / name).write_bytes(b"\0\5\26\7")


def said(index):
    return index.reading.line("real", "set")


def test_hidden_folders_are_no_classes(tmp_path):
    """N4: ``.ipynb_checkpoints/`` was a class, "a photo of a .ipynb checkpoints"."""
    for name in ("cat", "dog"):
        images(tmp_path / "set" / name)
    litter(tmp_path / "set")
    litter(tmp_path / "set" / "dog")
    index = open_index(tmp_path / "set", tmp_path / "cache")
    assert {index.label(row) for row in range(len(index))} == {"cat", "dog"}
    assert index.reading.images == 6
    assert "not read: 12 hidden images (._a.png, .ipynb_checkpoints, .thumbnails, @eaDir" in said(
        index
    )


@pytest.mark.parametrize(
    "lay_out",
    [
        captions_csv,
        lambda x: (images(x), sidecars(x, TEXTS)),
        lambda x: (
            sides(x, "original", "counterfactual"),
            table(x / "captions.csv", ["image", "caption", "cf_caption"],
                  [(f"{n}.png", t, f"{t} at night") for n, t in TEXTS.items()]),
        ),
        lambda x: (
            images(x / "images", ending="jpg"),
            jsonl(x / "snli_ve_dev.jsonl", [
                {"Flickr30K_ID": n, "sentence2": t, "gold_label": "neutral", "sentence1": t,
                 "pairID": f"{n}#0"} for n, t in TEXTS.items()
            ]),
        ),
    ],
    ids=["captions.csv", "sidecars", "paired folders", "photo list"],
)  # fmt: skip
def test_hidden_files_change_no_source(tmp_path, lay_out):
    """N4: the same rows and the same hash with and without litter, for every reader of folders."""
    lay_out(tmp_path / "clean")
    lay_out(tmp_path / "set")
    for folder in (tmp_path / "set", *(one for one in (tmp_path / "set").iterdir())):
        if folder.is_dir():
            litter(folder)
    (tmp_path / "set" / "._captions.csv").write_bytes(b"\0\5\26\7")
    (tmp_path / "set" / "._snli_ve_test.jsonl").write_bytes(b"\0\5\26\7")
    clean, index = (open_index(tmp_path / name, tmp_path / "cache") for name in ("clean", "set"))
    assert index.hash == clean.hash
    assert texts(index) == texts(clean)
    assert "hidden images" in said(index)
    assert "hidden" not in said(clean)


def test_hidden_members_of_tars_are_left_out(tmp_path):
    """N4: macOS packs ``._a.jpg`` beside ``a.jpg``, and whole folders called ``__MACOSX``."""
    pairs = [
        (f"{name}{ending}", content)
        for number, name in enumerate(TEXTS)
        for ending, content in ((".png", noise_image(number)), (".txt", TEXTS[name].encode()))
    ]
    both = [
        member
        for name, content in pairs
        for member in (
            (f"./._{name}", b"\0\5\26\7"),
            (f"__MACOSX/{name}", noise_image(9)),
            (f"./{name}", content),
        )
    ]
    write_tar(tmp_path / "clean" / "00000.tar", pairs)
    write_tar(tmp_path / "set" / "00000.tar", both)
    (tmp_path / "set" / "._00000.tar").write_bytes(b"\0\5\26\7")
    clean, index = (open_index(tmp_path / name, tmp_path / "cache") for name in ("clean", "set"))
    assert index.hash == clean.hash
    assert "not read: 12 hidden members (._a.png, ._a.txt, ._b.png, ._b.txt, ._c.png, ..." in said(
        index
    )
    assert "hidden" not in said(clean)


def test_hidden_parquet_is_no_split(tmp_path):
    """N4: ``._train.parquet`` was opened, and refused as unreadable."""
    cells = [{"bytes": noise_image(i), "path": f"{n}.png"} for i, n in enumerate(TEXTS)]
    parquet(tmp_path / "set" / "train.parquet", {"image": cells, "text": [*TEXTS.values()]})
    (tmp_path / "set" / "._train.parquet").write_bytes(b"\0\5\26\7")
    assert texts(open_index(tmp_path / "set", tmp_path / "cache")) == [*TEXTS.values()]


def test_hidden_lists_are_no_questions(tmp_path):
    """N4: a folder of questions with a hidden list beside them."""
    write_own(tmp_path / "set", [own_record(0), own_record(1)])
    clean = len(read_questions(tmp_path / "set"))
    (tmp_path / "set" / "._questions.jsonl").write_bytes(b"\0\5\26\7")
    assert len(read_questions(tmp_path / "set")) == clean > 0


def test_a_hidden_folder_beside_splits_hides_no_split(tmp_path):
    """N4: with ``.ipynb_checkpoints/`` beside ``train/`` and ``test/`` no test split was found."""
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            images(tmp_path / "set" / split / name)
    litter(tmp_path / "set")
    assert classification.tested_folder(str(tmp_path / "set")) == str(tmp_path / "set" / "test")


def test_a_hidden_image_that_a_list_names_is_read(tmp_path):
    captions_csv(tmp_path / "set")
    (tmp_path / "set" / ".own").mkdir()
    for name in "xy":
        (tmp_path / "set" / ".own" / f"{name}.png").write_bytes(noise_image(70))
    with (tmp_path / "set" / "captions.csv").open("a") as handle:
        handle.write(".own/x.png,one more\n")
    index = open_index(tmp_path / "set", tmp_path / "cache")
    assert texts(index) == [*TEXTS.values(), "one more"]
    assert "not read: 1 hidden image (.own)" in said(index)


def test_a_folder_of_hidden_images_alone_is_refused_with_their_number(tmp_path):
    litter(tmp_path / "set")
    with pytest.raises(UserError, match=r"no form that is known \(6 hidden images \(\._a\.png, "):
        open_index(tmp_path / "set", tmp_path / "cache")


def test_a_source_may_itself_be_hidden(tmp_path):
    """Only names below the source count: people keep data in ``~/.data``."""
    captions_csv(tmp_path / ".data" / "@eaDir" / "set")
    index = open_index(tmp_path / ".data" / "@eaDir" / "set", tmp_path / "cache")
    assert texts(index) == [*TEXTS.values()]
