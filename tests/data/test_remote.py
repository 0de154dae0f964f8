"""Shards over HTTP and from a command: copied whole, once, within a limit."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import huggingface_hub
import psutil
import pytest

import cfaug
from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.sources import remote
from cfaug.data.sources.remote import fetch_shards, find_copies
from cfaug.planning.sources import open_source
from tests import children, scripts
from tests.data.test_sources import img2dataset


class Quiet(SimpleHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()


@pytest.fixture
def site(tmp_path):
    """Return a folder that is served, and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    img2dataset(folder)
    Quiet.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def contents(index):
    return [(index.key(row), index.text(row), index.read_image(row)) for row in range(len(index))]


def test_copies_are_what_the_folder_holds_and_are_made_once(site, tmp_path):
    folder, address = site
    source = f"{address}/{{00000..00001}}.tar"
    assert find_copies(source, tmp_path / "cache") is None
    copies = fetch_shards(source, tmp_path / "cache")
    assert (
        fetch_shards(source, tmp_path / "cache")
        == copies
        == find_copies(source, tmp_path / "cache")
    )
    assert Quiet.asked == ["/00000.tar", "/00001.tar"]
    ours = open_index(copies, tmp_path / "cache")
    theirs = open_index(folder, tmp_path / "cache")
    assert contents(ours) == contents(theirs)


def test_what_was_copied_before_an_interruption_is_kept(site, tmp_path):
    folder, address = site
    (folder / "00001.tar").rename(folder / "later")
    source = f"{address}/{{00000..00001}}.tar"
    with pytest.raises(UserError, match=r"00001\.tar could not be read.*404; copied shards are"):
        fetch_shards(source, tmp_path / "cache")
    assert find_copies(source, tmp_path / "cache") is None
    (folder / "later").rename(folder / "00001.tar")
    copies = fetch_shards(source, tmp_path / "cache")
    assert Quiet.asked.count("/00000.tar") == 1
    assert sorted(file.name for file in copies.glob("*.tar*")) == ["00000.tar", "00001.tar"]
    (copies / "00000.tar").unlink()  # what was removed is fetched again
    assert find_copies(source, tmp_path / "cache") is None
    assert fetch_shards(source, tmp_path / "cache") == copies
    assert Quiet.asked[-1] == "/00000.tar"
    assert (copies / "00000.tar").read_bytes() == (folder / "00000.tar").read_bytes()


def test_a_command_gives_a_shard(site, tmp_path):
    folder, _ = site
    copies = fetch_shards(f"pipe:cat {folder}/{{00000..00001}}.tar", tmp_path / "cache")
    assert [file.name for file in sorted(copies.glob("*.tar"))] == ["00000.tar", "00001.tar"]
    assert (copies / "00001.tar").read_bytes() == (folder / "00001.tar").read_bytes()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("pipe:echo hello", "is not a tar"),
        ("pipe:true", "nothing came"),
        ("pipe:cat /nowhere/{0..1}.tar", "could not be read: its program ended with exit code 1"),
        ("http://127.0.0.1:9/0.tar", "could not be read: the host accepts no connection"),
        ("http://127.0.0.1:9/{a,b}/0.tar", "duplicated shard name: 0.tar"),
    ],
)
def test_what_is_no_shard_is_named_and_leaves_nothing(source, said, tmp_path):
    with pytest.raises(UserError, match=said):
        fetch_shards(source, tmp_path / "cache")
    assert not list(tmp_path.rglob("*.tar*"))


def test_a_source_takes_no_more_of_the_cache_than_it_may(site, tmp_path, monkeypatch):
    folder, address = site
    size = (folder / "00000.tar").stat().st_size
    monkeypatch.setenv(remote.LIMIT, str((size + 10) / 2**30))
    with pytest.raises(UserError, match="CFAUG_REMOTE_GIB=GIB raises that"):
        fetch_shards(f"{address}/{{00000..00001}}.tar", tmp_path / "cache")
    monkeypatch.setenv(remote.LIMIT, "much")
    with pytest.raises(UserError, match="should be a number"):
        fetch_shards(f"{address}/00000.tar", tmp_path / "cache")


def test_only_who_starts_a_command_lets_it_fetch(site, tmp_path):
    """A run that was received names its data: nothing is fetched, and no program run, for it."""
    _, address = site
    mark = tmp_path / "mark"
    for source in (f"{address}/00000.tar", f"pipe:touch {mark}"):
        with pytest.raises(UserError, match=r"evaluate\.py fetches nothing"):
            open_source(source, None, None, tmp_path, tmp_path / "cache")
    assert not Quiet.asked
    assert not mark.exists()


@pytest.mark.slow
def test_a_run_is_planned_on_it(site, tmp_path, script, capsys):
    _, address = site
    words = [
        "data=folder", f"data.real={address}/{{00000..00001}}.tar", "data.cf_ratio=0",
        "data.holdout=0", "data.batch_size=2", "dry_run=json", f"paths.runs={tmp_path / 'runs'}",
        f"paths.shards={tmp_path / 'shards'}",
    ]  # fmt: skip
    assert script("train")(words) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["train"] == 7
    assert Quiet.asked == ["/00000.tar", "/00001.tar"]


