"""Several runs of a sweep at once give what they give one after the other."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import shlex
import shutil
from multiprocessing import get_context
from types import SimpleNamespace

import pytest

import cfaug.data.mixture.loader
from cfaug.core import progress
from cfaug.core.errors import UserError
from cfaug.planning.training import TrainSettings
from cfaug.run import parallel
from cfaug.run.launch import DONE, FAILED
from cfaug.run.parallel import run_at_once
from cfaug.run.train import _words
from tests import children, scripts
from tests.run.conftest import Place, exit_with, jobs_of, refusal
from tests.run.worker_jobs import ask_for_bars, die_unless_even, read_threads

WORDS = [
    "-m", "data.seed=9", "data.cf_ratio=0.6", "trainer.max_steps=4", "trainer.val_every_steps=2",
    "trainer.save_every_steps=1",
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_memory():
    parallel._of_this_process.cache_clear()
    yield
    parallel._of_this_process.cache_clear()


@pytest.fixture
def decoded(monkeypatch):
    names = []

    def watched(data, name):
        names.append(name)
        return cfaug.core.pixels.decode_image(data, name)

    monkeypatch.setattr(cfaug.data.mixture.loader, "decode_image", watched)
    return names


def bytes_of(place):
    """Return what each seed's run left: weights, and the log without its clock."""
    by_seed = {}
    for seed in (1, 2):
        with (place.folder(seed=seed) / "metrics.csv").open() as handle:
            rows = [{**row, "seconds": None} for row in csv.DictReader(handle)]
        assert len(rows) == 4
        by_seed[seed] = (place.weights(seed=seed), rows)
    return by_seed


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory, shards):
    """Two runs, one after the other."""
    place = Place(tmp_path_factory.mktemp("in_turn"), shards, scripts.load)
    assert place.train(*WORDS, "seed=1,2") == 0
    return place


@pytest.mark.slow
def test_runs_at_once_equal_runs_in_turn_and_a_bad_one_stops_nobody(
    place, in_turn, capfd, monkeypatch
):
    monkeypatch.setattr(parallel, "get_context", lambda _: get_context("forkserver"))
    assert place.train("seed=3", "trainer.max_steps=0") == 0
    record = place.record(seed=3)
    packed = ["parallel=2", "share_image_cache=true", "image_cache_mib=64"]
    assert place.train(*WORDS, "seed=3,1,2", *packed) == 2
    assert bytes_of(place) == bytes_of(in_turn)
    assert place.record(seed=3) == record
    # N41: it was called failed, although that run is as it was.
    assert f"refused, and left as it is: {place.root}/main/run/seed=3" in capfd.readouterr().err


@pytest.mark.slow
def test_parallel_that_cannot_be_is_refused(place):
    assert "parallel=0" in refusal(place.train, "parallel=0")
    sweep = ["--multirun", "seed=1,2", "parallel=2", "trainer.devices=2"]
    assert "trainer.devices=2" in refusal(place.train, *sweep)


@pytest.mark.slow
def test_a_killed_process_fails_its_own_job_only(capfd):
    results = run_at_once(range(5), die_unless_even, 2)
    assert results == [(0, DONE), (1, FAILED), (2, DONE), (3, FAILED), (4, DONE)]
    assert capfd.readouterr().err.count("memory runs out: fewer at once than parallel=2") == 2
    results = run_at_once([0, 1, 2], die_unless_even, 1, stop_on_error=True)
    assert results == [(0, DONE), (1, FAILED)]


@pytest.mark.slow
def test_failed_runs_are_listed_with_what_retries_them_and_can_stop_the_rest(place, capfd):
    assert place.train("seed=2", "trainer.max_steps=1") == 0
    words = ["-m", "seed=1,2,3", "trainer.max_steps=1"]
    other = ["optim.lr=.1", *words]  # seed 2 holds another run
    assert place.train(*other, "on_error=stop") == 2
    assert place.record(seed=1)["state"] == "done"
    assert not (place.root / "main/run/seed=3").exists()
    said = capfd.readouterr().err
    assert "1 of 3 runs failed" in said
    assert "1 run was not started" in said

    assert place.train(*other) == 2
    assert place.record(seed=3)["state"] == "done"
    said = capfd.readouterr().err
    assert "not started" not in said
    (line,) = (line for line in said.splitlines() if line.startswith("  python train.py "))
    retry = shlex.split(line)[2:]
    assert "seed=2" in retry
    capfd.readouterr()
    assert place.script("train")(retry) == 2
    assert "optim.lr" in capfd.readouterr().err
    assert place.script("train")([*retry, "overwrite=true"]) == 0
    assert place.train(*other) == 0


@pytest.mark.slow
def test_parts_divide_the_runs_of_a_sweep(place, capfd):
    words = ["-m", "seed=4,5,6", "dry_run=json", "parts=2"]

    def seeds(part):
        assert place.train(*words, f"part={part}") == 0
        said = capfd.readouterr().out.splitlines()
        runs = (json.loads(line)["run"] for line in said if line.startswith("{"))
        return [run.rpartition("/")[2] for run in runs]

    assert [seeds(0), seeds(1)] == [["seed=4", "seed=6"], ["seed=5"]]
    assert place.train("part=1", "parts=2") == 0
    assert "nothing to do" in capfd.readouterr().err
    for wrong in ("part=2", "part=-1", "part=a"):
        assert place.train(*words, wrong) == 2
        assert wrong in capfd.readouterr().err


