"""A package that is missing is named with the extra that installs it."""

from __future__ import annotations

import re
import tomllib

import pytest

from cfaug.run.extras import EXTRAS, explain_missing
from cfaug.run.launch import report
from tests.scripts import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALLED_AS = {
    "open_clip": "open_clip_torch", "torch_fidelity": "torch-fidelity",
    "hydra_plugins": "hydra-submitit-launcher", "tensorboardX": "tensorboard",
}  # fmt: skip


@pytest.mark.parametrize(("module", "extra"), EXTRAS.items())
def test_the_extra_installs_it(module, extra):
    listed = [re.match(r"[\w-]+", one)[0] for one in PROJECT["optional-dependencies"][extra]]
    assert INSTALLED_AS.get(module, module) in listed
    assert f"cfaug[{extra}]" in explain_missing(ModuleNotFoundError(name=f"{module}.part"))


def test_the_command_says_so(capsys):
    assert report(ModuleNotFoundError("No module named 'diffusers'", name="diffusers")) == 2
    said = capsys.readouterr().err
    assert (
        said
        == "error: diffusers is missing, which this command needs: pip install 'cfaug[generate]'\n"
    )


def test_a_librarys_own_check_is_understood():
    said = explain_missing(ModuleNotFoundError("Requirement 'wandb>=0.12.10' not met."))
    assert "cfaug[loggers]" in said


def test_another_error_is_left_alone():
    assert explain_missing(ModuleNotFoundError("No module named 'mine'", name="mine")) is None
    assert explain_missing(ValueError("diffusers")) is None
