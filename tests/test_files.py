"""Files and folders: whole or not there; kept ones with their checksum; files of prompts."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import stat
from pathlib import Path

import pytest

from cfaug.core import files
from cfaug.core.atomic_files import (
    replace_file,
    replace_folder,
    whole_folder,
    write_file,
    write_json,
)
from cfaug.core.errors import UserError
from cfaug.core.files import advise, check_place, find_prompt_file, read_keys
from cfaug.core.kept_records import KeptRecords, read_kept, write_kept


def test_a_folder_takes_its_place_when_it_is_full(tmp_path):
    folder = tmp_path / "parent" / "cache"
    with whole_folder(folder, _has_a_card) as fresh:
        (fresh / "card.json").write_text("{}")
        assert not folder.exists()
    assert [path.name for path in (tmp_path / "parent").iterdir()] == ["cache"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_folder_that_failed_leaves_nothing(tmp_path):
    def fill():
        with whole_folder(tmp_path / "cache", _has_a_card) as fresh:
            (fresh / "half").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill()
    assert not list(tmp_path.iterdir())


def _has_a_card(folder):
    return (folder / "card.json").exists()


@pytest.mark.parametrize("whole", [True, False])
def test_what_another_process_made_first_is_kept_if_it_is_whole(tmp_path, whole):
    with whole_folder(tmp_path / "cache", _has_a_card) as fresh:
        (fresh / "card.json").write_text("second")
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / ("card.json" if whole else "litter")).write_text("first")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["card.json"]
    assert (tmp_path / "cache/card.json").read_text() == ("first" if whole else "second")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_file_in_the_place_of_a_folder_gives_way(tmp_path):
    (tmp_path / "cache").write_text("litter")
    with whole_folder(tmp_path / "cache", _has_a_card) as fresh:
        (fresh / "card.json").write_text("{}")
    assert _has_a_card(tmp_path / "cache")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_folder_is_on_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def noting(number):
        synced.append(os.readlink(f"/proc/self/fd/{number}"))
        fsync(number)

    monkeypatch.setattr("os.fsync", noting)
    with whole_folder(tmp_path / "cache", _has_a_card) as fresh:
        (fresh / "below").mkdir()
        for name in ("card.json", "below/column"):
            (fresh / name).write_text("x")
    names = {str(fresh / name) for name in ("", "below", "card.json", "below/column")}
    assert {str(fresh / name) for name in synced[:-1]} == names
    assert synced[-1] == str(tmp_path)


def test_a_write_that_the_disk_refuses_names_its_file(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    write_file(tmp_path / "table.md", b"old")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: .*table\.md"):
            write_file(tmp_path / "table.md", b"x" * 4000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "table.md").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def _fill_the_disk(opened):
    with opened as place:
        if hasattr(place, "write"):
            place.write(b"half")
        else:
            (place / "half").touch()
        raise OSError(28, "No space left on device")


def test_a_file_that_failed_halfway_leaves_the_old_one(tmp_path):
    file = tmp_path / "a.bin"
    file.write_bytes(b"old")
    for temporary in (None, tmp_path / ".a.new"):
        with pytest.raises(OSError, match=r"a\.bin"):
            _fill_the_disk(replace_file(file, temporary))
        assert file.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(TypeError):
        write_file(file, "not bytes")
    assert list(tmp_path.iterdir()) == [file]


def test_json_has_its_keys_sorted_or_in_their_order(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": [2]})
    assert (tmp_path / "a.json").read_text() == '{\n "a": [\n  2\n ],\n "b": 1\n}\n'
    write_json(tmp_path / "a.json", {"b": 1, "a": 2}, indent=2, sort_keys=False)
    assert (tmp_path / "a.json").read_text() == '{\n  "b": 1,\n  "a": 2\n}\n'


def test_a_replaced_folder_holds_the_new_files_only(tmp_path):
    folder = tmp_path / "checkpoint"
    for name in ("old", "new"):
        (tmp_path / ".checkpoint.new").mkdir(exist_ok=True)
        (tmp_path / ".checkpoint.new" / "litter of a process that was killed").touch()
        with replace_folder(folder) as fresh:
            (fresh / name).touch()
        assert [file.name for file in folder.iterdir()] == [name]
    with pytest.raises(OSError, match="checkpoint"):
        _fill_the_disk(replace_folder(folder))
    assert [file.name for file in folder.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [folder]


OF_OURS = {
    "core/atomic_files.py", "core/cards.py", "core/kept_records.py", "core/outputs.py",
    "core/stores.py", "core/weights.py",
    "data/export/evaluators.py", "data/export/hub.py", "data/index/__init__.py",
    "data/index/image_hashes.py", "data/shards/shards.py", "data/sources/__init__.py",
    "data/sources/remote.py",
    "editing/edit_prompts.py", "evaluation/cached_model.py", "generate/candidate_scoring.py",
    "generate/captions.py", "generate/folder.py", "generate/image_server.py", "models/lora.py",
    "planning/sources.py", "report/items.py", "run/exports.py", "run/new_recipe.py",
    "run/run_folder.py", "run/train.py",
    "train/checkpoint.py", "train/loggers.py", "train/wandb_runs.py",
    "worlds/shapescapes/labels.py", "worlds/shapescapes/parts.py",
}  # fmt: skip
PLAIN = {
    "core/atomic_files.py", "core/errors.py", "core/outputs.py", "core/processes.py",
    "data/export/dataset_card.py", "data/export/fiftyone.py", "data/export/hub.py",
    "data/index/disk_format.py",
    "data/index/image_hashes.py", "data/shards/shards.py", "evaluation/cached_model.py",
    "generate/folder.py",
    "models/checkpoints.py", "models/classifiers.py", "models/fusion.py", "models/lora.py",
    "models/open_clip.py", "report/results.py", "run/compare.py", "train/checkpoint.py",
    "train/lightning_parts.py", "train/loggers.py",
}  # fmt: skip
REMOVING = {
    "core/atomic_files.py", "core/kept_records.py", "core/outputs.py", "core/stores.py",
    "data/index/disk_format.py",
    "data/shards/shards.py", "data/sources/remote.py", "evaluation/cached_model.py",
    "generate/candidate_scoring.py", "generate/captions.py", "generate/folder.py",
    "run/compare.py", "run/run_folder.py", "run/train.py", "train/wandb_runs.py",
}  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "modules"),
    [
        (
            r"\bos\.(?:replace|rename)\(|\.rename\(|\bfsync\(|\bmkdtemp\(",
            {
                "core/atomic_files.py",
                "core/outputs.py",
                "data/export/hub.py",
                "run/run_folder.py",
                "train/wandb_runs.py",
            },
        ),
        # What is written without the record of outputs lies in a folder that is cfaug's by another
        # mark (a run's run.json, a shard's commit, a name in a cache that holds its hash), or in
        # the private folder that output_folder yields. All else: core/outputs.py.
        (r"\b(?:write_file|write_json|replace_file|replace_folder|whole_folder)\(", OF_OURS),
        (
            r"""\bopen\([^)\n]*["'][rwax]*[wax+][b+]*["']|\bwrite_(?:text|bytes)\(|\bos\.O_(?:WR|RDW)"""
            r"|shutil\.copy|symlink_to\(|torch\.save\(|np\.save\(|save_file\(",
            PLAIN,
        ),
        (r"\brmtree\(|\.unlink\(|\brmdir\(|\bos\.remove\(", REMOVING),
        (r"\bfcntl\b", {"core/processes.py"}),
        (r"\bfrom rich\.progress\b|\bfrom rich import progress\b|\btqdm\(", {"core/progress.py"}),
        # The head of processes.py says why.
        (
            r"\bsignal\.signal\(|\bsigwait|\bpthread_sigmask",
            {"core/processes.py", "run/parallel.py", "core/safety/chat_renderer.py"},
        ),
    ],
    ids=["atomic writes", "of ours", "plain", "removals", "locks", "progress", "signals"],
)
def test_each_mechanism_has_one_module(pattern, modules):
    root = Path(files.__file__).parents[1]
    actual = {
        file.relative_to(root).as_posix()
        for file in root.rglob("*.py")
        if re.search(pattern, file.read_text())
    }
    assert actual == modules


