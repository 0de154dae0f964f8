from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.imaging import tiny

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch, capsys):
    """Return a function that runs a script of benchmarks/ and returns what it prints."""

    def run(file: str, *words: str) -> str:
        monkeypatch.syspath_prepend(str(BENCHMARKS))
        module = importlib.import_module(file.removesuffix(".py"))
        assert module.main(list(words)) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory):
    return tiny.save_pipeline(tmp_path_factory.mktemp("sd") / "tiny")


@pytest.fixture(scope="session")
def calm_pipeline(tmp_path_factory):
    return tiny.save_pipeline(tmp_path_factory.mktemp("sd") / "calm", calm=True)


@pytest.fixture(scope="session")
def calm_velocity_pipeline(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sd") / "calm_velocity"
    return tiny.save_pipeline(folder, prediction_type="v_prediction", calm=True)


@pytest.fixture(scope="session")
def velocity_pipeline(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sd") / "velocity"
    return tiny.save_pipeline(folder, prediction_type="v_prediction")
