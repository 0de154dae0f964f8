from __future__ import annotations

import multiprocessing
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.data.planning.settings import DataSettings
from cfaug.errors import UserError
from cfaug.files import write_json
from cfaug.run.identity import NEUTRAL, RunFolder, arm_slug, config_hash, identity
from cfaug.shapescapes import WorldSettings
from cfaug.train.settings import OptimSettings, TrainerSettings

CONFIG = {
    "name": "main", "arm": None, "seed": 107,
    "data": {"cf_ratio": 0.6, "size": None, "seed": 108, "workers": 0, "real": "/a/photos"},
    "optim": {"lr": 0.001}, "paths": {"runs": "runs"}, "logger": {"kind": "csv"},
    "trainer": {"devices": 1, "max_steps": 5},
}  # fmt: skip


def _with(path: str, value: object) -> dict:
    group, _, key = path.partition(".")
    changed = {k: dict(v) if isinstance(v, dict) else v for k, v in CONFIG.items()}
    if key:
        changed.setdefault(group, {})[key] = value
    else:
        changed[group] = value
    return changed


@pytest.mark.parametrize(
    "path",
    ["paths.runs", "logger.kind", "data.workers", "trainer.devices", "name", "arm", "data.real"],
)
def test_where_and_how_fast_do_not_change_the_hash(path):
    assert config_hash(identity(CONFIG, {})) == config_hash(identity(_with(path, "other"), {}))


@pytest.mark.parametrize(
    "path", ["seed", "data.cf_ratio", "data.seed", "optim.lr", "trainer.max_steps"]
)
def test_what_changes_the_result_changes_the_hash(path):
    assert config_hash(identity(CONFIG, {})) != config_hash(identity(_with(path, 3), {}))


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_setting_that_changes_nothing_is_no_part_of_the_hash(name):
    without = config_hash(identity(CONFIG, {}))
    assert config_hash(identity(_with(name, NEUTRAL[name]), {})) == without
    assert config_hash(identity(_with(name, "other"), {})) != without


def test_neutral_values_are_what_the_settings_do_without():
    """Else a run could be taken for another one."""
    made_of = {
        "data": DataSettings("a", "b"), "optim": OptimSettings(lr=1), "trainer": TrainerSettings(),
    }  # fmt: skip
    for group, made in made_of.items():
        names = {n: v for n, v in NEUTRAL.items() if n.rpartition(".")[0] == group}
        assert {name: getattr(made, name.partition(".")[2]) for name in names} == names
    world = {n.removeprefix("data.world."): v for n, v in NEUTRAL.items() if "data.world." in n}
    usual = {name: getattr(WorldSettings(), name) for name in world}
    assert {n: list(v) if isinstance(v, tuple) else v for n, v in usual.items()} == world


def test_content_is_part_of_the_hash():
    assert config_hash(identity(CONFIG, {"real": "aa"})) != config_hash(
        identity(CONFIG, {"real": "ab"})
    )


@given(st.permutations(["data.cf_ratio=0.6", "optim.lr=1e-3", "seed=107", "trainer.devices=2"]))
def test_slug_does_not_depend_on_the_order(overrides):
    assert arm_slug(overrides, CONFIG) == "cf_ratio=0.6,lr=0.001"


def test_slug_of_a_folder_and_of_a_named_arm():
    assert arm_slug(["data=folder", "data.real=/a/photos"], CONFIG) == "data=folder,real=photos"
    assert arm_slug(["arm=mine", "optim.lr=1"], {**CONFIG, "arm": "mine"}) == "mine"
    assert (
        arm_slug(["experiment=demo/real", "optim.lr=1"], {**CONFIG, "arm": "real"})
        == "real,lr=0.001"
    )
    assert arm_slug(["data.seed=3"], _with("data.seed", 3)) == "data.seed=3"
    assert "/" not in arm_slug(["model=a/b"], CONFIG)
    assert len(arm_slug([f"data.k{i}=123456" for i in range(40)], CONFIG)) <= 100


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


def test_a_run_made_under_the_older_rule_of_content_is_the_same_run(tmp_path):
    settings = {"data.cf_ratio": 0.6, "content.weights": "w"}
    older = {"content.real": "aa", "content.counterfactual": "bb"}
    now = {**settings, "content.real": "2:cc", "content.counterfactual": "2:dd"}
    there = RunFolder(tmp_path, {**settings, **older})
    record = {"config_hash": there.hash, "identity": dict(there.identity), "state": "done"}
    write_json(tmp_path / "run.json", record)
    folder = RunFolder(tmp_path, now, older)
    (tmp_path / "checkpoint").mkdir()
    assert (folder.verdict(False), folder.state()) == ("done", "done")
    write_json(tmp_path / "run.json", {**record, "state": "failed"})
    assert folder.verdict(False) == "resume"
    others = RunFolder(tmp_path, now, {**older, "content.real": "ax"})
    assert others.state() == "other"
    with pytest.raises(UserError, match="an older version's hash; by its rule too") as caught:
        others.verdict(False)
    assert "content.real: there 'aa', asked '2:cc'" in str(caught.value)
    assert "content.counterfactual: there" not in str(caught.value)
    with pytest.raises(UserError) as caught:  # only what differs is named
        RunFolder(tmp_path, {**now, "data.cf_ratio": 0.5}, older).verdict(False)
    assert "content" not in str(caught.value)
    assert "data.cf_ratio: there 0.6, asked 0.5" in str(caught.value)


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
