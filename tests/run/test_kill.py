"""``kill -9`` from outside: the same command goes on, and ends where it would have ended."""

from __future__ import annotations

import sys
import time

import torch

from tests import children
from tests.run.conftest import WORLD, Place

WORDS = ["data.cf_ratio=0.6", "seed=107", "trainer.max_steps=14", "trainer.save_every_steps=3"]


def exit_with(place, words) -> None:
    sys.exit(place.train(*words))


def test_a_killed_command_continues_and_ends_bit_identical(place, capfd):
    torch.set_num_threads(1)
    assert place.train(*WORDS, "arm=whole") == 0
    folder = place.root / "main" / "cut" / "seed=107"
    child = children.start(exit_with, place, [*WORDS, "arm=cut"])
    log = folder / "metrics.csv"
    while not log.exists() or log.read_bytes().count(b"\n") < 8:
        assert child.is_alive()
        time.sleep(0.002)
    child.kill()
    child.join()
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
    started = [children.start(exit_with, place, words) for _ in range(6)]
    for child in started:
        child.join()
    codes = {child.exitcode for child in started}
    # One trains; the others are told that somebody is at work, or that it is done.
    assert codes <= {0, 2}
    assert 0 in codes
    assert place.record()["state"] == "done"
    assert place.record()["attempts"] == [{"start_step": 0, "end_step": 3}]


def evaluate_with(place, words) -> None:
    torch.set_num_threads(1)
    sys.exit(place.evaluate(*words))


def test_a_killed_matching_keeps_its_scores_and_ends_with_the_same_bytes(
    place, shards, tmp_path, capfd
):
    torch.set_num_threads(1)
    asked = ["weights=zoo:bridgetower-itm-0", "model=tiny_bridgetower_itm", "benchmark=cf", *WORLD]
    asked.append("benchmark.only=[shapescapes_cf_matching]")
    found = {}
    for name in ("whole", "cut"):
        here = Place(tmp_path / name, shards, place.script)
        words = [*asked, f"paths.cache={tmp_path / name}/cache"]
        if name == "cut":
            child = children.start(evaluate_with, here, words)
            while len(kept := scores(tmp_path / name)) < 2:
                assert child.is_alive()
                time.sleep(0.001)
            child.kill()
            child.join()
            assert len(kept) < 6
            assert not list(here.root.rglob("matching.jsonl"))
        assert here.evaluate(*words) == 0
        if name == "cut":
            assert kept.items() <= scores(tmp_path / name).items()
        assert len(scores(tmp_path / name)) == 6
        folder = next(here.root.rglob("matching.jsonl")).parent
        found[name] = [(folder / file).read_bytes() for file in ("matching.jsonl", "results.jsonl")]
        capfd.readouterr()
        assert here.evaluate(*words) == 0
        assert "already evaluated" in capfd.readouterr().out
    assert found["whole"] == found["cut"]


def scores(root) -> dict:
    """The files of scores under a folder, and when each was written."""
    return {f.name: f.stat().st_mtime_ns for f in root.glob("cache/features/*/score-*.npy")}
