"""Whose a run's folder is: its identity, its name, and what is to be done with what lies there."""

from __future__ import annotations

import multiprocessing
import re
import time
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from cfaug.core.atomic_files import write_json
from cfaug.core.errors import UserError
from cfaug.run.arm_names import arm_slug
from cfaug.run.folder_names import check_arm, check_owner, clean_name, experiment_name
from cfaug.run.identity import config_hash, identity
from cfaug.run.run_folder import RunFolder
from tests.run.conftest import refusal, stderr_of


def test_verdicts(tmp_path):
    folder = RunFolder(tmp_path / "seed=1", {"data.cf_ratio": 0.6})
    assert folder.verdict(False) == "new"
    folder.path.mkdir()
    write_json(folder.path / "run.json", {"config_hash": folder.hash, "state": "running"})
    assert folder.verdict(False) == "resume"
    write_json(folder.path / "run.json", {"config_hash": folder.hash, "state": "done"})
    assert folder.verdict(False) == "done"
    assert folder.verdict(True) == "new"


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
        time.sleep(600)


def test_two_processes_do_not_write_to_one_folder(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready))
    other.start()
    assert ready.wait(120)
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


# Names keep every letter of every alphabet, and two names never share a folder.


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300)


@given(st.text(st.characters(max_codepoint=127), max_size=200))
def test_ascii_names_keep_the_folders_they_had(name):
    before = re.sub(r"[^A-Za-z0-9_.=,+-]+", "-", name).strip("-.") or "default"
    assert clean_name(name)[:87] == before[:87]
    assert clean_name(name) == before or len(before) > 100


@pytest.mark.parametrize("name", ["日本", "ünï", "हिन्दी", "العربية", "a=b,c"])
def test_every_letter_is_kept(name):
    assert clean_name(name) == unicodedata.normalize("NFC", name)
    assert arm_slug([f"arm={name}"], {"arm": name}) == clean_name(name)


SAME_FOLDER = ("a b", "a-b", "a/b", "a (b)")


@given(st.sampled_from(SAME_FOLDER) | NAMES, st.sampled_from(SAME_FOLDER) | NAMES)
def test_two_arms_named_by_hand_never_share_a_folder(first, second):
    assume(unicodedata.normalize("NFC", first) != unicodedata.normalize("NFC", second))
    for name in (first, second):
        try:
            check_arm(name)
        except UserError:
            assume(False)
    with TemporaryDirectory() as root:
        run = Path(root) / clean_name(first) / "seed=1"
        run.mkdir(parents=True)
        (run / "config.yaml").write_text(yaml.safe_dump({"arm": first}))
        check_owner(run.parent, first)
        check_owner(run.parent, None)
        there = Path(root) / clean_name(second)
        if there == run.parent:
            with pytest.raises(UserError, match="would share"):
                check_owner(there, second)
        else:
            check_owner(there, second)


def test_a_renamed_arm_belongs_to_its_new_name(tmp_path):
    run = tmp_path / "sixty" / "seed=1"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(yaml.safe_dump({"arm": "real"}))
    check_owner(run.parent, "sixty")


@given(NAMES)
def test_a_folders_name_is_one_name_that_file_systems_take(name):
    for folder in (clean_name(name), clean_name(name, extra="")):
        assert 0 < len(folder.encode()) <= 255
        assert len(folder) <= 100
        assert "/" not in folder
        assert "\0" not in folder
        assert folder not in {".", ".."}
        assert clean_name(folder) == folder


def test_long_names_that_begin_alike_are_told_apart():
    assert len({clean_name("語" * 99 + end) for end in "ab"}) == 2
    assert len({clean_name("x" * 120 + end) for end in "ab"}) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("weights", "name=weights is taken: it holds checkpoints"), ("tables", "is taken"),
        ("annotation", "is taken"), (".debug", "holds runs of debug="),
        ("", "is invalid"), (".", "is invalid"), ("..", "is invalid"),
        (" ", "is invalid"), ("a\nb", "is invalid"),
        ("x/y", "name=y and paths.runs=x"), ("../up", "one folder"), ("語" * 100, "300 bytes"),
    ],
)  # fmt: skip
def test_an_experiment_that_no_folder_can_be_called_is_refused(name, said):
    with pytest.raises(UserError, match=re.escape(said)):
        experiment_name(name)


def test_an_experiment_keeps_its_name():
    for name in ("main", "a b", "a=1,b", "Größe (1)", "x" * 255):
        assert experiment_name(name) == name
    assert experiment_name("u\u0308") == "ü"


def test_a_run_recorded_when_texts_could_be_numbers_is_still_that_run(tmp_path):
    folder = RunFolder(tmp_path, {"trainer.precision": "32"})
    older = RunFolder(tmp_path, {"trainer.precision": 32})
    record = {"config_hash": older.hash, "identity": dict(older.identity), "state": "done"}
    write_json(tmp_path / "run.json", record)
    assert folder.verdict(False) == "done"
    write_json(tmp_path / "run.json", {"config_hash": "0", "identity": {}, "state": "done"})
    assert folder.state() == "other"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["arm=.."], "arm='..' is invalid"), (["arm=(?)"], "arm='(?)' is invalid"),
        (["name=a/b"], "name=b and paths.runs=a"),
    ],
)  # fmt: skip
def test_a_bad_name_is_one_sentence(place, words, said):
    err = refusal(place.train, *words)
    assert said in err
    assert err.count("\n") == 1
    assert not place.root.exists()


@pytest.mark.parametrize("script_name", ["train", "evaluate"])
def test_runs_in_a_file_are_refused(script, tmp_path, script_name):
    file = tmp_path / "file"
    file.write_text("mine")
    for runs in (file, file / "below"):
        err = refusal(script(script_name), [f"paths.runs={runs}"])
        assert f"{file} is a file, not a folder" in err
        assert err.count("\n") == 1
    assert file.read_text() == "mine"


def test_an_arm_whose_folder_has_another_name_says_so(place):
    """N41: arm=a/b became a-b without a word."""
    words = ["data.cf_ratio=0", "dry_run=true"]
    said = stderr_of(place.train, "arm=N41/b", *words)
    assert "the folder of arm=N41/b is called N41-b\n" in said
    assert "is called" not in stderr_of(place.train, "arm=N41-c", *words)
