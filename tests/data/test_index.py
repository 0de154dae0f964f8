from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import pickle
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.index import Index, open_index
from cfaug.data.index.disk_format import GrowingStrings, group_code
from cfaug.data.index.extra_columns import Strings
from cfaug.data.index.index import examples
from cfaug.data.shards.shards import write_shards
from tests.data.hostile import assert_refused
from tests.data.making import noise_image, pair, write_tar

CAPTIONED = CounterfactualSet(
    "photo", "photo", tuple(Member(f"caption {i}", "photo", "s") for i in range(5)),
    {"photo": noise_image(9)},
)  # fmt: skip
SETS = [pair(0), pair(1, members=3), CAPTIONED, pair(2, group="group-0")]


@pytest.fixture
def shards(tmp_path):
    write_shards(SETS, tmp_path / "shards", sets_per_shard=2)
    return tmp_path / "shards"


def test_a_row_is_a_member_with_its_image(shards, tmp_path):
    index = open_index(shards, tmp_path / "cache")
    members = [
        (number, cf_set, i)
        for number, cf_set in enumerate(SETS)
        for i in range(len(cf_set.members))
    ]
    assert (len(index), index.kind, index.source) == (12, "shards", str(shards))
    for row, (number, cf_set, i) in enumerate(members):
        member = cf_set.members[i]
        assert index.text(row) == member.text
        assert index.key(row) == f"{cf_set.key}_{i}"
        assert index.label(row) == member.label
        assert index.sets[row] == number
        assert index.groups[row] == group_code(cf_set.group)
        assert index.read_image(row) == cf_set.images[member.image_name]
        assert index.file_name(row) == str(shards / f"{number // 2:05d}.tar")
        assert cf_set.key in index.image_name(row)
    ids = index.images.tolist()
    assert ids[5:10] == [ids[5]] * 5
    assert len(set(ids)) == 12 - 4


def test_the_hash_is_of_the_content_not_of_path_and_time(shards, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.copytree(shards, moved)
    for file in moved.iterdir():
        os.utime(file, (0, 0))
    original, copied = (open_index(folder, tmp_path / "cache") for folder in (shards, moved))
    assert original.hash == copied.hash
    changed = tmp_path / "changed"
    write_shards([*SETS[:3], pair(3, group="group-0")], changed, sets_per_shard=2)
    assert open_index(changed, tmp_path / "cache").hash != original.hash


def test_a_worker_gets_a_name_not_the_columns(shards, tmp_path):
    index = open_index(shards, tmp_path / "cache")
    index.read_image(0)
    sent = pickle.dumps(index)
    assert len(sent) < 1000
    assert pickle.loads(sent).read_image(11) == index.read_image(11)


def _open(folders: tuple[Path, Path]) -> tuple[Index, str]:
    index = open_index(*folders)
    return index, index.text(len(index) - 1)


@pytest.mark.slow
def test_many_processes_may_scan_at_once(shards, tmp_path):
    with multiprocessing.get_context("fork").Pool(8) as pool:
        scanned = pool.map(_open, [(shards, tmp_path / "cache")] * 25, chunksize=1)
    assert len(set(scanned)) == 1
    assert scanned[0][1] == SETS[-1].members[-1].text
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("change", ["shorter", "gone", "another"])
def test_a_file_that_changed_later_is_named(shards, tmp_path, change):
    index = open_index(shards, tmp_path / "cache")
    tar = shards / "00001.tar"
    if change == "shorter":
        os.truncate(tar, 600)
    elif change == "another":  # as long as before, and as old
        image, stat = index.read_image(len(index) - 1), tar.stat()
        tar.write_bytes(tar.read_bytes().replace(image, noise_image(77)))
        assert len(noise_image(77)) == len(image)
        os.utime(tar, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    else:
        tar.unlink()
    with pytest.raises(UserError, match=r"00001\.tar \(pair-00002_1\)"):
        index.read_image(len(index) - 1)
    assert index.read_image(0) == SETS[0].images["image0"]


def test_more_files_than_may_be_open_at_once(tmp_path):
    for number in range(300):
        members = {
            f"{number:04d}.png": noise_image(number),
            f"{number:04d}.txt": b"noise %d" % number,
        }
        write_tar(tmp_path / "many" / f"{number:05d}.tar", members)
    index = open_index(tmp_path / "many", tmp_path / "cache")
    before = len(os.listdir("/proc/self/fd"))
    for row in [*range(300), *range(300)]:
        assert index.read_image(row) == noise_image(row)
    assert len(os.listdir("/proc/self/fd")) - before <= 260


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))), st.integers(1, 4))
def test_a_column_of_strings_is_a_list_of_strings(strings, batch):
    with (
        mock.patch("cfaug.data.index.disk_format.ROWS_AT_ONCE", batch),
        TemporaryDirectory() as folder,
    ):
        for growing in (GrowingStrings(), GrowingStrings(Path(folder), "words")):
            for string in strings:
                growing.append(string)
            assert len(growing) == len(strings)
            column = growing.column()
            assert [column[i] for i in range(len(column))] == list(column) == strings
        assert list(Strings.load(Path(folder), "words")) == strings


