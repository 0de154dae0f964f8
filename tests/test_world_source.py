"""Which sources are parts of the embedded world."""

from __future__ import annotations

import pytest

from cfaug.world_source import is_world, world_part


@pytest.mark.parametrize("part", ["ood", "ood@photo", "real_test"])
def test_a_part_is_told_from_a_folder(part):
    assert is_world(f"shapescapes:{part}")
    assert world_part(f"shapescapes:{part}") == part


@pytest.mark.parametrize("folder", ["shapescapes", "/data/shapescapes:ood", "photos"])
def test_a_folder_is_no_part(folder):
    assert not is_world(folder)
