"""Several runs of a sweep at once give what they give one after the other."""

from __future__ import annotations


def weights(place, arm, seed):
    return (place.root / "main" / arm / f"seed={seed}/checkpoint/model.safetensors").read_bytes()


def test_runs_at_once_equal_runs_in_turn_and_a_bad_one_stops_nobody(place, capfd, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert place.train("-m", "seed=1,2", "arm=in_turn") == 0
    assert place.train("-m", "seed=1,2", "arm=at_once", "parallel=2") == 0
    for seed in (1, 2):
        assert place.record("at_once", seed)["state"] == "done"
        assert weights(place, "at_once", seed) == weights(place, "in_turn", seed)
    record = place.record("in_turn", 1)
    assert place.train("-m", "seed=1,3", "arm=in_turn", "optim.lr=.1", "parallel=2") == 2
    assert place.record("in_turn", 3)["state"] == "done"
    assert place.record("in_turn", 1) == record
    assert "failed: " in capfd.readouterr().err


def test_parallel_that_cannot_be_is_refused(place, capfd):
    assert place.train("parallel=0") == 2
    assert "parallel=0" in capfd.readouterr().err
    assert place.train("parallel=2", "trainer.devices=2") == 2
    assert "trainer.devices=2" in capfd.readouterr().err
