"""Locks between processes, signals that end them, and the devices of a machine."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.processes import (
    ENDINGS,
    StopRequest,
    acquire,
    available_devices,
    check_accelerator,
    check_device,
    choose_device,
    equal_threads,
    hold_lock,
    interruptible,
)


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


POOL = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
from cfaug.core.processes import interruptible

if __name__ == "__main__":
    try:
        with interruptible(), ProcessPoolExecutor(2) as pool:
            futures = [pool.submit(time.sleep, 600) for _ in range(2)]
            time.sleep(1)
            print("started", flush=True)
            [future.result() for future in futures]
    except KeyboardInterrupt:
        sys.exit(7)
"""

CALL = """
import sys
from cfaug.core.processes import call, interruptible

CHILD = '''
import signal, sys, time
def save(*_):
    time.sleep(1)
    print("saved", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
print("started", flush=True)
time.sleep(600)
'''
try:
    with interruptible():
        call([sys.executable, "-c", CHILD])
except KeyboardInterrupt:
    sys.exit(7)
"""


@contextmanager
def handling(handler, *numbers):
    """Handle signals so meanwhile, whatever who started this test did with them."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@pytest.mark.parametrize("number", ENDINGS)
def test_an_announced_end_is_an_interruption_and_handlers_are_as_before(number):
    with handling(signal.SIG_DFL, *ENDINGS):
        with pytest.raises(KeyboardInterrupt), interruptible():
            signal.raise_signal(number)
        assert {signal.getsignal(each) for each in ENDINGS} == {signal.SIG_DFL}


def test_what_nohup_ignores_stays_ignored():
    with handling(signal.SIG_IGN, signal.SIGHUP), interruptible():
        signal.raise_signal(signal.SIGHUP)
        StopRequest().listen()
        signal.raise_signal(signal.SIGHUP)


def test_a_signal_that_is_repeated_does_not_interrupt_the_end():
    """The kernel sends SIGXCPU every second once the limit is reached."""
    with handling(signal.SIG_DFL, *ENDINGS), interruptible():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGXCPU)
        signal.raise_signal(signal.SIGXCPU)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)  # the scheduler's last word


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_another_librarys_handler_gets_its_signal_once_the_work_is_saved(number):
    """As submitit's, which puts the job into the queue again, and would end it in mid-step."""
    received = []

    def save(order: str):
        request = StopRequest()
        request.listen()
        signal.raise_signal(number)
        assert request.requested
        received.append(order)
        raise KeyboardInterrupt

    with handling(lambda arrived, _: received.append(arrived), *ENDINGS):
        with pytest.raises(KeyboardInterrupt), interruptible(), interruptible():
            save("saved")
        assert received == ["saved", number]
        with pytest.raises(KeyboardInterrupt), interruptible():
            raise KeyboardInterrupt  # by Ctrl-C: no other signal arrived
    assert received == ["saved", number]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "said"), [(POOL, ""), (CALL, "saved")], ids=["pool", "call"])
def test_children_end_with_their_parent(tmp_path, script, said):
    """Children that sleep for ten minutes are told, and one that saves is waited for."""
    file = tmp_path / "script.py"
    file.write_text(script)
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, str(file)], stdout=subprocess.PIPE, text=True, env=here
    )
    assert process.stdout.readline() == "started\n"
    process.terminate()
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 7
    assert out.strip() == said


@pytest.mark.parametrize(
    "name", ["banana", "cuda:", "cuda:x", "CUDA", "cpu:0", "", None, 0, "meta"]
)
def test_what_names_no_device_is_refused_without_torch(name):
    with pytest.raises(UserError, match=r"zoo\.device=.*auto, cpu, cuda"):
        check_device(name, "zoo.device")


def test_a_machine_has_its_processor():
    assert available_devices()[0] == "cpu"
    assert choose_device("cpu").type == "cpu"
    assert choose_device().type in {"cpu", "cuda"}


def has(monkeypatch, cuda=0, mps=False):
    monkeypatch.setattr("torch.cuda.is_available", lambda: bool(cuda))
    monkeypatch.setattr("torch.cuda.device_count", lambda: cuda)
    monkeypatch.setattr("torch.xpu.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: mps)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "mps", "xpu", "banana"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(monkeypatch, name):
    has(monkeypatch)
    with pytest.raises(UserError, match=rf"device={name}: .*\bcpu\b"):
        choose_device(name)


def test_of_two_gpus_there_is_no_third(monkeypatch):
    has(monkeypatch, cuda=2)
    assert str(choose_device()) == "cuda"
    assert str(choose_device("cuda:1")) == "cuda:1"
    with pytest.raises(UserError, match="choose auto or cpu, cuda, cuda:0, cuda:1"):
        choose_device("cuda:2")


@pytest.mark.parametrize(
    ("machine", "good", "bad"),
    [
        ({}, ("auto", "cpu"), ("gpu", "mps")),
        ({"cuda": 1}, ("auto", "cpu", "gpu"), ("mps",)),
        ({"mps": True}, ("auto", "cpu", "gpu", "mps"), ()),
    ],
)
def test_accelerators_as_lightning_names_them(monkeypatch, machine, good, bad):
    has(monkeypatch, **machine)
    for name in good:
        check_accelerator(name)
    for name in bad:
        with pytest.raises(UserError, match=f"trainer.accelerator={name}: .*choose auto or cpu"):
            check_accelerator(name)


KILLED_WITH_A_POOL = """
import os, signal, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from cfaug.core.processes import end_with_parent, interruptible

with interruptible(), ProcessPoolExecutor(2, get_context("fork"), end_with_parent) as pool:
    list(pool.map(time.sleep, [0.1, 0.1]))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_pool_ends_with_a_parent_that_was_killed():
    process = subprocess.Popen([sys.executable, "-c", KILLED_WITH_A_POOL], stderr=subprocess.PIPE)
    _, said = process.communicate(timeout=300)  # until no process of the pool can write any more
    assert said == b""
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("typed", "used"), [(None, 2), (1, 2), (2, 2), (5, 5)])
def test_shards_are_made_with_a_number_of_threads_that_no_machine_chooses(monkeypatch, typed, used):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    before = torch.get_num_threads()
    with equal_threads(typed):
        assert (torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]) == (used, str(used))
    assert (torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]) == (before, "7")