def test_a_long_scan_shows_a_bar_and_a_short_one_does_not(shards, tmp_path, monkeypatch, capsys):
    open_index(shards, tmp_path / "short")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("cfaug.core.progress.QUIET_SECONDS", -1)
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal
    monkeypatch.setattr("cfaug.core.progress.on_terminal", lambda: True)
    open_index(shards, tmp_path / "long")
    assert "indexing" in capsys.readouterr().err


def test_an_index_is_a_source_even_where_its_images_are_not(shards, tmp_path):
    scanned = open_index(shards, tmp_path / "cache")
    shutil.copytree(scanned.folder, tmp_path / "moved")
    shutil.rmtree(shards)
    index = open_index(tmp_path / "moved", tmp_path / "other")
    assert (index.hash, index.kind, index.source) == (
        scanned.hash, "shards", str(tmp_path / "moved")
    )  # fmt: skip
    assert [index.text(row) for row in range(12)] == [scanned.text(row) for row in range(12)]
    assert not (tmp_path / "other").exists()
    with pytest.raises(UserError, match="cannot be read"):
        index.read_image(0)


def square(last: int = 0) -> bytes:
    """Return an uncompressed black image with a last pixel of its own."""
    pixels = Image.new("RGB", (64, 64))
    pixels.putpixel((63, 63), (last, last, last))
    buffer = io.BytesIO()
    pixels.save(buffer, "PNG", compress_level=0)
    return buffer.getvalue()


def as_files(folder: Path, image: bytes) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "a.png").write_bytes(image)
    (folder / "a.txt").write_text("a square")


def as_tar(folder: Path, image: bytes) -> None:
    write_tar(folder / "00000.tar", {"a.png": image, "a.txt": b"a square"})


def as_shards(folder: Path, image: bytes) -> None:
    members = (Member("a square", "image", "a"),)
    shutil.rmtree(folder, ignore_errors=True)
    write_shards([CounterfactualSet("a", "a", members, {"image": image})], folder)


def as_prompts(folder: Path, image: bytes) -> None:
    home = folder / "0000001"
    home.mkdir(parents=True, exist_ok=True)
    (home / "prompt.json").write_text('{"input": "a square", "output": "a disc"}')
    for member in (0, 1):
        (home / f"5_{member}.png").write_bytes(image)


def as_parquet(folder: Path, image: bytes) -> None:
    columns = {"id": ["1_0"], "caption_0": ["a square"], "caption_1": ["a disc"]}
    folder.mkdir(exist_ok=True)
    images = {f"image_{i}": [{"bytes": image}] for i in (0, 1)}
    pq.write_table(pa.table({**columns, **images}), folder / "a.parquet")


