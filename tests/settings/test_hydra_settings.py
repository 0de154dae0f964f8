"""Words and flags of Hydra's: those that do nothing are refused, with what does."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.run.train import SCRIPT, main
from cfaug.settings.arguments import REFUSED_FLAGS, read
from cfaug.settings.hydra_settings import refuse_settings_of_hydra

PLUGIN = ["hydra/launcher=submitit_local", "-m"]


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("hydra.job.chdir=true", "paths.runs"),
        ("hydra.run.dir=/tmp/x", "paths.runs"),
        ("hydra.sweep.dir=/tmp/x", "paths.runs"),
        ("hydra.output_subdir=.hydra", "paths.runs"),
        ("+hydra.job.env_set={A:1}", "NAME=VALUE python train.py"),
        ("++hydra.job.env_set.A=1", "NAME=VALUE python train.py"),
        ("hydra.job.name=x", "name=..."),
        ("hydra.mode=MULTIRUN", "--multirun"),
        ("+hydra.callbacks.x._target_=os.getcwd", "trainer.callbacks"),
        ("hydra.callbacks={}", "trainer.callbacks"),
        ("hydra/job_logging=default", "stderr"),
        ("hydra.job_logging.root.level=DEBUG", "stderr"),
        ("hydra.verbose=true", "CFAUG_TRACEBACK"),
        ("hydra.launcher.partition=gpu", "hydra/launcher="),
        ("hydra.sweeper.n_trials=3", "hydra/sweeper="),
        ("~hydra.run", "paths.runs"),
        ("hydra={}", "--config-dir"),
        ("hydra.anything=1", "--config-dir"),
        ("hydra/env=default", "--config-dir"),
    ],
)
def test_what_hydra_would_read_alone_is_refused(word, instead):
    with pytest.raises(UserError) as refused:
        refuse_settings_of_hydra(read(["seed=1", word]).overrides)
    assert word.lstrip("+") in str(refused.value)
    assert instead in str(refused.value)


@pytest.mark.parametrize("word", ["hydra.job.chdir=true", "+hydra.job.env_set={A:1}"])
def test_a_plugin_changes_nothing_about_folders_and_variables(word):
    with pytest.raises(UserError, match="is not taken"):
        refuse_settings_of_hydra(read([*PLUGIN, word]).overrides)


@pytest.mark.parametrize(
    "word",
    ["hydra.launcher.timeout_min=5", "hydra.sweep.dir=x", "+hydra.launcher.setup=[a]",
     "hydra.searchpath=[file:///x]"],
)  # fmt: skip
def test_what_a_plugin_reads_is_taken(word):
    refuse_settings_of_hydra(read([*PLUGIN, word]).overrides)


def test_the_number_of_a_sweeper_needs_a_sweeper():
    word = "optimized_metric=val/loss"
    with pytest.raises(UserError, match="hydra/sweeper=optuna"):
        refuse_settings_of_hydra([word, "seed=1"])
    refuse_settings_of_hydra([word, "hydra/sweeper=optuna"])


def test_a_command_refuses_them(capsys):
    assert main(["hydra.job.chdir=true"]) == 2
    assert "is not taken" in capsys.readouterr().err


@pytest.mark.parametrize("flag", sorted(REFUSED_FLAGS))
def test_flags_that_replace_the_configuration_are_refused(flag):
    for words in ([flag], [flag, "x"], [f"{flag}=x"]):
        with pytest.raises(UserError, match=r"--config-dir|is not needed"):
            read([*words, "seed=1"])


@pytest.mark.parametrize("flag", ["--resolve", "--package", "-p", "--shell-completion", "-sc"])
def test_no_flag_of_hydra_ends_in_a_traceback(flag, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["train.py"])
    assert main([flag, "seed=1"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert flag in said or "usage" in said


def test_a_value_of_a_flag_is_no_setting():
    line = read(["--info", "seed=1", "--cfg", "job", "--package", "data"], SCRIPT.name)
    assert line.overrides == ("seed=1",)
    assert line.hydra_flags == ("--info", "--cfg", "job", "--package", "data")
