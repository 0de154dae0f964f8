from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.data.index import Index, open_index
from cfaug.data.shards import write_shards
from cfaug.data.strings import Strings
from cfaug.data.table import group_code
from cfaug.errors import UserError
from cfaug.types import CounterfactualSet, Member
from tests.data.making import noise_image, pair

CAPTIONED = CounterfactualSet(
    "photo", "photo", tuple(Member(f"caption {i}", "photo", "s") for i in range(5)),
    {"photo": noise_image(9)},
)  # fmt: skip
SETS = [pair(0), pair(1, members=3), CAPTIONED, pair(2, group="group-0")]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    write_shards(SETS, tmp_path / "shards", sets_per_shard=2)
    return tmp_path / "shards"


def test_a_row_is_a_member_with_its_image(shards: Path, tmp_path: Path) -> None:
    index = open_index(shards, tmp_path / "cache")
    members = [(number, one, i) for number, one in enumerate(SETS) for i in range(len(one.members))]
    assert (len(index), index.kind, index.source) == (12, "shards", str(shards))
    for row, (number, one, i) in enumerate(members):
        member = one.members[i]
        assert index.text(row) == member.text
        assert index.key(row) == f"{one.key}_{i}"
        assert index.label(row) == member.label
        assert index.sets[row] == number
        assert index.groups[row] == group_code(one.group)
        assert index.read_image(row) == one.images[member.image_name]
        assert index.file_name(row) == str(shards / f"{number // 2:05d}.tar")
        assert one.key in index.image_name(row)
    ids = index.images.tolist()
    assert ids[5:10] == [ids[5]] * 5
    assert len(set(ids)) == 12 - 4


def test_it_is_scanned_once_and_found_again(shards: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = open_index(shards, cache)
    made = sorted((file, file.stat().st_mtime_ns) for file in cache.rglob("*"))
    assert open_index(str(shards), cache) == first
    assert sorted((file, file.stat().st_mtime_ns) for file in cache.rglob("*")) == made


def test_the_hash_is_of_the_content_not_of_path_and_time(shards: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(shards, moved)
    for file in moved.iterdir():
        os.utime(file, (0, 0))
    one, other = (open_index(folder, tmp_path / "cache") for folder in (shards, moved))
    assert one.hash == other.hash
    changed = tmp_path / "changed"
    write_shards([*SETS[:3], pair(3, group="group-0")], changed, sets_per_shard=2)
    assert open_index(changed, tmp_path / "cache").hash != one.hash


def test_new_content_in_the_same_place_is_seen(shards: Path, tmp_path: Path) -> None:
    before = open_index(shards, tmp_path / "cache")
    write_shards([*SETS, pair(4)], shards, sets_per_shard=2)
    after = open_index(shards, tmp_path / "cache")
    assert len(after) == len(before) + 2
    assert after.hash != before.hash


def test_a_worker_gets_a_name_not_the_columns(shards: Path, tmp_path: Path) -> None:
    index = open_index(shards, tmp_path / "cache")
    index.read_image(0)
    sent = pickle.dumps(index)
    assert len(sent) < 1000
    assert pickle.loads(sent).read_image(11) == index.read_image(11)


def _open(folders: tuple[Path, Path]) -> tuple[Index, str]:
    index = open_index(*folders)
    return index, index.text(len(index) - 1)


def test_many_processes_may_scan_at_once(shards: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(8) as pool:
        found = pool.map(_open, [(shards, tmp_path / "cache")] * 25, chunksize=1)
    assert len(set(found)) == 1
    assert found[0][1] == SETS[-1].members[-1].text
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("change", ["shorter", "gone"])
def test_a_file_that_changed_later_is_named(shards: Path, tmp_path: Path, change: str) -> None:
    index = open_index(shards, tmp_path / "cache")
    tar = shards / "00001.tar"
    if change == "shorter":
        os.truncate(tar, 600)
    else:
        tar.unlink()
    with pytest.raises(UserError, match=r"00001\.tar \(pair-00002_1\)"):
        index.read_image(len(index) - 1)
    assert index.read_image(0) == SETS[0].images["image0"]


def test_more_files_than_may_be_open_at_once(tmp_path: Path) -> None:
    from tests.data.making import write_tar

    for number in range(300):
        members = {f"{number:04d}.png": noise_image(number), f"{number:04d}.txt": b"noise"}
        write_tar(tmp_path / "many" / f"{number:05d}.tar", members)
    index = open_index(tmp_path / "many", tmp_path / "cache")
    before = len(os.listdir("/proc/self/fd"))
    for row in [*range(300), *range(300)]:
        assert index.read_image(row) == noise_image(row)
    assert len(os.listdir("/proc/self/fd")) - before <= 260


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_a_column_of_strings_is_a_list_of_strings(strings: list[str]) -> None:
    column = Strings.of(strings)
    assert [column[i] for i in range(len(column))] == strings


def test_a_column_of_empty_strings_is_kept(tmp_path: Path) -> None:
    for strings in ([], ["", ""]):
        Strings.of(strings).save(tmp_path, "words")
        column = Strings.load(tmp_path, "words")
        assert [column[i] for i in range(len(column))] == strings


def test_a_long_scan_shows_a_bar_and_a_short_one_does_not(
    shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    open_index(shards, tmp_path / "short")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("cfaug.data.progress.QUIET_SECONDS", 0)
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal
    open_index(shards, tmp_path / "long")
    assert "indexing" in capsys.readouterr().err


def test_an_index_is_a_source_even_where_its_images_are_not(shards: Path, tmp_path: Path) -> None:
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


def _no_json(folder: Path) -> None:
    (folder / "index.json").write_text("{")


def _no_hash(folder: Path) -> None:
    (folder / "index.json").write_text('{"format": 2, "kind": "shards"}')


def _another_format(folder: Path) -> None:
    (folder / "index.json").write_text('{"format": 1, "kind": "shards", "hash": ""}')


def _a_column_gone(folder: Path) -> None:
    (folder / "groups.npy").unlink()


def _a_column_cut(folder: Path) -> None:
    np.save(folder / "groups.npy", np.load(folder / "groups.npy")[:-1])


def _changed(folder: Path, name: str, row: int, value: int) -> None:
    column = np.load(folder / f"{name}.npy")
    column[row] = value
    np.save(folder / f"{name}.npy", column)


def _a_set_out_of_turn(folder: Path) -> None:
    _changed(folder, "sets", 3, 0)


def _a_file_that_is_not_there(folder: Path) -> None:
    _changed(folder, "file", 0, 99)


def _an_image_of_a_terabyte(folder: Path) -> None:
    _changed(folder, "length", 0, 2**40)


def _a_column_of_floats(folder: Path) -> None:
    np.save(folder / "groups.npy", np.load(folder / "groups.npy").astype(float))


def _a_column_of_objects(folder: Path) -> None:
    np.save(folder / "groups.npy", np.array([print] * 12, object), allow_pickle=True)


@pytest.mark.parametrize(
    "harm",
    [
        _no_json,
        _no_hash,
        _another_format,
        _a_column_gone,
        _a_column_cut,
        _a_set_out_of_turn,
        _a_file_that_is_not_there,
        _an_image_of_a_terabyte,
        _a_column_of_floats,
        _a_column_of_objects,
    ],
)
def test_an_index_that_is_none_is_refused_by_name(
    shards: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    folder = shutil.copytree(open_index(shards, tmp_path / "cache").folder, tmp_path / "moved")
    harm(folder)
    with pytest.raises(UserError, match=str(folder)):
        open_index(folder, tmp_path / "cache")
