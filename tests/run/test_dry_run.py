"""A dry run opens what the run itself opens, says how long it takes, and writes nothing."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
from itertools import count

import pytest

from cfaug.run import dry_run
from cfaug.run.dry_run import _matrix_rate, measure_seconds
from cfaug.train.step_timing import StepTimes, predict_seconds
from tests.data.layouts import images
from tests.run.conftest import lay_photos, output_of, refusal, stdout_of
from tests.run.test_run_plan import job
from tests.scripts import load

DRAWN = ["data.world.id_scenes=20", "data.world.counterfactual_pairs=10"]


def test_the_rate_is_of_a_cores_own_time(monkeypatch):
    """Four equal commands said 3:20, 6:40, 38:53 and 66:40 hours on a busy machine."""
    times = count(step=0.25)
    monkeypatch.setattr(dry_run.time, "thread_time", lambda: next(times))
    monkeypatch.delattr(dry_run.time, "perf_counter")
    assert _matrix_rate() == 2 * 64 * 64**3 / 0.25


def test_the_time_of_a_run_has_the_range_of_its_steps():
    task = job(0.5, size=40, steps=101).task
    validations = -(-task.steps // task.batches_per_epoch)
    batches = 100 + validations / 3  # one batch each, forward alone
    middle, low, high = predict_seconds(task, StepTimes(7.0, (3.0, 1.0, 2.0)))
    assert (middle, low, high) == pytest.approx((7 + 2 * batches, 7 + batches, 7 + 3 * batches))
    assert predict_seconds(task, StepTimes(7.0, ())) == (7.0, 7.0, 7.0)


def be_killed(task):
    os.kill(os.getpid(), signal.SIGKILL)


def be_stopped(task):
    os.kill(os.getpid(), signal.SIGTERM)


def fail(task):
    return [][task.steps]


@pytest.mark.parametrize(("end", "name"), [(be_killed, "SIGKILL"), (be_stopped, "SIGTERM")])
def test_a_process_that_a_signal_ended_is_not_said_to_lack_memory(monkeypatch, end, name):
    monkeypatch.setattr(dry_run, "_measure", end)
    with pytest.raises(dry_run.UserError, match=f"{name} ended the process") as said:
        measure_seconds(job(0.5, steps=5))
    assert ("memory" in str(said.value)) is (name == "SIGKILL")


def test_an_error_in_the_process_that_takes_the_steps_is_shown_whole(monkeypatch):
    monkeypatch.setattr(dry_run, "_measure", fail)
    with pytest.raises(RuntimeError, match=r"(?s)failed:.*list index out of range"):
        measure_seconds(job(0.5, steps=5))


def name_process(task):
    return type(multiprocessing.current_process()).__name__


def test_a_process_with_torch_is_not_forked(monkeypatch):
    """After training on a device, autograd refuses to work in a fork."""
    monkeypatch.setattr(dry_run, "_measure", name_process)
    monkeypatch.setitem(sys.modules, "torch", sys.modules.get("torch"))
    with pytest.raises(dry_run.UserError, match="SpawnProcess"):
        measure_seconds(job(0.5, steps=5))
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(dry_run.UserError, match="ForkProcess"):
        measure_seconds(job(0.5, steps=5))


def test_what_no_new_process_can_be_given_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", sys.modules.get("torch"))  # as if it were imported
    monkeypatch.setattr(dry_run, "_measure", lambda task: None)
    with pytest.raises(dry_run.UserError, match="type the command in a terminal"):
        measure_seconds(job(0.5, steps=5))


def test_several_processes_are_not_timed_by_one(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(dry_run.UserError, match="dry_run=true"):
        measure_seconds(job(0.5, steps=5))


@pytest.mark.slow
def test_real_steps_are_timed_and_nothing_is_written(place, monkeypatch):
    words = ["trainer.precision=bf16-mixed", "trainer.max_steps=5"]
    said = stdout_of(place.train, *words, "dry_run=measure")
    time = r"\d+:\d\d:\d\d"
    assert re.search(rf"  estimate +{time}, {time} to {time} \(three steps taken now", said)
    assert not place.root.exists()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classification", "retrieval"])
def test_a_note_on_a_small_test_is_of_its_task(tmp_path, task):
    if task == "retrieval":
        photos = lay_photos(tmp_path / "real", [f"a photo of number {n}" for n in range(30)])
    else:
        photos = tmp_path / "real"
        for number, name in enumerate(("cat", "fish", "ball")):
            for part in range(3):
                images(photos / name, start=9 * number + 3 * part)
    words = [f"data.real={photos}", "data.cf_ratio=0", "data.holdout=0.2", "data.validation=0",
             "trainer.checkpoint=last", f"paths.runs={tmp_path}/runs",
             f"paths.cache={tmp_path}/cache", "dry_run=true"]  # fmt: skip
    kind = ["task=classification", "model=tiny_classifier"] if task == "classification" else []
    _, said = output_of(load("train"), [*(kind or ["data=folder"]), *words])
    assert ("recall at 5 and at 10 among" in said) is (task == "retrieval")
    assert ("accuracy moves by" in said) is (task == "classification")


@pytest.mark.slow
@pytest.mark.parametrize("dry", [True, False])
def test_labels_of_which_some_are_the_models_are_refused_before_the_run_begins(tmp_path, dry):
    for number, name in enumerate(("cat", "fish", "banana")):
        images(tmp_path / "real" / name, start=3 * number)
    words = ["task=classification", "model=tiny_classifier", f"data.real={tmp_path / 'real'}",
             "data.cf_ratio=0", "data.holdout=0", "trainer.max_steps=1", "name=x", "arm=y",
             f"paths.runs={tmp_path}/runs", f"paths.cache={tmp_path}/cache"]  # fmt: skip
    assert "banana" in refusal(load("train"), [*words, f"dry_run={str(dry).lower()}"])
    assert not list((tmp_path / "runs").rglob("*"))


@pytest.mark.slow
def test_a_run_that_fails_as_it_loads_leaves_another_as_it_was(place):
    assert place.train("arm=run") == 0
    before = {f: f.read_bytes() for f in place.root.rglob("*") if f.is_file()}
    words = ["tuning=freeze_vision", "tuning.freeze=[nothing.of.the.model]", "overwrite=true"]
    assert "nothing.of.the.model" in refusal(place.train, *words)
    assert {f: f.read_bytes() for f in place.root.rglob("*") if f.is_file()} == before


@pytest.mark.slow
def test_a_file_of_answers_that_is_missing_is_refused_in_a_dry_run(tmp_path):
    words = [
        "zoo=shapescapes", "data.source=shapescapes:counterfactual", *DRAWN, "limit=2",
        f"paths.worlds={tmp_path}/world", f"paths.shards={tmp_path}/made", "dry_run=true",
        f"export.questions={tmp_path}/out", f"export.verified={tmp_path}/none.json",
    ]  # fmt: skip
    said = refusal(load("generate"), words)
    assert "export.verified" in said
    assert "none.json" in said
