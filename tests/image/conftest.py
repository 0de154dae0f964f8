from __future__ import annotations

import pytest

from tests.image import tiny


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory):
    return tiny.save_pipeline(tmp_path_factory.mktemp("sd") / "tiny")


@pytest.fixture(scope="session")
def velocity_pipeline(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sd") / "velocity"
    return tiny.save_pipeline(folder, prediction_type="v_prediction")