def test_what_is_whole_is_read_in_order_and_what_is_damaged_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    files = [write_kept(folder, name, ".json", b'["%d"]' % i) for i, name in enumerate("cab")]
    assert [len(file.stem) for file in files] == [len("c-01234567")] * 3
    write_kept(folder, "d", ".npy", b"not asked for")
    assert write_kept(folder, "c", ".json", b'["0"]') == files[0]
    numbers: list[str] = []
    assert (
        read_kept(folder, "*.json", lambda file: numbers.extend(json.loads(file.read_text()))) == 0
    )
    assert numbers == ["1", "2", "0"]
    files[1].write_bytes(b'["7"]')
    assert read_kept(folder, "*.json", lambda file: None) == 1
    assert not files[1].exists()
    assert files[2].exists()
    assert read_kept(tmp_path / "missing", "*", print) == 0


@pytest.mark.parametrize("error", [ValueError, KeyError, TypeError, EOFError, OSError])
def test_what_its_reader_refuses_is_deleted(tmp_path: Path, error: type[Exception]) -> None:
    file = write_kept(tmp_path, "a", ".json", b"x")

    def refuse(_: Path) -> None:
        raise error

    assert read_kept(tmp_path, "*.json", refuse) == 1
    assert not file.exists()


def test_what_another_process_deletes_meanwhile_is_not_damaged(tmp_path: Path) -> None:
    first, second = (write_kept(tmp_path, name, ".json", b"x") for name in "ab")
    seen: list[Path] = []

    def read(file: Path) -> None:
        seen.append(file)
        second.unlink()

    assert read_kept(tmp_path, "*.json", read) == 0
    assert seen == [first]


