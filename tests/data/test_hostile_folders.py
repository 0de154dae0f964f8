"""Folders of images that cannot be used, or not be read: refused by name."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.core.files import checksum, require_regular
from cfaug.core.weights import sha256
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.data.sources.question_sets import read_questions
from cfaug.evaluation import classification
from cfaug.generate.folder import RECORD
from cfaug.generate.folder import read_record as read_made
from cfaug.report.records import read_config
from cfaug.report.results import read_record, read_results
from tests.data.hostile import assert_refused, huge_png, refused
from tests.data.layouts import TEXTS, captions_csv, images, jsonl, parquet, sidecars, sides, table
from tests.data.making import PHOTOS, noise_image, pair, photo_folder, texts, write_tar
from tests.data.question_files import own_record, write_own


def photos(folder: Path, lines: list[dict[str, object]]) -> Path:
    folder.mkdir()
    for name in PHOTOS:
        shutil.copy(photo_folder() / name, folder)
    (folder / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ({"image": "gone.png", "caption": "x"}, ["line 2", "gone.png"]),
        ({"image": "chelsea.png", "caption": " "}, ["line 2", "empty"]),
        ({"image": "chelsea.png", "captions": []}, ["line 2"]),
        ({"image": "chelsea.png", "captions": ["a", 3]}, ["line 2"]),
        ({"image": "../secret.png", "caption": "x"}, ["line 2", "../secret.png", "leads out"]),
        ({"image": "/etc/hostname", "caption": "x"}, ["line 2", "/etc/hostname", "leads out"]),
        ({"picture": "chelsea.png", "caption": "x"}, ["line 2", "picture", "file_name"]),
        ({"image": "broken.png", "caption": "x"}, ["broken.png"]),
        ({"image": "huge.png", "caption": "x"}, ["huge.png"]),
    ],
)
def test_a_line_that_cannot_be_used(tmp_path, line, named):
    folder = photos(tmp_path / "photos", [{"image": "coffee.png", "caption": "coffee"}, line])
    (folder / "broken.png").write_bytes(noise_image(0)[:-30])
    (folder / "huge.png").write_bytes(huge_png())
    (tmp_path / "secret.png").write_bytes(noise_image(1))
    refused(folder, *named)


def test_an_empty_list(tmp_path):
    refused(photos(tmp_path / "photos", []), str(tmp_path / "photos"), "no image-text pair")


def test_an_image_without_the_text_beside_it(tmp_path):
    (tmp_path / "photos").mkdir()
    for name in ("coffee.png", "chelsea.png"):
        shutil.copy(photo_folder() / name, tmp_path / "photos")
    (tmp_path / "photos" / "coffee.txt").write_text("a cup of coffee")
    refused(tmp_path / "photos", "chelsea")
    (tmp_path / "photos" / "chelsea.txt").write_text("\n \n")
    refused(tmp_path / "photos", "chelsea.txt", "empty")


AS_NOBODY = textwrap.dedent("""
    import json, os, sys
    from pathlib import Path
    from PIL import Image
    from cfaug.data.index import open_index
    from cfaug.core.errors import UserError
    Image.init(), "".encode("utf-8-sig")  # nobody may not even read Python's own files later on
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    said = {}
    for folder in sys.argv[2:]:
        try:
            open_index(folder, Path(sys.argv[1]))
        except UserError as error:
            said[folder] = str(error)
    print(json.dumps(said))