def test_python_copies_what_its_caller_names(site, tmp_path, monkeypatch):
    folder, address = site
    monkeypatch.chdir(tmp_path)
    index = cfaug.open_source(f"{address}/{{00000..00001}}.tar", {"paths.cache": "cache"})
    assert contents(index) == contents(open_index(folder, tmp_path / "other"))


def test_a_truncated_shard_is_named_by_its_address_and_not_kept(site, tmp_path):
    """A pipe, or a server that states no length, ends early without an error."""
    folder, _ = site
    whole = (folder / "00000.tar").read_bytes()
    for size in (len(whole) // 2 + 100, 512, 1024):
        source = f"pipe:head -c {size} {folder}/00000.tar"
        with pytest.raises(UserError, match=r"^pipe:head HIDDEN-\w+ \(shard 00000\.tar\) is trunc"):
            fetch_shards(source, tmp_path / "cache")
    assert not list(tmp_path.glob("cache/**/*.tar*"))


class Hub(Quiet):
    """The few answers of the Hub that a public file needs; a wrong token is refused, as there."""

    def do_GET(self):
        token = self.headers.get("Authorization")
        if token is not None:
            self.send_error(401)
        elif self.path.startswith("/api/datasets/"):
            files = [
                {"type": "file", "path": f"0000{i}.tar", "size": 1, "oid": "0"} for i in range(2)
            ]
            about = {"id": "owner/name", "sha": "0", "siblings": []}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(files if "/tree/" in self.path else about).encode())
        else:
            self.path = self.path.replace("/datasets/owner/name/resolve/main", "")
            super().do_GET()


@pytest.mark.slow
def test_public_shards_of_the_hub_need_no_token(site, tmp_path, monkeypatch):
    folder, _ = site
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    hub = partial(
        huggingface_hub.HfFileSystem, endpoint=endpoint, token=False, skip_instance_cache=True
    )
    monkeypatch.setattr("huggingface_hub.HfFileSystem", hub)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    try:
        source = "hf://datasets/owner/name/{00000..00001}.tar"
        copies = fetch_shards(source, tmp_path / "cache")
        for name in ("00000.tar", "00001.tar"):
            assert (copies / name).read_bytes() == (folder / name).read_bytes()
        with pytest.raises(UserError, match=r"00002\.tar could not be read: .*(404|00002)"):
            fetch_shards("hf://datasets/owner/name/00002.tar", tmp_path / "cache")
    finally:
        server.shutdown()


def test_a_program_that_is_not_needed_any_more_is_ended(tmp_path, monkeypatch):
    """Closing the stream would wait for it."""
    monkeypatch.setenv(remote.LIMIT, "1e-6")
    source = f"pipe:echo $$ > {tmp_path}/number; head -c 3000000 /dev/zero; exec sleep 900"
    with pytest.raises(UserError, match=r"more than the 9\.99e-07 GiB"):
        fetch_shards(source, tmp_path / "cache")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "number").read_text()), 0)


def train(words):
    sys.exit(scripts.load("train")(words))


@pytest.mark.slow
def test_a_signal_ends_the_programs_that_a_pipe_started(tmp_path):
    """A shell's own children went on after SIGTERM, and held their connections and locks."""
    numbers = tmp_path / "numbers"
    numbers.mkdir()
    tree = f"(sleep 905 & echo $! > {numbers}/a; sh -c 'echo $$ > {numbers}/b; sleep 906') | cat"
    words = ["data=folder", f"data.real=pipe:{tree}", "data.cf_ratio=0", "dry_run=json",
             f"paths.cache={tmp_path}/cache"]  # fmt: skip
    command = children.start(train, words)
    until = time.monotonic() + 120
    while len(list(numbers.glob("?"))) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(0.2)
    command.terminate()
    command.join(60)
    assert command.exitcode == 130
    for file in numbers.iterdir():
        number = int(file.read_text())
        until = time.monotonic() + 60
        while psutil.pid_exists(number) and time.monotonic() < until:
            time.sleep(0.05)
        assert not psutil.pid_exists(number)


@pytest.mark.parametrize("source", ["swift://bucket/{0..1}.tar", "ftp://host/0.tar"])
def test_another_scheme_is_answered_with_a_pipe(source, tmp_path):
    with pytest.raises(UserError, match=r"no reader opens (swift|ftp)://.*pipe:rclone"):
        open_source(source, None, None, tmp_path, tmp_path / "cache", fetch=True)


@pytest.mark.parametrize("command", ["sleep 60", "while true; do printf u; sleep 0.02; done"])
def test_a_source_that_drips_or_stalls_is_given_up_and_leaves_nothing(
    command, tmp_path, monkeypatch
):
    monkeypatch.setenv("CFAUG_REMOTE_SECONDS", "0.2")
    began = time.monotonic()
    with pytest.raises(UserError, match=r"no whole answer within 0\.2 seconds"):
        fetch_shards(f"pipe:{command}", tmp_path)
    assert time.monotonic() - began < 5
    assert not [file for file in tmp_path.rglob("*") if ".tar" in file.name]
