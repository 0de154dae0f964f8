"""Models for tests of insertions, written once."""

from __future__ import annotations

import pytest

from tests.papers.xmai.insertions.parts import Parts


@pytest.fixture(scope="session")
def parts(tmp_path_factory):
    return Parts(tmp_path_factory.mktemp("insertion"))
