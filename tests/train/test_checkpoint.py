"""``last.ckpt``: damaged ones end in a sentence, and a full disk leaves the last good one."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.train.checkpoint import AtomicCheckpointIO, read_checkpoint
from tests import skips
from tests.train import tiny_plan
from tests.train.tiny_plan import rows, same_weights

STEPS = 12


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, weights):
    """A run folder with a checkpoint of step 8, as a run that was killed leaves it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs") / "arm" / "seed=1"
    tiny_plan.train(folder, weights, steps=STEPS, save_every_steps=4)
    assert read_checkpoint(folder / "last.ckpt")["global_step"] == 8
    return folder


@pytest.fixture
def folder(stopped, tmp_path):
    shutil.copytree(stopped, tmp_path / "seed=1")
    return tmp_path / "seed=1"


def change(last, **values) -> None:
    content = torch.load(last, weights_only=True)
    torch.save({**content, **values}, last)


def of_another_model(last) -> None:
    content = torch.load(last, weights_only=True)
    weights = {name: value[:1] for name, value in content["state_dict"].items() if value.ndim}
    torch.save({**content, "state_dict": weights}, last)


def without(last, key) -> None:
    content = torch.load(last, weights_only=True)
    del content[key]
    torch.save(content, last)


DAMAGES = {
    "cut short": lambda last: os.truncate(last, 5000),
    "cut in half": lambda last: os.truncate(last, last.stat().st_size // 2),
    "empty": lambda last: os.truncate(last, 0),
    "rubbish": lambda last: last.write_bytes(os.urandom(5000)),
    "a list": lambda last: torch.save([1, 2], last),
    "only a step": lambda last: torch.save({"global_step": 8}, last),
    "no optimizer": lambda last: without(last, "optimizer_states"),
    "a later step than the last": lambda last: change(last, global_step=STEPS + 1),
    "a step that is no number": lambda last: change(last, global_step="8"),
    "another model's": of_another_model,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_in_a_sentence(folder, weights, damage):
    last = folder / "last.ckpt"
    DAMAGES[damage](last)
    content = last.read_bytes()
    with pytest.raises(UserError, match=r"last\.ckpt.* remove it to start"):
        tiny_plan.train(folder, weights, steps=STEPS, attempt=1)
    assert last.read_bytes() == content  # it is the user's to remove


def test_a_pipe_is_not_waited_for(tmp_path, monkeypatch):
    last = tmp_path / "last.ckpt"
    os.mkfifo(last)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("the pipe was opened"))
    with pytest.raises(UserError, match=r"last\.ckpt is not a regular file but a pipe"):
        read_checkpoint(last)


class FullDisk:
    """A file on a disk with room for so many bytes."""

    def __init__(self, file, room: int) -> None:
        self._file, self._room = file, room

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def write(self, content) -> int:
        self._room -= len(content)
        if self._room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._file.write(content)


def test_a_full_disk_keeps_the_last_good_checkpoint(folder, monkeypatch):
    last = folder / "last.ckpt"
    content, whole = torch.load(last, weights_only=True), last.read_bytes()
    kind = type(last)
    work = kind.open

    def open_on_full_disk(path, mode="r", *args, **kwargs):
        file = work(path, mode, *args, **kwargs)
        return FullDisk(file, len(whole) // 2) if path.name == ".last.ckpt.new" else file

    monkeypatch.setattr(kind, "open", open_on_full_disk)
    with pytest.raises(OSError, match=r"No space left on device: .*last\.ckpt") as raised:
        AtomicCheckpointIO().save_checkpoint(content, last)
    assert raised.value.errno == errno.ENOSPC
    assert last.read_bytes() == whole
    assert [file.name for file in folder.iterdir() if "new" in file.name] == []


@pytest.fixture
def small_disk(tmp_path):
    """A disk that holds one checkpoint of the tiny model and half of a second."""
    place = tmp_path / "disk"
    place.mkdir()
    size = "1200k"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        skips.skip("root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
def test_a_run_goes_on_from_the_last_good_checkpoint_once_there_is_room(
    small_disk, weights, tmp_path
):
    torch.set_num_threads(1)
    folder = small_disk / "arm" / "seed=1"
    whole, _, _ = tiny_plan.train(tmp_path / "whole" / "seed=1", weights, steps=STEPS)
    tiny_plan.train(folder, weights, steps=5, save_every_steps=4)
    saved = (folder / "last.ckpt").read_bytes()
    filler = small_disk / "filler"
    free = shutil.disk_usage(small_disk).free
    filler.write_bytes(b"\0" * (free - len(saved) // 2))
    with pytest.raises(OSError, match=r"No space left on device: .*last\.ckpt"):
        tiny_plan.train(folder, weights, steps=STEPS, save_every_steps=4, attempt=1)
    assert (folder / "last.ckpt").read_bytes() == saved
    filler.unlink()
    resumed, start, _ = tiny_plan.train(folder, weights, steps=STEPS, attempt=2)
    assert start == 4
    assert same_weights(resumed.state_dict(), whole.state_dict())
    assert int(rows(folder)[-1]["step"]) == STEPS
