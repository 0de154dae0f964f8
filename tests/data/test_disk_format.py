from __future__ import annotations

import json
import os
import shutil
import time
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.pixels import Digest, box_digest
from cfaug.data.index import Index, disk_format, open_index
from cfaug.data.index.disk_format import (
    TextCounts,
    column_files,
    find_repeated,
    read_about,
    write_index,
)
from cfaug.data.shards.shards import write_shards
from cfaug.data.sources import Row
from tests.data.hostile import assert_refused
from tests.data.making import pair

Harm = Callable[[Path], object]


@pytest.fixture
def shards(tmp_path):
    write_shards([pair(i) for i in range(6)], tmp_path / "shards")
    return tmp_path / "shards"


def _about(folder: Path, **values: object) -> None:
    about = {**json.loads((folder / "index.json").read_text()), **values}
    about.pop("check")
    about["check"] = zlib.crc32(json.dumps(about, sort_keys=True).encode())
    (folder / "index.json").write_text(json.dumps(about))


def _flipped(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[-1] ^= 4
    (folder / name).write_bytes(content)


def _swapped_texts(folder: Path) -> None:
    file = folder / "texts.arrow"
    content = file.read_bytes()
    at = [content.index(f"scene {i}".encode()) + len("scene ") for i in (0, 1)]
    swapped = bytearray(content)
    swapped[at[0]], swapped[at[1]] = content[at[1]], content[at[0]]
    file.write_bytes(swapped)


def _cut(folder: Path) -> None:
    np.save(folder / "groups.npy", np.load(folder / "groups.npy")[:-1])


HARMS: dict[str, Harm] = {
    "empty about": lambda folder: (folder / "index.json").write_text(""),
    "cut about": lambda folder: os.truncate(folder / "index.json", 30),
    "about of nothing": lambda folder: (folder / "index.json").write_text("[]"),
    "no about": lambda folder: (folder / "index.json").unlink(),
    "no hash": lambda folder: (folder / "index.json").write_text('{"format": 3}'),
    "another hash": lambda folder: (folder / "index.json").write_text(
        (folder / "index.json").read_text().replace('"hash": "2:', '"hash": "3:')
    ),
    "missing column": lambda folder: (folder / "groups.npy").unlink(),
    "cut column": lambda folder: os.truncate(folder / "groups.npy", 140),
    "empty column": lambda folder: os.truncate(folder / "labels.arrow", 0),
    "shorter column": _cut,
    "permuted texts": _swapped_texts,
    **{f"flipped {n}": (lambda folder, n=n: _flipped(folder, n)) for n in column_files()},
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_damaged_index_is_made_again_and_said_or_refused_where_it_was_named(
    shards, tmp_path, harm, capsys
):
    before = open_index(shards, tmp_path / "cache")
    moved = shutil.copytree(before.folder, tmp_path / "moved")
    for folder in (before.folder, moved):
        harm(folder)
    assert_refused(moved, tmp_path / "cache", str(moved))
    again = open_index(shards, tmp_path / "cache")
    error = capsys.readouterr().err
    assert (error.count("\n"), f"{before.folder} is damaged" in error) == (1, True)
    assert "made again" in error
    assert again == before
    assert [again.text(row) for row in range(12)] == [
        member.text for i in range(6) for member in pair(i).members
    ]
    assert np.array_equal(again.groups, np.load(again.folder / "groups.npy"))
    assert open_index(shards, tmp_path / "cache") == before
    assert capsys.readouterr().err == ""
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [before.folder.name]


def _changed(folder: Path, name: str, row: int, value: int) -> None:
    column = np.load(folder / f"{name}.npy")
    column[row] = value
    np.save(folder / f"{name}.npy", column)


def _write_texts(folder: Path, name: str, column: pa.Array) -> None:
    table = pa.table({name: column})
    file = pa.OSFile(str(folder / f"{name}.arrow"), "wb")
    with file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)


def _forge_texts(
    folder: Path,
    name: str,
    blob: dict[int, int] | None = None,
    offsets: dict[int, int] | None = None,
) -> None:
    """Change bytes or offsets of a column of texts in its file."""
    file = folder / f"{name}.arrow"
    content = file.read_bytes()
    column = pa.ipc.open_file(pa.BufferReader(content)).read_all().column(0).chunk(0)
    parts = zip((np.int64, np.uint8), column.buffers()[1:], (offsets, blob), strict=True)
    for dtype, buffer, changes in parts:
        values = np.frombuffer(buffer, dtype)
        values = values[: len(column) + 1 if dtype is np.int64 else None].copy()
        before = values.tobytes()
        assert content.count(before) == 1
        for place, value in (changes or {}).items():
            values[place] = value
        content = content.replace(before, values.tobytes())
    file.write_bytes(content)


def _inside_a_character(folder: Path) -> None:
    with pa.OSFile(str(folder / "texts.arrow")) as file:
        first = len(pa.ipc.open_file(file).read_all().column(0)[0].as_py())
    _forge_texts(folder, "texts", {first - 1: 0xC3, first: 0xB6})


FORGERIES: dict[str, Harm] = {
    "shorter": _cut,
    "a set out of turn": lambda folder: _changed(folder, "sets", 3, 0),
    "a file that is not there": lambda folder: _changed(folder, "file", 0, 99),
    "an image of a terabyte": lambda folder: _changed(folder, "length", 0, 2**40),
    "an image without digest": lambda folder: _changed(folder, "images", 11, 12),
    "an image before the first": lambda folder: _changed(folder, "images", 0, -1),
    "floats": lambda folder: np.save(
        folder / "groups.npy", np.load(folder / "groups.npy").astype(float)
    ),
    "objects": lambda folder: np.save(
        folder / "groups.npy", np.array([print] * 12, object), allow_pickle=True
    ),
    "texts that are no UTF-8": lambda folder: _forge_texts(folder, "texts", {0: 0xFF}),
    "texts cut off": lambda folder: _forge_texts(folder, "texts", {-1: 0xC3}),
    "a text that begins within a character": _inside_a_character,
    "offsets out of turn": lambda folder: _forge_texts(folder, "keys", None, {1: 10**6}),
    "offsets before the first": lambda folder: _forge_texts(folder, "labels", None, {0: -1}),
    "offsets that end beyond the texts": lambda folder: _forge_texts(
        folder, "texts", None, {-1: 10**6}
    ),
    "texts of floats": lambda folder: _write_texts(folder, "texts", pa.array([0.5] * 12)),
    "no text at all": lambda folder: _write_texts(folder, "texts", pa.nulls(12, pa.large_string())),
    "another format": lambda folder: _about(folder, format=2),
    "checks of nothing": lambda folder: _about(folder, checks=None),
}


@pytest.mark.parametrize("harm", FORGERIES.values(), ids=FORGERIES)
def test_an_index_with_checksums_that_fit_must_make_sense_too(shards, tmp_path, harm):
    folder = shutil.copytree(open_index(shards, tmp_path / "cache").folder, tmp_path / "moved")
    _about(folder, checks={n: zlib.crc32((folder / n).read_bytes()) for n in column_files()})
    assert len(open_index(folder, tmp_path / "cache")) == 12
    harm(folder)
    if harm is not FORGERIES["checks of nothing"]:
        _about(folder, checks={n: zlib.crc32((folder / n).read_bytes()) for n in column_files()})
    assert_refused(folder, tmp_path / "cache", str(folder))


@pytest.mark.slow
def test_an_index_of_100_000_rows_is_opened_within_a_moment(tmp_path):
    digest = Digest.of(b"")
    rows = (
        Row(set=f"{i}", member=0, group=f"{i}", text=f"a caption of usual length, number {i}",
            label=None, image_id="", file="/a.tar", offset=i, length=1, digest=digest, where="")
        for i in range(100_000)
    )  # fmt: skip
    started = time.process_time()
    write_index(rows, tmp_path, kind="shards", source="here")
    written = time.process_time()
    about = read_about(tmp_path)
    seconds = time.process_time() - written
    print(f"{seconds:.3f} s to open, {written - started:.3f} s to write")
    assert seconds < (written - started) / 10  # whatever the machine: nothing is done row by row
    assert len(Index(tmp_path, "here", *about)) == 100_000


@given(st.binary(max_size=40), st.lists(st.integers(-9, 999), min_size=4, max_size=4, unique=True))
def test_a_part_of_an_image_has_a_digest_of_its_own(data, box):
    whole = Digest.of(data)
    part = whole.of_box(box)
    assert len({whole.whole, part.whole, whole.of_box(box[::-1]).whole}) == 3
    assert part == Digest.of(data).of_box(tuple(box))
    assert part.whole == box_digest(bytes.fromhex(whole.whole), box).hex()


# Equal texts are found by codes: as a dictionary finds them, in a few bytes for each text.


WORDS = st.lists(st.sampled_from(["", "a", "b", "ab", "A cat.", "été", "x" * 99]), max_size=30)


@given(WORDS)
def test_texts_are_counted_as_they_come(texts):
    counts, before = TextCounts(), Counter[str]()
    for text in texts:
        assert counts.add(text) == before[text]
        before[text] += 1


def test_many_texts_are_counted():
    """Far more than the first table has room for."""
    counts, texts = TextCounts(), [str(number % 2500) for number in range(6000)]
    assert [counts.add(text) for text in texts] == [number // 2500 for number in range(6000)]


@given(WORDS)
def test_repeated_texts_are_found_in_their_order(texts):
    assert find_repeated(lambda: texts) == [t for t, n in Counter(texts).items() if n > 1]


def test_other_texts_with_one_code_are_not_equal(monkeypatch):
    monkeypatch.setattr(disk_format, "group_code", len)
    assert find_repeated(lambda: ["ab", "cd", "e", "cd"]) == ["cd"]


def test_a_key_takes_some_bytes():
    """A dictionary took 200 for each: 2 GB of ten million."""
    number = 40_000
    tracemalloc.start()
    try:
        assert find_repeated(lambda: (f"{n:08d}" for n in range(number))) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60 * number
