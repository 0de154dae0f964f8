"""Names keep every letter of every alphabet, and two names never share a folder."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.files import write_json
from cfaug.run.identity import arm_slug, check_arm, check_owner, clean_name, experiment_name
from cfaug.run.run_folder import RunFolder

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300)


@given(st.text(st.characters(max_codepoint=127), max_size=200))
def test_ascii_names_keep_the_folders_they_had(name):
    before = re.sub(r"[^A-Za-z0-9_.=,+-]+", "-", name).strip("-.") or "default"
    assert clean_name(name)[:87] == before[:87]
    assert clean_name(name) == before or len(before) > 100


@pytest.mark.parametrize(
    "name", ["日本", "中文", "ünï", "हिन्दी", "Ελληνικά", "العربية", "ไทย", "a=b,c"]
)
def test_every_letter_is_kept(name):
    assert clean_name(name) == unicodedata.normalize("NFC", name)
    assert arm_slug([f"arm={name}"], {"arm": name}) == clean_name(name)


SAME_FOLDER = ("a b", "a-b", "a/b", "a (b)")


@given(st.sampled_from(SAME_FOLDER) | NAMES, st.sampled_from(SAME_FOLDER) | NAMES)
def test_two_arms_named_by_hand_never_share_a_folder(one, other):
    assume(unicodedata.normalize("NFC", one) != unicodedata.normalize("NFC", other))
    for name in (one, other):
        try:
            check_arm(name)
        except UserError:
            assume(False)
    with TemporaryDirectory() as root:
        run = Path(root) / clean_name(one) / "seed=1"
        run.mkdir(parents=True)
        (run / "config.yaml").write_text(yaml.safe_dump({"arm": one}))
        check_owner(run.parent, one)
        check_owner(run.parent, None)
        there = Path(root) / clean_name(other)
        if there == run.parent:
            with pytest.raises(UserError, match="would share"):
                check_owner(there, other)
        else:
            check_owner(there, other)


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
        ("annotation", "is taken"), ("", "is invalid"), (".", "is invalid"), ("..", "is invalid"),
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


def test_null_names_the_arm_after_its_settings():
    assert arm_slug(["arm=null", "optim.lr=1"], {"arm": None, "optim": {"lr": 1}}) == "lr=1"


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
        (["name=a/b"], "name=b and paths.runs=a"), (["name=" + "x" * 300], "has 300 bytes"),
        (["name=weights"], "is taken"), (["name="], "is invalid"),
    ],
)  # fmt: skip
def test_a_bad_name_is_one_sentence(place, capsys, words, said):
    assert place.train(*words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not place.root.exists()


@pytest.mark.slow
def test_two_names_of_one_folder_are_told_apart(place, capsys):
    words = ["data.cf_ratio=0", "trainer.max_steps=0"]
    assert place.train("arm=real data", *words) == 0
    assert place.train("arm=real-data", "seed=2", *words) == 2
    assert "with arm='real data': choose another name" in capsys.readouterr().err
    assert place.train("arm=real data", *words) == 0
    assert "already done" in capsys.readouterr().out


def test_two_alphabets_are_two_runs(place, capsys):
    for arm in ("日本", "中文"):
        assert place.train(f"arm={arm}", "data.cf_ratio=0", "trainer.max_steps=0") == 0
        assert capsys.readouterr().out.startswith("done: ")
    assert {p.name for p in (place.root / "main").iterdir()} == {"日本", "中文"}


@pytest.mark.parametrize("script_name", ["train", "evaluate"])
def test_runs_in_a_file_are_refused(script, tmp_path, capsys, script_name):
    file = tmp_path / "file"
    file.write_text("mine")
    for runs in (file, file / "below"):
        assert script(script_name)([f"paths.runs={runs}"]) == 2
        err = capsys.readouterr().err
        assert f"{file} is a file, not a folder" in err
        assert err.count("\n") == 1
    assert file.read_text() == "mine"


def test_an_arm_whose_folder_has_another_name_says_so(place, capsys):
    """N41: arm=a/b became a-b without a word."""
    words = ["data.cf_ratio=0", "dry_run=true"]
    assert place.train("arm=N41/b", *words) == 0
    assert "the folder of arm=N41/b is called N41-b\n" in capsys.readouterr().err
    assert place.train("arm=N41-c", *words) == 0
    assert "is called" not in capsys.readouterr().err