@pytest.mark.parametrize("write", [as_files, as_tar, as_shards, as_prompts, as_parquet])
def test_an_image_is_all_its_bytes(tmp_path, write):
    first, second = square(0), square(1)
    write(tmp_path / "source", first)
    before = open_index(tmp_path / "source", tmp_path / "cache")
    write(tmp_path / "source", second)
    after = open_index(tmp_path / "source", tmp_path / "cache")
    assert before.hash != after.hash
    digests = [hashlib.blake2b(image, digest_size=16).digest() for image in (first, second)]
    assert [bytes(index.digests[0]) for index in (before, after)] == digests
    assert before.contents[0] == int.from_bytes(digests[0][:8], "little") != after.contents[0]


@pytest.mark.parametrize("name", ["a.gif", "a.bmp", "a.tif", "a.jfif", "a"])
def test_an_image_of_any_name_that_a_list_names_is_part_of_the_source(tmp_path, name):
    folder = tmp_path / "listed"
    folder.mkdir()
    (folder / "captions.jsonl").write_text(json.dumps({"image": name, "caption": "a square"}))
    (folder / name).write_bytes(square())
    before = open_index(folder, tmp_path / "cache")
    assert open_index(folder, tmp_path / "cache") == before
    stat = (folder / name).stat()
    (folder / name).write_bytes(square(1))
    os.utime(folder / name, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    after = open_index(folder, tmp_path / "cache")
    assert after.hash != before.hash
    assert after.read_image(0) == square(1)
    (folder / name).unlink()
    assert_refused(folder, tmp_path / "cache", f"no image '{name}'")


def test_an_image_that_is_not_the_one_of_its_name_is_another(tmp_path):
    members = {}
    for i in range(2):
        about = {"set": "a", "member": i, "image_name": "x", "group": "a"}
        members[f"a_{i}.png"] = noise_image(i)
        members[f"a_{i}.txt"] = b"noise %d" % i
        members[f"a_{i}.json"] = json.dumps(about).encode()
    write_tar(tmp_path / "tars" / "00000.tar", members)
    index = open_index(tmp_path / "tars", tmp_path / "cache")
    assert index.images.tolist() == [0, 1]
    assert index.digests.shape == (2, 16)


@pytest.mark.parametrize("aged", [True, False])
def test_a_shard_that_was_edited_in_place_is_named(shards, tmp_path, aged):
    """Its commit is not believed, nor is an index that was made before."""
    if aged:
        open_index(shards, tmp_path / "cache")
    tar = shards / "00001.tar"
    tar.write_bytes(tar.read_bytes().replace(b"caption 2", b"caption 7"))
    assert_refused(shards, tmp_path / "cache", r"00001\.tar was changed or damaged")


def test_imported_shards_that_are_damaged_are_made_again(tmp_path, capsys):
    as_parquet(tmp_path / "hub", square())
    before = open_index(tmp_path / "hub", tmp_path / "cache")
    (imported,) = (tmp_path / "cache").glob("imported-*")
    for harm in (
        lambda: os.truncate(imported / "00000.tar", 1024),
        (imported / "card.json").unlink,
        (imported / "00000.json").unlink,
        lambda: (imported / "card.json").write_text("{"),
    ):
        assert not capsys.readouterr().err
        harm()
        again = open_index(tmp_path / "hub", tmp_path / "cache")
        assert f"{imported} are damaged: they are made again" in capsys.readouterr().err
        assert again.hash == before.hash
        assert again.read_image(0) == square()


# Rows of an index are numbered as the items of a list, and a removed index is named.


ROWS = 5


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Five photos with captions, labels and a further column."""
    folder = tmp_path_factory.mktemp("photos")
    lines = ["image,caption,label,place"]
    for number in range(ROWS):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number}.png")
        lines.append(f"{number}.png,a photo of number {number},class {number},place {number}")
    (folder / "captions.csv").write_text("\n".join(lines) + "\n")
    return open_index(folder, tmp_path_factory.mktemp("cache"))


ACCESSORS = (
    "text", "key", "label", "negatives", "group_name", "extra_row", "file_name", "image_name",
    "read_image",
)  # fmt: skip


@pytest.mark.parametrize("name", ACCESSORS)
@given(row=st.integers(-2 * ROWS, 2 * ROWS))
def test_a_row_is_an_item_of_a_list(photos, name, row):
    """N8: text(-1) was empty, negatives(60) of 60 rows was [], and group_name(-1) a false error."""
    value = getattr(photos, name)
    with pytest.raises(TypeError):
        value(float(row))
    every = [value(number) for number in range(len(photos))]
    try:
        expected = every[row]
    except IndexError:
        with pytest.raises(IndexError, match=f"row {row} is out of range: .* has {ROWS} rows"):
            value(row)
        return
    assert value(row) == value(np.int64(row)) == expected


def _read(index, name):
    """Read a property, or an accessor's first row."""
    value = getattr(index, name)
    return value(0) if callable(value) else value


@pytest.mark.parametrize("name", [*ACCESSORS, "has_negatives", "extra_names", "groups"])
def test_an_index_that_was_removed_is_named(photos, tmp_path, name):
    """N25: FileNotFoundError, and negatives and further columns were missing without a word.

    A worker opens the columns that it needs when it needs them.
    """
    opened = open_index(photos.source, tmp_path)
    sent = pickle.loads(pickle.dumps(opened))
    shutil.rmtree(opened.folder)
    with pytest.raises(UserError, match=r"was removed while it was in use: run the same command"):
        _read(sent, name)


# Examples of any source, by image or by text.
MIXED = CounterfactualSet(
    "mixed", "g", (Member("a", "x", "s"), Member("b", "y", "s"), Member("c", "x", "s")),
    {"x": noise_image(10), "y": noise_image(11)},
)  # fmt: skip


def test_an_example_an_image(tmp_path):
    sets = [pair(0), CAPTIONED, MIXED]
    write_shards(sets, tmp_path / "shards")
    all_examples = list(examples(open_index(tmp_path / "shards", tmp_path / "cache"), "image"))
    assert [(example.key, example.group, example.texts) for example in all_examples] == [
        ("pair-00000_0", "group-0", ("scene 0 as version 0",)),
        ("pair-00000_1", "group-0", ("scene 0 as version 1",)),
        ("photo_0", "photo", tuple(f"caption {i}" for i in range(5))),
        ("mixed_0", "g", ("a", "c")),
        ("mixed_1", "g", ("b",)),
    ]
    images = [sets[0].images["image0"], sets[0].images["image1"], CAPTIONED.images["photo"],
              MIXED.images["x"], MIXED.images["y"]]  # fmt: skip
    assert [example.image.read() for example in all_examples] == images
    assert [example.image.digest for example in all_examples] == [
        hashlib.blake2b(image, digest_size=16).hexdigest() for image in images
    ]
    assert (all_examples[1].label, all_examples[2].label) == ("class 1", None)
    assert all_examples[1].extra == {
        "i": 1, "edit_kind": "subject", "edit_before": "cat", "edit_after": "dog 1",
    }  # fmt: skip


def test_examples_of_a_list_keep_its_columns_negatives_and_groups(tmp_path):
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed" / "a.png").write_bytes(noise_image(1))
    lines = [
        {"image": "a.png", "caption": "x", "neg_caption": "wrong", "image_id": 7, "question": "?"},
        {"image": "a.png", "caption": "y", "image_id": 7},
    ]
    (tmp_path / "listed" / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    index = open_index(tmp_path / "listed", tmp_path / "cache")
    [example] = examples(index, "image")
    assert (example.texts, example.group) == (("x", "y"), "7")
    assert example.extra == {"question": "?", "negatives": ["wrong"]}
    assert set(index.groups.tolist()) == {group_code("7")}
