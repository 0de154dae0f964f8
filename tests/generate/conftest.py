"""A folder that whole runs are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfaug.generate.job import generate
from tests.generate.tiny import job


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Path:
    """A folder made at once by one part."""
    folder = tmp_path_factory.mktemp("whole") / "shards"
    generate(job(folder))
    return folder
