"""``kill -9`` from outside: the same command goes on, and ends where it would have ended."""

from __future__ import annotations

import sys
import time

import pytest
import torch

from cfaug.evaluation.cached_model import Features
from tests import children
from tests.run.conftest import SCENES, Place

WORDS = ["data.cf_ratio=0.6", "seed=107", "trainer.max_steps=14", "trainer.save_every_steps=3"]


def exit_with(place, words) -> None:
    sys.exit(place.train(*words))


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["data.negatives=image", "loss=hard_negatives"]])
def test_a_killed_command_continues_and_ends_bit_identical(place, capfd, more):
    torch.set_num_threads(1)
    words = [*WORDS, *more]
    assert place.train(*words, "arm=whole") == 0
    folder = place.root / "main" / "cut" / "seed=107"
    log = folder / "metrics.csv"
    children.kill_at_line(log, 8, exit_with, place, [*words, "arm=cut"])
    assert place.record("cut")["state"] == "running"
    written = log.read_bytes()

    assert place.train(*words, "arm=cut") == 0
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


@pytest.mark.slow
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
    """Evaluate until two pieces of the scores are written, then wait to be killed."""
    torch.set_num_threads(1)
    add, written = Features.add, []

    def add_and_wait(features, keys, vectors) -> None:
        add(features, keys, vectors)
        written.append(len(keys))
        if len(written) == 2:
            time.sleep(600)

    Features.add = add_and_wait
    sys.exit(place.evaluate(*words))


def scores(root) -> dict:
    """The files of scores under a folder, and when each was written."""
    return {f.name: f.stat().st_mtime_ns for f in root.glob("cache/features/*/score-*.npy")}


@pytest.mark.slow
def test_a_killed_matching_keeps_its_scores_and_ends_with_the_same_bytes(
    place, shards, tmp_path, capfd
):
    torch.set_num_threads(1)
    asked = ["weights=zoo:clip-0", "benchmark=cf", "benchmark.only=[shapescapes_cf_matching]"]

    def evaluate(name: str, run) -> list[bytes]:
        here = Place(tmp_path / name, shards, place.script)
        words = [*asked, *SCENES, f"paths.cache={tmp_path / name}/cache"]
        run(here, words)
        assert here.evaluate(*words) == 0
        folder = next(here.root.rglob("results.jsonl")).parent
        kept = ("items/shapescapes_cf_matching.parquet", "matching.html", "results.jsonl")
        return [(folder / file).read_bytes() for file in kept]

    def kill(here, words) -> None:
        child = children.start(evaluate_with, here, words)
        while len(scores(here.root)) < 2:
            assert child.is_alive()
            time.sleep(0.01)
        child.kill()
        child.join()
        kept.update(scores(here.root))
        assert not list(here.root.rglob("*.jsonl"))
        assert not list(here.root.rglob("*.parquet"))

    kept: dict = {}
    cut = evaluate("cut", kill)
    after = scores(tmp_path / "cut")
    assert len(kept) == 2
    assert len(after) == 6
    assert kept.items() <= after.items()
    assert cut == evaluate("whole", lambda here, words: None)
    capfd.readouterr()
    evaluate("whole", lambda here, words: None)
    assert "already evaluated" in capfd.readouterr().out