@pytest.mark.slow
def test_a_dry_run_lists_what_became_of_every_run(place, capfd):
    def lie(seed, **record):
        folder = place.folder(seed=seed)
        (folder / "checkpoint").mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(record))
        return folder

    def dry_run():
        assert place.train("-m", "seed=1,2,3,4,5", "dry_run=json") == 0
        said = capfd.readouterr()
        described = [json.loads(line) for line in said.out.splitlines()]
        return {run["state"]: run["config_hash"] for run in described}, said.err

    states, _ = dry_run()
    assert list(states) == ["absent"]
    for seed, state in ((1, "done"), (2, "failed"), (3, "running")):
        place.train(f"seed={seed}", "dry_run=json")
        known = json.loads(capfd.readouterr().out)["config_hash"]
        lie(seed, state=state, config_hash=known)
    lie(4, state="done", config_hash="another")
    states, message = dry_run()
    assert list(states) == ["done", "failed", "cut off", "other", "absent"]
    assert "5 runs: 1 absent, 1 cut off, 1 done, 1 failed, 1 other" in message
    with (place.root / "main/run/seed=3/.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        states, _ = dry_run()
    assert "at work" in states


@pytest.mark.slow
def test_the_parent_alone_draws_a_bar(monkeypatch):
    """Children whose stderr is the same terminal print lines; ours shows how many runs are done."""
    ours, theirs = os.openpty()
    before = os.dup(2)
    os.dup2(theirs, 2)
    try:
        with os.fdopen(os.dup(2), "w") as terminal:
            monkeypatch.setattr("sys.stderr", terminal)
            monkeypatch.setenv("TERM", "xterm")
            monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
            assert run_at_once(range(2), ask_for_bars, 2) == [(0, DONE), (1, DONE)]
        assert b"the sweep" in os.read(ours, 2**16)
    finally:
        os.dup2(before, 2)
        for number in (before, ours, theirs):
            os.close(number)


def test_children_share_the_cores_and_the_environment_is_as_before(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = dict(os.environ)
    assert run_at_once([1], read_threads, 1) == [(1, len(os.sched_getaffinity(0)))]
    assert dict(os.environ) == before


# Packed runs: the bytes of solo runs, with every image decoded once.


@pytest.mark.slow
def test_packed_runs_equal_solo_runs_and_decode_every_image_once(place, in_turn, decoded, capfd):
    words = [*WORDS, "seed=1,2", "share_image_cache=true"]
    assert place.train(*words) == 0
    seen = [place.record(seed=seed)["counts"]["seen"] for seed in (1, 2)]
    assert len(decoded) == len(set(decoded)) < sum(seen)
    solo = bytes_of(in_turn)
    assert bytes_of(place) == solo
    for seed in (1, 2):
        assert place.record(seed=seed)["config_hash"] == in_turn.record(seed=seed)["config_hash"]
    # What is done is skipped; what was cut off or lost is made again, alone or packed.
    shutil.rmtree(place.folder(seed=2))
    before = place.record(seed=1)
    assert place.train(*words, "image_cache_mib=1") == 0
    assert place.record(seed=1) == before
    assert bytes_of(place) == solo


@pytest.mark.parametrize(
    "word", ["share_image_cache=2", "image_cache_mib=0", "image_cache_mib=true", "on_error=ignore"]
)
def test_what_cannot_be_is_refused(place, word):
    assert word.lower().split("=")[0] in refusal(place.train, word)
    assert not place.root.exists()


@pytest.mark.slow
def test_a_killed_pack_goes_on_where_it_was(place, in_turn, capfd):
    words = [*WORDS, "seed=1,2,3", "share_image_cache=true"]
    log = place.folder(seed=2) / "metrics.csv"
    children.kill_at_line(log, 3, exit_with, place.train, words)
    first = place.record(seed=1)
    assert first["state"] == "done"
    assert not place.folder(seed=3).exists()

    assert place.train(*WORDS, "seed=1,2", "share_image_cache=true") == 0
    assert place.record(seed=1) == first
    assert len(place.record(seed=2)["attempts"]) == 2
    assert all(place.weights(seed=seed) == in_turn.weights(seed=seed) for seed in (1, 2))


def test_the_words_of_one_run_of_a_sweep_are_a_command():
    """Settings of sweeps, which a single run refuses, were printed and given to its processes."""
    sweep = ["-m", "seed=1,2", "parallel=2", "on_error=stop", "part=0", "parts=2"]
    for config, words in jobs_of("train", *sweep):
        job = SimpleNamespace(settings=TrainSettings(**config, overrides=words))
        assert _words(job) == [f"seed={config['seed']}"]


def test_parallel_and_an_engine_are_not_both_heeded():
    with pytest.raises(UserError, match="parallel is read with engine=null"):
        jobs_of("train", "-m", "seed=1,2", "parallel=2", "engine=ray")
