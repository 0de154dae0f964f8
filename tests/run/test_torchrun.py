"""``trainer.devices=2``: train.py starts torchrun, whose two processes train what one trains."""

from __future__ import annotations

import csv

import torch
from safetensors.torch import load_file

# A gradient that is zero in exact arithmetic is rounding noise in floating point, and Adam with a
# small eps blows it up to a whole step. With this eps a step is linear in it.
WORDS = ["seed=107", "data.cf_ratio=0.6", "optim.eps=0.01", "trainer.accelerator=cpu"]


def run(place, arm):
    folder = place.root / "main" / arm / "seed=107"
    with (folder / "metrics.csv").open() as handle:
        losses = [float(row["train/loss"]) for row in csv.DictReader(handle)]
    return load_file(folder / "checkpoint/model.safetensors"), losses, place.record(arm)


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
