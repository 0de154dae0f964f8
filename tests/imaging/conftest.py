from __future__ import annotations

import pytest

from tests.imaging import tiny


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
