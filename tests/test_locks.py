"""Locks between processes: who waits, who is refused, and what happens to the file."""

from __future__ import annotations

import fcntl
import os

import pytest

from cfaug.core.errors import UserError
from cfaug.core.processes import acquire, hold_lock


def is_held(file):
    """Whether a descriptor of its own, as another process has one, is refused the lock."""
    with file.open("a") as other:
        return not acquire(other, wait=False)


def test_a_lock_is_released_when_the_block_fails(tmp_path):
    def fail():
        with hold_lock(tmp_path / "a.lock"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not is_held(tmp_path / "a.lock")


def test_a_held_lock_is_refused_in_the_caller_s_words(tmp_path):
    file = tmp_path / "a.lock"
    with (
        hold_lock(file),
        pytest.raises(UserError, match="choose another part"),
        hold_lock(file, refusal="choose another part"),
    ):
        pass
    with hold_lock(file, refusal="free again"):
        assert is_held(file)


def test_shared_locks_admit_each_other_and_no_exclusive_one(tmp_path):
    with (tmp_path / "users").open("a") as first, (tmp_path / "users").open("a") as second:
        assert acquire(first, shared=True, wait=False)
        assert acquire(second, shared=True, wait=False)
        assert not acquire(first, wait=False)
        second.close()
        assert acquire(first, wait=False)


def test_a_process_that_ends_releases_its_lock(tmp_path):
    file = tmp_path / "a.lock"
    held, go_on = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with hold_lock(file):
            os.write(held[1], b"held")
            os.read(go_on[0], 1)
            os._exit(1)  # without leaving the block, as a process that is killed
    assert os.read(held[0], 4) == b"held"
    assert is_held(file)
    os.write(go_on[1], b".")
    os.waitpid(child, 0)
    assert not is_held(file)
    for number in (*held, *go_on):
        os.close(number)


def test_the_file_is_never_emptied(tmp_path):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "a.lock").symlink_to(tmp_path / "mine")
    with hold_lock(tmp_path / "a.lock"):
        assert (tmp_path / "mine").read_text() == "kept"


def test_locks_are_those_of_flock(tmp_path):
    with (tmp_path / "a.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError), hold_lock(tmp_path / "a.lock", refusal="busy"):
            pass
