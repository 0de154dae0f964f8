"""Six pairs, indexed once."""

from __future__ import annotations

import pytest

from cfaug.annotation.assignment import items_of
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from tests.annotation.making import WHICH, pairs


@pytest.fixture(scope="session")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    write_shards(pairs(), folder / "shards")
    return open_index(folder / "shards", folder / "cache")


@pytest.fixture(scope="session")
def items(index):
    return items_of(index, WHICH)
