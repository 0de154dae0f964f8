"""``trainer.devices=2``: train.py starts torchrun, whose two processes train what one trains."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.run.conftest import WORLD

# A gradient that is zero in exact arithmetic is rounding noise in floating point, and Adam with a
# small eps blows it up to a whole step. With this eps a step is linear in it.
WORDS = ["seed=107", "data.cf_ratio=0.6", "optim.eps=0.01", "trainer.accelerator=cpu"]


def run(place, arm):
    folder = place.root / "main" / arm / "seed=107"
    with (folder / "metrics.csv").open() as handle:
        losses = [float(row["train/loss"]) for row in csv.DictReader(handle)]
    return load_file(folder / "checkpoint/model.safetensors"), losses, place.record(arm)


@pytest.mark.slow
def test_two_processes_of_a_command_train_what_one_trains(place, capfd, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    assert place.train(*WORDS, "arm=one") == 0
    assert place.train(*WORDS, "arm=two", "trainer.devices=2") == 0, capfd.readouterr().err
    (one, losses, record), (two, losses_of_two, record_of_two) = (
        run(place, "one"),
        run(place, "two"),
    )
    assert record_of_two["state"] == "done"
    assert record_of_two["config_hash"] == record["config_hash"]
    assert record_of_two["attempts"] == [{"start_step": 0, "end_step": 3}]
    assert record_of_two["counts"]["seen"] == record["counts"]["seen"] == 3 * 16
    assert one.keys() == two.keys()
    assert max((one[k].double() - two[k].double()).abs().max().item() for k in one) < 1e-6
    assert len(losses_of_two) == 3  # rank 0 alone writes
    assert max(abs(a - b) for a, b in zip(losses, losses_of_two, strict=True)) < 1e-5
    capfd.readouterr()
    assert place.train(*WORDS, "arm=two") == 0
    assert "already done" in capfd.readouterr().out


@pytest.mark.slow
def test_what_a_process_rejects_is_one_sentence_and_exit_code_2(place, capfd, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert place.train(*WORDS, "arm=two", "trainer.devices=2", "optim.lr=1e9") == 2
    err = capfd.readouterr().err
    assert "the loss is nan" in err
    assert "Traceback" not in err
    assert "torch/distributed" not in err
    assert err.count("optim.lr=1e+09 is ") == 1  # what is planned is said once
    assert err.count("failed: ") == 1


@pytest.mark.slow
def test_a_scheduler_tells_every_process_and_each_step_is_saved(place):
    """Every process of the job at once, and the command passes it on to torchrun once more."""
    folder = place.root / "main/two/seed=107"
    words = [*WORLD, *WORDS, *place.paths, "arm=two", "trainer.devices=2", "trainer.max_steps=9999"]
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, str(root / "train.py"), *words], stderr=subprocess.PIPE, text=True,
        cwd=place.root.parent, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip
    try:
        until = time.monotonic() + 300
        while _lines(folder / "metrics.csv") < 2 and time.monotonic() < until:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGTERM)
        _, err = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert f"{folder} is saved at step " in err
    assert (folder / "last.ckpt").exists()


def _lines(file) -> int:
    return max(0, file.read_bytes().count(b"\n") - 1) if file.exists() else 0
