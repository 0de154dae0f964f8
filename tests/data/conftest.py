"""Sources that several tests of loading read."""

from __future__ import annotations

import pytest

from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from tests.data.making import noise_image, pair, write_tar


@pytest.fixture(scope="session")
def indexes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    for shard in range(2):
        members = {}
        for number in range(50 * shard, 50 * shard + 50):
            members[f"{number:04d}.png"] = noise_image(number)
            members[f"{number:04d}.txt"] = f"photo {number}".encode()
        write_tar(folder / "real" / f"{shard:05d}.tar", members)
    write_shards([pair(200 + i) for i in range(40)], folder / "cf", sets_per_shard=15)
    real, edited = (open_index(folder / name, folder / "cache") for name in ("real", "cf"))
    return real, edited
