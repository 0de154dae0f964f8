"""Weights that every test of training starts from."""

from __future__ import annotations

import pytest

from tests.models import tiny


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    """A tiny dual encoder without dropout."""
    return tiny.save_dual_encoder(tmp_path_factory.mktemp("weights") / "plain")


@pytest.fixture(scope="session")
def dropout_weights(tmp_path_factory):
    """A tiny dual encoder whose text tower drops 30 %."""
    return tiny.save_dual_encoder(tmp_path_factory.mktemp("weights") / "dropout", dropout=0.3)


@pytest.fixture
def folder(tmp_path):
    """The folder of a run, which does not exist yet."""
    return tmp_path / "demo" / "arm" / "seed=7"
