"""What a killed process was writing goes, and nothing else does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from cfaug.core import atomic_files
from cfaug.core.atomic_files import (
    is_temporary,
    remove_leftovers,
    replace_file,
    temporary_name,
    whole_folder,
    write_file,
)
from cfaug.core.kept_records import read_kept
from cfaug.evaluation.failures import write_failures

OTHER_MACHINE = "ffffffff"
STRANGERS = (
    "f.jsonl.tmp", "f.jsonl.77.tmp", "f.jsonl.cfaug-notes.tmp", "cfaug-0123abcd-99.tmp",
    "f.jsonl.cfaug-0123abcd-99.tmp.bak", "f.jsonl.cfaug-0123ABCD-99.tmp",
)  # fmt: skip


def die_while_writing(folder):
    with replace_file(folder / "f.jsonl") as file, whole_folder(folder / "index", bool) as half:
        (half / "half").write_bytes(b"half")
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def leave_litter(folder):
    child = multiprocessing.get_context("fork").Process(target=die_while_writing, args=(folder,))
    child.start()
    child.join()
    litter = [path.name for path in folder.iterdir() if is_temporary(path.name)]
    assert len(litter) == 2
    return litter


def write(folder):
    write_file(folder / "f.jsonl", b"whole")


def keep(folder):
    read_kept(folder, "*.npy", print)


def write_list(folder):
    write_failures(folder / "f.jsonl", [])


@pytest.mark.parametrize("next_command", [write, keep, write_list])
def test_the_next_process_removes_what_a_killed_one_was_writing(tmp_path, next_command):
    folder = tmp_path / "ein Ordner ä"
    folder.mkdir()
    next_command(folder)
    before = {path.name for path in folder.iterdir()}
    leave_litter(folder)
    for name in STRANGERS:
        (folder / name).write_text("mine")
    atomic_files._tidy.cache_clear()  # of another process
    next_command(folder)
    assert {path.name for path in folder.iterdir()} == {*before, *STRANGERS}


def test_what_a_living_process_writes_stays(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as living:
        mine = temporary_name(tmp_path / "f.jsonl")
        theirs = tmp_path / mine.name.replace(f"-{os.getpid()}.", f"-{living.pid}.")
        for file in (mine, theirs):
            file.write_bytes(b"half")
        remove_leftovers(tmp_path)
        assert {*tmp_path.iterdir()} == {mine, theirs}
        living.kill()
        living.wait()
        remove_leftovers(tmp_path)
        assert [*tmp_path.iterdir()] == [mine]


def test_another_machines_files_stay_until_nobody_has_written_for_a_day(tmp_path):
    """Its processes cannot be seen from here."""
    file = tmp_path / f"f.jsonl.cfaug-{OTHER_MACHINE}-1.tmp"
    folder = tmp_path / f".index.cfaug-{OTHER_MACHINE}-1-abc_12.tmp"
    folder.mkdir()
    for path in (file, folder / "column"):
        path.write_bytes(b"half")
    remove_leftovers(tmp_path)
    assert file.exists()
    before = time.time() - 2 * atomic_files.ABANDONED
    for path in (file, folder):
        os.utime(path, (before, before))
    remove_leftovers(tmp_path)
    assert [*tmp_path.iterdir()] == [folder]  # its column was written to a moment ago
    os.utime(folder / "column", (before, before))
    remove_leftovers(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_link_is_left_and_a_long_name_has_a_temporary_one(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / f"f.cfaug-{OTHER_MACHINE}-1.tmp").symlink_to("missing")
    (tmp_path / f"f.cfaug-{atomic_files._machine()}-999999999.tmp").symlink_to("mine")
    remove_leftovers(tmp_path)
    remove_leftovers(tmp_path / "missing")
    assert len([*tmp_path.iterdir()]) == 3
    write_file(tmp_path / ("ä" * 127), b"whole")
    assert (tmp_path / ("ä" * 127)).read_bytes() == b"whole"
