"""``cfaug new recipe NAME`` writes a method that works, and whose own test passes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cfaug.__main__ import main
from cfaug.core.outputs import RECORD
from cfaug.report.document import read_document
from cfaug.run.new_recipe import EXAMPLE, WRITTEN
from cfaug.settings.arguments import own_settings
from tests.run.conftest import refusal
from tests.scripts import ROOT


def test_every_file_has_the_new_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "recipe", "my_method"]) == 0
    written = sorted(
        file
        for file in (tmp_path / "my_method").rglob("*")
        if file.is_file() and file.name != RECORD
    )
    originals = [original for original in EXAMPLE.rglob("*") if original.suffix in WRITTEN]
    assert len(written) == len(originals) == 9
    for file in written:
        text = file.read_text()
        assert "swap_colours" not in text + str(file)
        assert "SwapColours" not in text
        assert "SWAP_COLOURS" not in text
    assert "class MyMethodEditor" in (tmp_path / "my_method/my_method.py").read_text()
    said = capsys.readouterr()
    assert said.out.count("wrote my_method/") == 9
    assert "generate.py --config-dir my_method recipe=my_method" in said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "'cfaug new' is invalid; type\ncfaug new recipe NAME [FOLDER]"),
        (["model", "a"], "'cfaug new model a' is invalid"),
        (["recipe", "My-Method"], "'My-Method' is invalid: a recipe's name has small letters"),
        (["recipe", "class"], "'class' is invalid"),
        (["recipe", "substitution"], "recipe=substitution is shipped: choose another name"),
        (["recipe", "retrieval"], "benchmark=retrieval is shipped"),
        (["recipe", "json"], "json is the name of an installed Python module"),
        (["recipe", "mine", "there"], "there holds what cfaug did not write"),
    ],
)
def test_what_cannot_be_is_refused(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there/thesis.txt").write_text("years")
    assert f"error: {message}" in refusal(main, ["new", *words])
    assert list(tmp_path.rglob("*")) == [tmp_path / "there", tmp_path / "there/thesis.txt"]


@pytest.mark.slow
def test_its_own_test_passes(tmp_path, monkeypatch):
    """As its owner runs it, in a process that knows nothing of this repository's tests."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "recipe", "my_method"]) == 0
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "my_method"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_a_folder_of_any_name_is_said_and_found(tmp_path, capsys):
    folder = tmp_path / "my dir, a=b"
    assert main(["new", "recipe", "my_method", str(folder)]) == 0
    [command] = [line for line in capsys.readouterr().err.splitlines() if "generate" in line]
    words = shlex.split(command)
    words = words[words.index("--config-dir") :]
    assert main(["generate", *words, "--cfg", "job"]) == 0
    assert "name: my_method" in capsys.readouterr().out
    assert own_settings(words) == own_settings([f"--config-dir={folder}"]) == folder


@pytest.mark.slow
def test_a_folder_outside_the_repository_has_the_rights_of_a_paper(tmp_path, monkeypatch):
    """Its make fragment makes pairs by its recipe, asks its benchmark and writes its table."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "recipe", "their_method", "papers/mine"]) == 0
    few = "papers/mine/reproduce.mk"
    Path(few).write_text(Path(few).read_text().replace("limit=200", "limit=20"))
    command = ["make", "-f", few, "their_method", f"CFAUG={sys.executable} -m cfaug"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [printed, ours] = read_document(tmp_path / "runs/their_method/tables/their_method.json").parts
    assert [labels for labels, _ in printed.rows] == [("chance",)]
    assert len(ours.rows) == 2


def test_a_file_of_the_folder_may_not_have_a_name_that_is_in_use(tmp_path):
    (tmp_path / "conf/recipe").mkdir(parents=True)
    (tmp_path / "conf/recipe/substitution.yaml").write_text("name: mine\n")
    said = refusal(main, ["generate", "--config-dir", str(tmp_path), "limit=1"])
    assert f"{tmp_path / 'conf/recipe/substitution.yaml'}: recipe=substitution is also " in said
    assert "choose another name for the file" in said


def test_settings_inside_and_beside_conf_are_asked_about(tmp_path):
    for name in ("conf/recipe/mine.yaml", "recipe/old.yaml"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("name: mine\n")
    said = refusal(main, ["generate", "--config-dir", str(tmp_path), "limit=1"])
    assert "has settings in conf/ and beside it (recipe/old.yaml)" in said


def lay_package(folder, name, group, value):
    """Install a package by hand that names another one in an entry point."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\ntheirs = {value}\n")


def run_with(place, cwd, *words):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{place}"}
    command = [sys.executable, "-m", "cfaug", *words]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True)


def test_a_package_of_others_is_found_by_its_entry_point(tmp_path):
    """Group ``cfaug.papers``: nothing is named on the command line."""
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    elsewhere.mkdir()
    lay_package(place, "their_paper", "cfaug.papers", "their_paper")
    lay_package(place, "broken", "cfaug.papers", "not_there.inside")
    (place / "their_paper/conf/loss").mkdir(parents=True)
    (place / "their_paper/__init__.py").touch()
    text = "_target_: cfaug.train.settings.LossSettings\nsame_image: negative\n"
    (place / "their_paper/conf/loss/theirs.yaml").write_text(text)
    done = run_with(place, elsewhere, "train", "loss=theirs", "--cfg", "job")
    assert done.returncode == 0, done.stderr
    assert "same_image: negative" in done.stdout
    assert "the entry point theirs = not_there.inside of broken" in done.stderr


@pytest.mark.slow
def test_a_package_in_the_current_folder_is_not_installed(tmp_path):
    """A folder of somebody's data may hold one, whose world would be imported."""
    lay_package(tmp_path, "planted", "cfaug.worlds", "planted")
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted/__init__.py").write_text("raise SystemExit('executed')\n")
    done = run_with("", tmp_path, "train", "--cfg", "job")
    assert done.returncode == 0, done.stderr
