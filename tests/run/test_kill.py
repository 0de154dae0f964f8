"""``kill -9`` from outside: the same command goes on, and ends where it would have ended."""

from __future__ import annotations

import os
import signal
import time

import torch

WORDS = ["data.cf_ratio=0.6", "seed=107", "trainer.max_steps=14", "trainer.save_every_steps=3"]


def in_a_child(work) -> int:
    """Run ``work`` in a forked child, which starts with everything imported; return its pid."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return child


def test_a_killed_command_continues_and_ends_bit_identical(place, capfd):
    torch.set_num_threads(1)  # a child made by fork may not use the parent's other threads
    assert place.train(*WORDS, "arm=whole") == 0
    folder = place.root / "main" / "cut" / "seed=107"
    child = in_a_child(lambda: place.train(*WORDS, "arm=cut"))
    log = folder / "metrics.csv"
    deadline = time.monotonic() + 120
    while not log.exists() or log.read_bytes().count(b"\n") < 8:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert place.record("cut")["state"] == "running"
    written = log.read_bytes()

    assert place.train(*WORDS, "arm=cut") == 0
    record = place.record("cut")
    assert record["state"] == "done"
    assert record["config_hash"] == place.record("whole")["config_hash"]
    start = record["attempts"][1]["start_step"]
    assert record["attempts"] == [
        {"start_step": 0, "end_step": start},
        {"start_step": start, "end_step": 14},
    ]
    assert start > 0
    assert start % 3 == 0
    assert log.read_bytes().startswith(written)
    weights = [
        (place.root / "main" / arm / "seed=107/checkpoint/model.safetensors").read_bytes()
        for arm in ("whole", "cut")
    ]
    assert weights[0] == weights[1]


def test_many_processes_may_start_the_same_run_at_once(place, capfd):
    torch.set_num_threads(1)
    words = ["data.world.seed=77", "seed=107"]
    children = [in_a_child(lambda: place.train(*words)) for _ in range(6)]
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    # One trains; the others are told that somebody is at work, or that it is done.
    assert set(codes) <= {0, 2}
    assert codes[0] == 0
    assert place.record()["state"] == "done"
    assert place.record()["attempts"] == [{"start_step": 0, "end_step": 3}]
