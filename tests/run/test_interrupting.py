"""A command that is interrupted or killed: the same command goes on to the same bytes."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from cfaug.core.processes import ENDINGS
from cfaug.evaluation.cached_model import Features
from cfaug.report.records import training_seconds
from cfaug.run.train import _describe_saved
from cfaug.run.train import main as train
from tests import children
from tests.run.conftest import SCENES, Place, exit_with, lay_photos, stderr_of

ROOT = Path(__file__).resolve().parents[2]

STEP_S = 1.0
"""Length of a step of what is interrupted: each thread takes one; a busy machine notices late."""


def run_script(here: Path, where: str | None, script: str, words: Sequence[str]) -> None:
    """Run a script as ``python SCRIPT WORDS`` does, with ``here/stdout`` and ``here/stderr``."""
    os.chdir(ROOT)
    for number in ENDINGS:  # this test may have been started with some of them ignored
        signal.signal(number, signal.SIG_DFL)
    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(here / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    if where is not None:
        owner, name = WORK[where]
        slow_down(import_module(owner), name, where)
    sys.argv = [script, *words]
    runpy.run_path(str(ROOT / script), run_name="__main__")


WORK = {
    "validation": ("cfaug.train.contrastive_module", "ContrastiveModule.loss"),
    "training": ("cfaug.train.task", "fit"),
    "scan": ("cfaug.data.sources.folders", "check_image"),
    "evaluation": ("cfaug.evaluation.inference", "decode_image"),
}
"""The function whose calls are slow, by the place where a command is interrupted."""


def slow_down(owner: Any, name: str, where: str) -> None:
    first, _, rest = name.partition(".")
    if rest:
        slow_down(getattr(owner, first), rest, where)
        return
    work = getattr(owner, name)

    def wait_first(*args: Any, **kwargs: Any) -> Any:
        if where != "validation" or not args[0].encoder.training:
            print(f"in {where}", file=sys.stderr, flush=True)
            time.sleep(STEP_S)
        return work(*args, **kwargs)

    setattr(owner, name, wait_first)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    captions = [f"a photo of number {number}" for number in range(30)]
    return lay_photos(tmp_path_factory.mktemp("photos"), captions)


class Command:
    """One script with its words, run slowly or as it is, in a process of its own."""

    def __init__(self, here: Path, script: str, *words: str) -> None:
        self.here, self.script = here, script
        self.words = [*words, f"paths.runs={here}/runs", f"paths.cache={here}/cache"]
        here.mkdir(exist_ok=True)

    def said(self, stream: str = "stderr") -> str:
        return (self.here / stream).read_text()

    def start(self, where: str | None = None) -> BaseProcess:
        (self.here / "stderr").write_text("")
        return children.start(run_script, self.here, where, self.script, self.words)

    def start_in(self, where: str) -> BaseProcess:
        """Start, and return once the process is there."""
        process = self.start(where)
        while f"in {where}\n" not in self.said():
            assert process.is_alive(), self.said()
            time.sleep(0.02)
        return process

    def run(self) -> None:
        process = self.start()
        process.join()
        assert process.exitcode == 0, self.said()

    def stop_in(self, where: str, number: signal.Signals) -> str:
        """Send a signal once the process is there; return what it said until it ended."""
        process = self.start_in(where)
        os.kill(process.pid, number)
        process.join(120)
        err = self.said()
        assert err.count(f"in {where}\n") < 20  # of thirty photos
        assert process.exitcode == 130
        assert "Traceback" not in err
        return err


def training(here: Path, photos: Path) -> Command:
    return Command(
        here, "train.py", "data=folder", f"data.real={photos}", "data.cf_ratio=0", "name=x",
        "arm=real", "trainer.max_steps=4", "trainer.val_every_steps=2", "data.batch_size=8",
        "trainer.progress=false", "trainer.accelerator=cpu",
    )  # fmt: skip


@pytest.mark.slow
def test_in_a_validation(tmp_path, photos):
    cut = training(tmp_path / "cut", photos)
    said = cut.stop_in("validation", signal.SIGUSR1)
    assert "is saved at step 2, and the same command goes on from there" in said
    # N26: run.json and the list of a sweep said failed.
    record = cut.here / "runs/x/real/seed=0/run.json"
    assert json.loads(record.read_text())["state"] == "interrupted"
    assert "1 run: 1 interrupted" in stderr_of(train, [*cut.words, "dry_run=true"])
    whole = training(tmp_path / "whole", photos)
    runs = []
    for command in (cut, whole):
        command.run()
        folder = command.here / "runs/x/real/seed=0"
        runs.append((folder / "checkpoint/model.safetensors").read_bytes())
    assert runs[0] == runs[1]
    assert "runs/x/real/seed=0 goes on from step 2 of 4\n" in cut.said()
    assert "next: python evaluate.py name=x" in cut.said()
    assert "goes on" not in whole.said()
    finished = json.loads(record.read_text())
    assert finished["state"] == "done"
    assert [attempt["start_step"] for attempt in finished["attempts"]] == [0, 2]
    first, last = (attempt["seconds"] for attempt in finished["attempts"])
    assert first > 0
    assert training_seconds(finished) == (first + last, True)
    assert f"{first + last:.2f} s in 2 attempts)" in cut.said("stdout")


def test_while_torch_is_loaded(tmp_path, monkeypatch):
    """Torch can be loaded only once: what is saved is told without it."""
    monkeypatch.setitem(sys.modules, "cfaug.train.checkpoint", None)
    assert "nothing was saved yet" in _describe_saved(tmp_path)
    (tmp_path / "last.ckpt").touch()
    assert "goes on from there" in _describe_saved(tmp_path)


@pytest.mark.slow
def test_in_a_scan(tmp_path, photos):
    command = training(tmp_path, photos)
    assert "interrupted: " in command.stop_in("scan", signal.SIGHUP)
    assert list((tmp_path / "cache").glob("*")) == []  # whole or not at all
    assert not list((tmp_path / "runs").rglob("run.json"))
    command.run()


@pytest.mark.slow
def test_in_an_evaluation(tmp_path, photos):
    def evaluation(here: Path) -> Command:
        return Command(
            here, "evaluate.py", "weights=zoo:clip-0", "benchmark=retrieval",
            f"benchmark.data={photos}", "device=cpu", "max_indistinct=1",
        )  # fmt: skip

    cut, whole = evaluation(tmp_path / "cut"), evaluation(tmp_path / "whole")
    assert "interrupted: what is complete is kept" in cut.stop_in("evaluation", signal.SIGXCPU)
    assert not list(cut.here.rglob("results.jsonl"))
    results = []
    for command in (cut, whole):
        command.run()
        [file] = command.here.rglob("results.jsonl")
        results.append(file.read_bytes())
    assert results[0] == results[1]


@pytest.mark.slow
def test_a_cache_that_is_removed_is_named_and_the_same_command_goes_on(tmp_path, photos):
    """N25: a traceback of FileNotFoundError."""
    command = training(tmp_path, photos)
    process = command.start_in("training")
    shutil.rmtree(tmp_path / "cache")
    process.join(120)
    assert process.exitcode == 2
    err = command.said()
    assert f"error: the index {tmp_path}/cache/" in err
    assert "run the same command again" in err
    assert "Traceback" not in err
    command.run()
    assert "done: " in command.said("stdout")


@pytest.mark.slow
def test_a_log_on_a_full_disk_does_not_end_the_work(tmp_path, photos):
    command = training(tmp_path, photos)
    command.words.append("trainer.max_steps=1")
    command.words.remove("trainer.max_steps=4")
    command.words.remove("trainer.val_every_steps=2")
    for stream in ("stdout", "stderr"):
        (tmp_path / stream).symlink_to("/dev/full")
    process = children.start(run_script, tmp_path, None, command.script, command.words)
    process.join()
    assert process.exitcode == 0  # the interpreter itself ends in 120 for output that is lost
    run = tmp_path / "runs/x/real/seed=0"
    assert json.loads((run / "run.json").read_text())["state"] == "done"
    assert (run / "checkpoint/model.safetensors").exists()


# ``kill -9`` from outside: the same command goes on, and ends where it would have ended.


WORDS = ["data.cf_ratio=0.6", "seed=107", "trainer.max_steps=8", "trainer.save_every_steps=3"]


@pytest.mark.slow
def test_a_killed_command_continues_and_ends_bit_identical(place, capfd):
    words = [*WORDS, "data.negatives=image", "loss=hard_negatives"]
    assert place.train(*words, "arm=whole") == 0
    folder = place.folder("cut")
    log = folder / "metrics.csv"
    children.kill_at_line(log, 6, exit_with, place.train, [*words, "arm=cut"])
    assert place.record("cut")["state"] == "running"
    written = log.read_bytes()

    assert place.train(*words, "arm=cut") == 0
    record = place.record("cut")
    assert record["state"] == "done"
    assert record["config_hash"] == place.record("whole")["config_hash"]
    steps = [(attempt["start_step"], attempt["end_step"]) for attempt in record["attempts"]]
    start = steps[1][0]
    assert steps == [(0, start), (start, 8)]
    assert start > 0
    assert start % 3 == 0
    assert log.read_bytes().startswith(written)
    assert place.weights("whole") == place.weights("cut")


@pytest.mark.slow
def test_several_processes_may_start_the_same_run_at_once(place, capfd):
    words = ["data.world.seed=77", "seed=107"]
    started = [children.start(exit_with, place.train, words) for _ in range(2)]
    for child in started:
        child.join()
    codes = {child.exitcode for child in started}
    # One trains; the others are told that somebody is at work, or that it is done.
    assert codes <= {0, 2}
    assert 0 in codes
    assert place.record()["state"] == "done"
    record = place.record()
    assert record["attempts"] == [{"start_step": 0, "end_step": 3, "seconds": record["wall_s"]}]


def evaluate_with(place, words) -> None:
    """Evaluate until two pieces of the scores are written, then wait to be killed."""
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
        assert not list(here.root.rglob("results.jsonl"))
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