FOUND = {"a": {"text": "line\u2028line\n", "nll": [0.1, 1e-300]}, "b": {"text": None, "nll": ()}}


def test_what_is_kept_is_there_for_the_next_process_and_in_memory(tmp_path):
    for folder in (tmp_path / "kept", None):
        records = KeptRecords(folder)
        records.add(FOUND)
        again = records if folder is None else KeptRecords(folder)
        for kept in (records, again):
            assert len(kept) == 2
            assert "a" in kept
            assert "c" not in kept
            assert kept["a"] == FOUND["a"]
            assert kept["b"] == {"text": None, "nll": []}
    records.add({})
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_damaged_file_is_deleted_and_counted_and_the_others_are_read(tmp_path):
    records = KeptRecords(tmp_path)
    for key in FOUND:
        records.add({key: FOUND[key]})
    files = sorted(tmp_path.iterdir())
    assert [json.loads(file.read_text())["key"] in FOUND for file in files] == [True, True]
    files[0].write_bytes(files[0].read_bytes()[:-3])
    again = KeptRecords(tmp_path)
    assert again.damaged == 1
    assert len(again) == 1
    assert sorted(tmp_path.iterdir()) == files[1:]
    files[1].unlink()
    assert len(KeptRecords(tmp_path)) == 0


def test_a_disk_that_refuses_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        KeptRecords(tmp_path / "file" / "folder").add(FOUND)


def test_a_shipped_prompt_is_found_by_its_name():
    place = ("editing/question_wordings", "benchmark.wording", "the same keys")
    assert find_prompt_file("plain", ("plain",), *place).is_file()
    with pytest.raises(UserError, match=r"benchmark\.wording=plian: there is no such file; choose"):
        find_prompt_file("plian", ("plain",), *place)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: 1\n", "should have the keys a, b, and no other"),
        ("a: 1\nb: 2\nc: 3\n", "and no other"),
        ("- a\n- b\n", "and no other"),
        ("a: [", "is not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", "is not valid YAML"),
        ("#" * (2**20 + 1), "larger than 1,048,576 bytes"),
    ],
)
def test_another_file_is_refused(content, said, tmp_path):
    (tmp_path / "own.yaml").write_text(content)
    with pytest.raises(UserError, match=said):
        read_keys(tmp_path / "own.yaml", ("a", "b"))


def test_its_own_file_is_read(tmp_path):
    (tmp_path / "own.yaml").write_text("a: 1\nb: x\n")
    assert read_keys(tmp_path / "own.yaml", ("b", "a")) == {"a": 1, "b": "x"}


@pytest.mark.parametrize("below", ["", "x", "x/y"])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_folder_that_is_none_is_refused_before_the_work(tmp_path, kind, below):
    if kind == "file":
        (tmp_path / kind).write_text("mine")
    else:
        (tmp_path / kind).symlink_to("missing")
    name = tmp_path / kind / below
    with pytest.raises(UserError, match=rf"paths\.cache={name} is invalid: .*/{kind} is a {kind}"):
        check_place(name, "paths.cache")
    assert [*tmp_path.iterdir()] == [tmp_path / kind]


def test_a_folder_of_a_read_only_disk_is_refused_unless_it_may_have_all_that_is_needed(
    tmp_path, monkeypatch
):
    check_place(tmp_path, "paths.cache")
    check_place(tmp_path / "new" / "folder", "paths.cache")
    monkeypatch.setattr("os.access", lambda *_: False)  # a superuser may write anywhere
    for name in (tmp_path, tmp_path / "new" / "folder"):
        with pytest.raises(UserError, match=rf"runs={name} cannot be written: .* read-only"):
            check_place(name, "paths.runs")
    (tmp_path / "index").mkdir()
    assert check_place(tmp_path, "paths.cache") == tmp_path


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free some space"), (errno.EROFS, "is read-only"),
        (errno.EACCES, "is read-only"), (errno.EEXIST, "a file is in its way"),
        (errno.ENOTDIR, "a file is in its way"), (errno.EIO, "choose another paths.cache"),
    ],
)  # fmt: skip
def test_the_advice_belongs_to_the_cause(number, advice):
    said = advise(OSError(number, "x"), "paths.cache")
    assert said.endswith("choose another paths.cache")
    assert advice in said
    assert ("space" in said) == (number == errno.ENOSPC)
