from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.browser import Browser, find
from tests import skips


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if find() is None:
        skips.skip("browser")
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
