"""A package that is missing is named with the extra that installs it."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import invalidate_caches

import pytest
import yaml

from cfaug.core import processes as installation
from cfaug.core.errors import UserError
from cfaug.core.processes import EXTRAS, LOGGERS, check_logger, explain_missing
from cfaug.run import evaluate, train
from cfaug.run.launch import report
from cfaug.run.run_folder import check_result_loggers
from tests.run.conftest import refusal
from tests.scripts import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALLED_AS = {
    "open_clip": "open_clip_torch", "torch_fidelity": "torch-fidelity",
    "hydra_plugins": "hydra-submitit-launcher", "tensorboardX": "tensorboard",
}  # fmt: skip


@pytest.mark.parametrize(("module", "extra"), EXTRAS.items())
def test_the_extra_installs_it(module, extra):
    listed = [
        re.match(r"[\w-]+", requirement)[0]
        for requirement in PROJECT["optional-dependencies"][extra]
    ]
    assert INSTALLED_AS.get(module, module) in listed
    assert f"cfaug[{extra}]" in explain_missing(ModuleNotFoundError(name=f"{module}.part"))


def test_the_command_says_so():
    said = refusal(report, ModuleNotFoundError("No module named 'diffusers'", name="diffusers"))
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


@pytest.fixture
def without_loggers(monkeypatch):
    """Have no module of any logger to be found."""
    hidden = {module for modules in LOGGERS.values() for module in modules}
    find = installation.find_spec
    monkeypatch.setattr(
        installation, "find_spec", lambda name: None if name in hidden else find(name)
    )


@pytest.mark.parametrize("kind", LOGGERS)
def test_a_run_whose_logger_is_missing_fails_before_it_draws_or_claims_anything(
    place, without_loggers, kind, monkeypatch
):
    monkeypatch.setattr(train, "prepare_data", lambda jobs: pytest.fail("data were drawn"))
    assert f"{kind} is missing" in refusal(place.train, f"logger={kind}")
    assert not list(place.root.rglob("*"))


def finished_run(place, kind):
    """Write a finished run whose settings name that logger."""
    folder = place.folder()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text('{"state": "done", "seed": 107}', encoding="utf-8")
    settings = {
        "model": {"_target_": "cfaug.models.specs.HFClip", "weights": "zoo:clip-0"},
        "data": {"_target_": "cfaug.data.mixture.settings.RatioData",
                 "real": "shapescapes:real", "counterfactual": None},
        "logger": {"_target_": "cfaug.train.settings.LoggerSettings", "kind": kind},
    }  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return folder


def test_an_evaluation_whose_logger_is_missing_fails_before_anything_is_loaded(
    place, without_loggers, capfd, monkeypatch
):
    folder = finished_run(place, "wandb")
    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "prepare_worlds", lambda *_: pytest.fail("worlds were drawn"))
        assert place.evaluate() == 2
    said = capfd.readouterr().err
    assert f"{folder} was trained with logger=wandb: wandb is missing" in said
    assert "pip install 'cfaug[loggers]'" in said


def test_results_are_not_written_to_tensorboard_so_its_package_is_not_needed(
    place, without_loggers
):
    check_result_loggers([finished_run(place, "tensorboard"), place.root / "damaged"])
    with pytest.raises(UserError, match="wandb is missing"):
        check_result_loggers([finished_run(place, "wandb")])


def test_a_folder_of_an_earlier_run_is_no_package(monkeypatch, tmp_path):
    (tmp_path / "wandb").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(UserError, match=re.escape("pip install 'cfaug[loggers]'")):
        check_logger("wandb")
    (tmp_path / "wandb" / "__init__.py").touch()
    invalidate_caches()
    check_logger("wandb")