""")
FORMS = ("images", "tars", "shards", "list")
PARTS = ("folder", "inside")


def unreadable(folder: Path, form: str, closed: str) -> Path:
    """Make a source, close it or one of its files, and return what was closed."""
    if form == "images":
        for label in ("cat", "cup"):
            (folder / label).mkdir(parents=True)
            (folder / label / "1.jpg").write_bytes(noise_image(0, kind="JPEG"))
        inside = folder / "cup"
    elif form == "list":
        photos(folder, [{"image": name, "caption": "x"} for name in PHOTOS])
        inside = folder / "coffee.png"
    else:
        inside = folder / "00000.tar"
        if form == "tars":
            write_tar(inside, {"cat.png": noise_image(0), "cat.txt": b"a cat"})
        else:
            write_shards([pair(0)], folder)
    target = folder if closed == "folder" else inside
    target.chmod(0)
    return target


@pytest.fixture(scope="module")
def closed_sources():
    """What was closed of every source, and what another user is told; nothing may be cached.

    Not below pytest's own folder: every pytest that starts closes that to other users again.
    """
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "cache").mkdir()
        (root / "cache").chmod(0o777)
        folders = {(form, part): root / f"{form}-{part}" for form in FORMS for part in PARTS}
        closed = {case: unreadable(folder, *case) for case, folder in folders.items()}
        modes = {path: 0o755 if path.is_dir() else 0o644 for path in closed.values()}
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(root / "cache"), *map(str, folders.values())],
            capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False,
        )  # fmt: skip
        for path, mode in modes.items():
            path.chmod(mode)
        assert (done.returncode, done.stderr) == (0, "")
        assert not list((root / "cache").iterdir())
        said = json.loads(done.stdout)
        yield {case: (closed[case], said[str(folder)]) for case, folder in folders.items()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", PARTS)
def test_an_unreadable_folder_or_file(closed_sources, form, part):
    closed, said = closed_sources[form, part]
    assert f"{closed} cannot be read: Permission denied" in said


# What systems and programs leave beside images is no data, and is said to be left out.


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


@pytest.mark.parametrize(
    "lay_out",
    [
        lambda x: (images(x / "cat"), images(x / "dog", start=5)),
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
    ids=["classes", "captions.csv", "sidecars", "paired folders", "photo list"],
)  # fmt: skip
def test_hidden_files_change_no_source(tmp_path, lay_out):
    """N4: the same rows and the same hash with and without litter, for every reader of folders."""
    lay_out(tmp_path / "clean")
    lay_out(tmp_path / "set")
    for folder in (tmp_path / "set", *(path for path in (tmp_path / "set").iterdir())):
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
    assert_refused(
        tmp_path / "set",
        tmp_path / "cache",
        r"no form that is known \(6 hidden images \(\._a\.png, ",
    )


def test_a_source_may_itself_be_hidden(tmp_path):
    """Only names below the source count: people keep data in ``~/.data``."""
    captions_csv(tmp_path / ".data" / "@eaDir" / "set")
    index = open_index(tmp_path / ".data" / "@eaDir" / "set", tmp_path / "cache")
    assert texts(index) == [*TEXTS.values()]


# What looks like data by its name but is a pipe, a socket or a device is never waited for.


@pytest.fixture(autouse=True)
def no_waiting():
    """End a test that waits for a pipe's other end."""

    def late(*_: object) -> None:
        raise AssertionError("waited for 5 s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(file: Path) -> None:
    os.mkfifo(file)


def plug(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(file.parent):
        server.bind(file.name)  # a path may have 108 bytes


def link_to_a_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def captioned(folder: Path) -> None:
    (folder / "a.png").write_bytes(noise_image(0))
    (folder / "a.txt").write_text("noise")


LAYOUTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "tar": ("00000.tar", lambda folder: None),
    "shards": ("00000.json", lambda folder: write_shards([pair(0)], folder)),
    "card of shards": ("card.json", lambda folder: write_shards([pair(0)], folder)),
    "image": ("x.jpg", captioned),
    "text": ("a.txt", captioned),
    "list": ("captions.jsonl", captioned),
    "table": ("captions.csv", captioned),
    "parquet": ("a.parquet", lambda folder: None),
    "class folders": ("cat/x.png", lambda folder: (folder / "cat").mkdir()),
    "nshards": ("nshards.txt", lambda folder: None),
    "prompt": ("0000001/prompt.json", lambda folder: (folder / "0000001").mkdir()),
    "coco": ("annotations/captions_val2017.json", lambda folder: [
        (folder / name).mkdir() for name in ("annotations", "val2017")]),
    "karpathy": ("dataset_coco.json", captioned),
}  # fmt: skip


@pytest.mark.parametrize("special", [pipe, plug, link_to_a_device])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_source_with_one_is_read_without_it_or_refused_by_name(tmp_path, layout, special):
    name, rest = LAYOUTS[layout]
    folder = tmp_path / "source"
    folder.mkdir()
    rest(folder)
    (folder / name).unlink(missing_ok=True)
    special(folder / name)
    file_names, message = [], ""
    try:
        index = open_index(folder, tmp_path / "cache")
        file_names = [Path(index.file_name(row)).name for row in range(len(index))]
    except UserError as error:
        message = str(error)
    assert (str(folder) in message) != bool(file_names)
    assert name not in file_names


def test_a_column_or_an_image_that_became_one_is_not_waited_for(tmp_path):
    write_shards([pair(0)], tmp_path / "shards")
    index = open_index(tmp_path / "shards", tmp_path / "cache")
    (tmp_path / "shards/00000.tar").unlink()
    pipe(tmp_path / "shards/00000.tar")
    with pytest.raises(UserError, match="cannot be read"):
        index.read_image(0)
    (index.folder / "groups.npy").unlink()
    pipe(index.folder / "groups.npy")
    assert_refused(
        index.folder, tmp_path / "cache", r"groups\.npy is not a regular file but a pipe"
    )


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("run.json", require_regular),
        ("run.json", checksum),
        ("run.json", read_record),
        ("results.jsonl", read_results),
        ("weights", lambda file: sha256([file])),
        (RECORD, lambda file: read_made(file.parent)),
        ("config.yaml", lambda file: read_config(file.parent)),
    ],
)
@pytest.mark.parametrize(("special", "said"), [(pipe, "a pipe"), (link_to_a_device, "a device")])
def test_records_and_weights_are_files(tmp_path, name, read, special, said):
    special(tmp_path / name)
    with pytest.raises(UserError, match=rf"{name} is not a regular file but {said}"):
        read(tmp_path / name)
