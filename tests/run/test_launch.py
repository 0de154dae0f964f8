"""What the scripts answer before any setting counts: versions, commands, a cluster's absence."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cfaug import __main__, __version__
from cfaug.run.launch import report

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["train", "generate", "evaluate"])
def test_the_version_is_this_packages(script, capsys, name):
    assert script(name)(["--version"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"cfaug {__version__}\n")
    assert "torch " in said
    assert "Hydra" not in said


def test_the_package_says_what_its_commands_are(capsys):
    assert __main__.main([]) == 0
    assert {"train", "generate", "evaluate"} < set(capsys.readouterr().out.split())
    assert __main__.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"cfaug {__version__}\n")
    assert __main__.main(["trian"]) == 2
    assert "no command is called 'trian'" in capsys.readouterr().err


def test_the_packages_command_is_the_script(capsys, tmp_path):
    words = [f"paths.runs={tmp_path}", "seed=1.5", "dry_run=true"]
    assert __main__.main(["train", *words]) == 2
    assert "seed=1.5 should be a whole number" in capsys.readouterr().err


def test_a_sweep_for_slurm_where_there_is_none_names_other_ways(script, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert script("train")(["-m", "hydra/launcher=submitit_slurm", "seed=1,2"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no sbatch on this machine" in said
    assert "submitit_local" in said


def test_a_launcher_that_is_not_there_is_a_sentence(script, capsys):
    assert script("train")(["-m", "hydra/launcher=banana", "seed=1,2"]) == 2
    said = capsys.readouterr().err
    assert "hydra/launcher/banana" in said
    assert "submitit_local" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("number", [errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG])
def test_a_path_that_cannot_be_is_the_users_mistake(capsys, number):
    assert report(OSError(number, "impossible", "/a/file")) == 2
    assert "/a/file" in capsys.readouterr().err


def test_evaluate_takes_one_run_as_it_takes_a_list(place, capsys):
    assert place.train("data.cf_ratio=0", "trainer.max_steps=0", "arm=cf_ratio=0") == 0
    capsys.readouterr()
    folder = place.root / "main" / "cf_ratio=0" / "seed=0"
    for typed in (f"runs={folder}", f"runs=[{folder}]"):
        assert place.evaluate(typed, "benchmark=heldout") == 0
        assert "main/cf_ratio=0/seed=0" in capsys.readouterr().out
    assert place.evaluate(f"runs={folder.with_name('seed=9')}") == 2
    assert "seed=9" in capsys.readouterr().err
