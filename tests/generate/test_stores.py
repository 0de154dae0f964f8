"""Shards in an object store are made, resumed and read as in a folder, byte for byte."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections import defaultdict
from itertools import count
from pathlib import Path
from threading import current_thread

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from cfaug.core import stores
from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets, write_shards
from cfaug.generate.failures import ProgressReporter
from cfaug.generate.folder import join_folder, refresh, work_folder
from cfaug.generate.job import generate
from cfaug.planning.sources import open_source
from tests.data.loading import loader, mixture_of, seen
from tests.data.making import pair
from tests.generate import tiny
from tests.stores import UnreliableStore

ADDRESS = "memory://bucket/shards"
ROOT = "/bucket/shards"


@pytest.fixture
def store(monkeypatch):
    fsspec.register_implementation("memory", UnreliableStore, clobber=True)
    for known in (UnreliableStore.store, UnreliableStore.calls, stores._mirrors):
        known.clear()
    UnreliableStore.trouble = None
    monkeypatch.setattr(stores, "PAUSE", 0.0)
    yield UnreliableStore
    fsspec.register_implementation("memory", MemoryFileSystem, clobber=True)


def stored() -> dict[str, str]:
    return {
        path.removeprefix(f"{ROOT}/"): hashlib.sha256(file.getvalue()).hexdigest()
        for path, file in UnreliableStore.store.items()
    }


def made(cache: Path, **changes) -> Path:
    with work_folder(ADDRESS, cache) as folder:
        generate(tiny.job(folder, **changes))
    return folder


def test_shards_in_a_store_are_those_of_a_folder(store, whole, tmp_path, capsys):
    folder = made(tmp_path)
    assert stored() == tiny.contents(whole)
    assert not list(folder.glob("*.tar"))
    names = [name for call, name in store.calls if call == "put"]
    for number in range(5):
        files = [name for name in names if name.startswith(f"{number:05d}")]
        assert files == [
            f"{number:05d}{end}" for end in (".jsonl", ".json", ".tar", ".parquet", ".json")
        ]
    assert list(map(repr, read_sets(folder))) == list(map(repr, read_sets(whole)))
    store.calls.clear()
    capsys.readouterr()
    made(tmp_path)
    assert f"nothing to do: all 5 shards of part 0 are in {ADDRESS}" in capsys.readouterr().err
    assert [call for call, _ in store.calls if call in ("get", "remove")] == []
    made(tmp_path / "elsewhere")
    assert stored() == tiny.contents(whole)


class KilledError(BaseException):
    """What a kill looks like from within: nothing after it is done."""


def check_commits() -> None:
    """No commit may be there without what it commits."""
    for path, file in UnreliableStore.store.items():
        if path.endswith("card.json") or path.endswith("run.json") or path[-5:] != ".json":
            continue
        end = ".jsonl" if "/captions/" in path else ".tar"
        data = UnreliableStore.store[path.removesuffix(".json") + end].getvalue()
        assert json.loads(file.getvalue())["sha256"] == hashlib.sha256(data).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("machines", [1, 99])
def test_a_kill_between_any_two_uploads_changes_nothing(store, tmp_path, machines, monkeypatch):
    few = {"captions": tiny.captions(8)}
    generate(tiny.job(tmp_path / "whole", **few))
    keep = stores.Mirror.keep_list
    monkeypatch.setattr(stores.Mirror, "keep_list", lambda mirror: left > 0 and keep(mirror))
    for attempt in count(1):
        left = attempt

        def kill(call, path):
            nonlocal left
            left -= call in ("put", "remove")
            if left == 0:
                raise KilledError

        store.trouble = staticmethod(kill)
        try:
            made(tmp_path / str(attempt % machines), **few)
            break
        except KilledError:
            stores._mirrors.clear()  # a new process
            check_commits()
    assert attempt > 5
    assert stored() == tiny.contents(tmp_path / "whole")


def test_what_fails_for_a_while_is_tried_again(store, whole, tmp_path):
    errors = [TimeoutError("timed out"), OSError("503 Slow Down"), ConnectionError("reset")]
    calls = count()

    def fail(call, path):
        number = next(calls)
        if number % 7 == 0:
            raise errors[number % 3]
        return 5 if number % 7 == 3 else None  # or it ends early

    store.trouble = staticmethod(fail)
    folder = made(tmp_path)
    assert list(map(repr, read_sets(folder))) == list(map(repr, read_sets(whole)))
    made(tmp_path / "elsewhere")
    assert stored() == tiny.contents(whole)


def test_what_fails_for_good_is_named(store, tmp_path):
    def fail(call, path):
        if path.endswith("00001.jsonl"):
            raise TimeoutError("timed out")

    def lack(call, path):
        if call == "put":
            raise FileNotFoundError("The specified bucket does not exist")

    store.trouble = staticmethod(lack)
    with pytest.raises(UserError, match=rf"{ADDRESS} cannot be written: The specified bucket"):
        made(tmp_path)
    store.trouble = staticmethod(fail)
    with pytest.raises(UserError, match=rf"{ADDRESS}: captions/00001.jsonl failed: timed out \(5"):
        made(tmp_path)
    store.trouble = None
    made(tmp_path)


@pytest.mark.slow
def test_other_settings_are_refused_or_start_anew(store, tmp_path):
    made(tmp_path)
    with pytest.raises(UserError, match="was made with other settings"):
        made(tmp_path / "elsewhere", seed=1)
    made(tmp_path / "elsewhere", seed=1, overwrite=True)
    with work_folder("other", tmp_path):
        generate(tiny.job(tmp_path / "local", seed=1))
    assert stored() == tiny.contents(tmp_path / "local")
    made(tmp_path, seed=1)  # where the old ones were made
    assert stored() == tiny.contents(tmp_path / "local")


def test_shards_of_others_are_left_alone(store, tmp_path):
    store.store.clear()
    fsspec.filesystem("memory").pipe_file(f"{ROOT}/00000.tar", b"theirs")
    with pytest.raises(UserError, match="holds shards that were not made there"):
        made(tmp_path)


def test_workers_on_other_machines_make_the_same(store, whole, tmp_path):
    def make(job, stage, numbers):
        for number in numbers:
            theirs = join_folder(ADDRESS, tmp_path / str(number % 2))
            silent = ProgressReporter(stage, "units", "accepted", 0, shown=False)
            assert tiny.job(theirs).make_shard(stage, number, silent) == ()
        refresh(job.folder)
        return {}

    with work_folder(ADDRESS, tmp_path) as folder:
        generate(tiny.job(folder), make)
    assert stored() == tiny.contents(whole)


def test_a_file_address_is_a_folder_with_its_locks(whole, tmp_path):
    with work_folder(f"file://{tmp_path}/made%20here", tmp_path / "cache") as folder:
        assert folder == tmp_path / "made here"
    index = open_source(f"file://{whole}", None, None, tmp_path, tmp_path / "cache")
    assert index.hash == open_index(whole, tmp_path / "cache").hash
    assert not (tmp_path / "cache" / "stores").exists()


def test_one_process_owns_a_folder(store, tmp_path):
    with work_folder(ADDRESS, tmp_path), pytest.raises(UserError, match="another process"):
        made(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["parts=2"], "which has none: leave part and parts out"),
        (["paths.shards=hf://datasets/OWNER/NAME"], "a commit of git"),
        (["paths.worlds=s3://b/c"], "paths.worlds=s3://b/c should be a folder of this machine"),
    ],
)
def test_what_a_store_cannot_do_is_refused(store, words, said, script, capsys, tmp_path):
    command = [f"paths.shards={ADDRESS}", f"paths.cache={tmp_path}", "dry_run=true", *words]
    assert script("generate")(command) == 2
    assert said in capsys.readouterr().err


# Reading: indexed from one pass, then by ranges.


@pytest.fixture
def source(store, tmp_path) -> Path:
    """A folder of shards, and the same in the store."""
    folder = tmp_path / "local"
    write_shards(map(pair, range(30)), folder, sets_per_shard=6)
    client = fsspec.filesystem("memory")
    for file in folder.iterdir():
        client.pipe_file(f"{ROOT}/{file.name}", file.read_bytes())
    return folder


def opened(cache: Path, **more):
    return open_source(ADDRESS, None, None, cache, cache, **{"fetch": True, **more})


def images(index):
    return [(index.key(row), index.text(row), index.read_image(row)) for row in range(len(index))]


@pytest.mark.parametrize("tars", [0, 2])
def test_a_store_is_read_as_a_folder_within_the_limit(source, store, tars, tmp_path, monkeypatch):
    size = (source / "00000.tar").stat().st_size
    monkeypatch.setenv(stores.LIMIT, str((tars * size + 10) / 2**30))
    local, index = open_index(source, tmp_path / "cache"), opened(tmp_path / "other")
    assert index.hash == local.hash
    assert sorted(name for call, name in store.calls if call == "get") == [
        f"{number:05d}.tar" for number in range(5)
    ]
    assert sorted(file.name for file in index.folder.parent.rglob("*.tar")) == [
        f"{number:05d}.tar" for number in range(tars)
    ]
    store.calls.clear()
    assert images(index) == images(local)
    assert {name for call, name in store.calls if call == "read"} == {
        f"{number:05d}.tar" for number in range(tars, 5)
    }
    store.calls.clear()
    assert opened(tmp_path / "other").folder == index.folder
    assert [call for call, _ in store.calls] == ["find"]
    assert opened(tmp_path / "other", fetch=False).folder == index.folder


def test_batches_are_those_of_a_folder_though_answers_are_late_and_short(
    source, store, tmp_path, monkeypatch
):
    monkeypatch.setenv(stores.LIMIT, "1e-9")
    local, index = open_index(source, tmp_path / "cache"), opened(tmp_path / "other")
    calls = defaultdict(count)

    def fail(call, path):
        number = next(calls[current_thread().name])  # so that no reader's tries all meet trouble
        time.sleep(number % 5 / 1000)
        if number % 4 == 0:
            raise TimeoutError
        return 100 if number % 4 == 1 else None

    store.trouble = staticmethod(fail)
    both = [
        seen(
            loader((None, cf), mixture_of((None, cf), 1, size=40), workers=w, steps=6, batch_size=8)
        )
        for cf, w in ((local, 0), (index, 0), (index, 2))
    ]
    assert both[0] == both[1] == both[2]


def test_what_changed_in_a_store_is_noticed(source, store, tmp_path, monkeypatch):
    monkeypatch.setenv(stores.LIMIT, "1e-9")
    before = opened(tmp_path / "other")
    shutil.rmtree(source)
    write_shards(map(pair, range(30, 60)), source, sets_per_shard=6)
    client = fsspec.filesystem("memory")
    for file in source.iterdir():
        client.pipe_file(f"{ROOT}/{file.name}", file.read_bytes())
    with pytest.raises(UserError, match="the file changed since it was indexed"):
        before.read_image(0)
    assert images(opened(tmp_path / "other")) == images(open_index(source, tmp_path / "cache"))
    client.rm_file(f"{ROOT}/00002.tar")
    with pytest.raises(UserError, match=r"00002\.tar is missing, its commit"):
        opened(tmp_path / "other")


@pytest.mark.parametrize(
    ("address", "fetch", "said"),
    [
        ("memory://bucket/nothing", True, "holds no committed shards"),
        ("memory://bucket/shards", False, "evaluate.py asks no store"),
        ("s3://bucket/shards", True, r"pip install 'cfaug\[s3\]'"),
    ],
)
def test_what_cannot_be_read_is_named(address, fetch, said, store, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    known = sys.modules["fsspec.registry"]._registry  # also of what an earlier test has opened
    monkeypatch.delitem(known, "s3", raising=False)
    with pytest.raises(UserError, match=said):
        open_source(address, None, None, tmp_path, tmp_path, fetch=fetch)


@pytest.mark.parametrize("address", ["gcs://bucket/pairs", "S3://b/x", "http://h/x", "s3:"])
def test_an_address_of_no_store_is_not_made_a_folder(address, tmp_path):
    with (
        pytest.raises(UserError, match=r"is not a folder: addresses are s3://BUCKET/FOLDER, gs://"),
        work_folder(address, tmp_path),
    ):
        pass
