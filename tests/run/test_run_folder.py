"""Whose a run's folder is, and what is to be done with what lies there."""

from __future__ import annotations

import multiprocessing
import time

import pytest

from cfaug.core.errors import UserError
from cfaug.core.files import write_json
from cfaug.run.run_folder import RunFolder


def test_verdicts(tmp_path):
    folder = RunFolder(tmp_path / "seed=1", {"data.cf_ratio": 0.6})
    assert folder.verdict(False) == "new"
    folder.path.mkdir()
    write_json(folder.path / "run.json", {"config_hash": folder.hash, "state": "running"})
    assert folder.verdict(False) == "resume"
    write_json(folder.path / "run.json", {"config_hash": folder.hash, "state": "done"})
    assert folder.verdict(False) == "done"
    assert folder.verdict(True) == "new"


def test_another_configuration_is_refused_with_the_difference(tmp_path):
    there = RunFolder(tmp_path, {"data.cf_ratio": 0.5, "seed": 1})
    write_json(tmp_path / "run.json", {"config_hash": there.hash, "identity": dict(there.identity)})
    with pytest.raises(UserError) as caught:
        RunFolder(tmp_path, {"data.cf_ratio": 0.6, "seed": 1}).verdict(False)
    message = str(caught.value)
    assert "data.cf_ratio: there 0.5, asked 0.6" in message
    assert "seed" not in message.split("Two ways out")[0].replace(str(tmp_path), "")
    assert "overwrite=true" in message
    assert "arm=NAME" in message


@pytest.mark.parametrize(("before", "now"), [(1, 1.0), (1.0, 1), (0, 0.0)])
def test_a_whole_number_is_one_setting_however_it_was_typed(tmp_path, before, now):
    there = RunFolder(tmp_path, {"data.world.skew": before, "seed": 1})
    record = {"config_hash": there.hash, "identity": dict(there.identity), "state": "done"}
    write_json(tmp_path / "run.json", record)
    (tmp_path / "checkpoint").mkdir()
    asked = RunFolder(tmp_path, {"data.world.skew": now, "seed": 1})
    assert (asked.verdict(False), asked.state()) == ("done", "done")
    with pytest.raises(UserError) as caught:
        RunFolder(tmp_path, {"data.world.skew": now, "seed": 2}).verdict(False)
    assert "seed: there 1, asked 2" in str(caught.value)
    assert "data.world.skew" not in str(caught.value)
    assert RunFolder(tmp_path, {"data.world.skew": 1.5, "seed": 1}).state() == "other"
    assert RunFolder(tmp_path, {"data.world.skew": True, "seed": 1}).state() == "other"


def test_a_damaged_record_is_a_state_and_names_the_way_out(tmp_path):
    folder = RunFolder(tmp_path, {"data.cf_ratio": 0.6})
    (tmp_path / "run.json").write_text("{")
    assert folder.state() == "unreadable"
    with pytest.raises(UserError, match=r"run\.json cannot be read.*; overwrite=true starts"):
        folder.verdict(False)
    assert folder.verdict(True) == "new"


@pytest.mark.parametrize("field", [{"identity": [1]}, {"attempts": 5}, {"state": "gone"}])
def test_a_record_of_the_wrong_types_is_damaged(tmp_path, field):
    folder = RunFolder(tmp_path, {"data.cf_ratio": 0.6})
    write_json(tmp_path / "run.json", {"config_hash": "x", "state": "done", **field})
    assert folder.state() == "unreadable"
    with pytest.raises(UserError, match=rf"run\.json: '{next(iter(field))}' is .*overwrite=true"):
        folder.verdict(False)


def test_clear_leaves_what_a_run_did_not_write(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "metrics.csv").write_text("old")
    RunFolder(tmp_path, {}).clear()
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def _hold(path, ready) -> None:
    with RunFolder(path, {}).lock():
        ready.set()
        time.sleep(30)


def test_two_processes_do_not_write_to_one_folder(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready))
    other.start()
    assert ready.wait(20)
    with pytest.raises(UserError, match="another process"), RunFolder(tmp_path, {}).lock():
        pass
    other.kill()
    other.join()
    with RunFolder(tmp_path, {}).lock():
        pass


@pytest.mark.parametrize("state", ["failed", "interrupted"])
def test_an_interrupted_run_is_treated_as_a_failed_one(tmp_path, state):
    """N26: the state interrupted, which a run did not have, is resumed in the same way."""
    folder = RunFolder(tmp_path, {"data.cf_ratio": 0.5})
    other = RunFolder(tmp_path, {"data.cf_ratio": 0.6})
    write_json(tmp_path / "run.json", {"config_hash": folder.hash, "state": state})
    assert (folder.verdict(False), folder.state()) == ("resume", state)
    assert (other.verdict(False), other.state()) == ("new", "absent")  # it took no step
    (tmp_path / "last.ckpt").touch()
    assert other.state() == "other"
    with pytest.raises(UserError, match="another configuration"):
        other.verdict(False)
