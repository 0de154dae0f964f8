"""Parts that find, mend and judge share no photo, under whatever name."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.failures import ModelFailure, write_failures
from cfaug.lance.stress import Stress
from cfaug.repair.repair_test import RepairTest, check_disjoint
from cfaug.shapescapes.parts import make_part
from cfaug.shapescapes.settings import WorldSettings
from tests.evaluation.joined import joined_set

EDITS = [("background", "beach", "snow")]


@pytest.fixture
def opened(tmp_path):
    def open_part(name, sets):
        write_shards(sets, tmp_path / name)
        return open_index(str(tmp_path / name), tmp_path / "cache")

    return open_part


def test_parts_without_a_common_photo_pass(opened):
    parts = {n: opened(n, [joined_set(10 * i + k, EDITS) for k in range(3)])
             for i, n in enumerate(("find", "pool", "gate", "test"))}  # fmt: skip
    check_disjoint(parts)


def test_a_shared_group_is_named(opened):
    find = opened("find", [joined_set(0, EDITS), joined_set(1, EDITS)])
    test = opened("test", [joined_set(1, EDITS, seed=9), joined_set(2, EDITS)])
    with pytest.raises(UserError, match=r"find .* and test .* share groups: 3 rows .* photo-1_0"):
        check_disjoint({"find": find, "test": test})


def test_an_image_under_another_name_is_named(opened):
    find = opened("find", [joined_set(0, EDITS)])
    renamed = replace(joined_set(0, [], control=False), key="other", group="other")
    pool = opened("pool", [renamed, joined_set(3, EDITS)])
    with pytest.raises(UserError, match="share images: 1 rows of pool, such as other_0"):
        check_disjoint({"pool": pool, "find": find})


def test_the_worlds_four_parts_are_disjoint(opened):
    world = WorldSettings(seed=3, id_scenes=40)
    parts = {
        name: opened(name, make_part(world, name)) for name in ("find", "pool", "gate", "test")
    }
    check_disjoint(parts)
    assert {len(index) for index in parts.values()} == {40}


def test_a_repair_is_not_judged_on_photos_that_found_the_failure(opened, tmp_path):
    sources = {
        name: opened(name, [joined_set(start, EDITS), joined_set(start + 1, EDITS)])
        for name, start in (("find", 0), ("pool", 10), ("test", 1))
    }
    write_failures(tmp_path / "f.jsonl", [ModelFailure("stress", "place", "grass", "snow")])
    inner = Stress("test")
    context = SimpleNamespace(open=sources.__getitem__)
    test = RepairTest(
        inner, str(tmp_path / "f.jsonl"), disjoint_from={"POOL": "pool", "FIND": "find"}
    )
    with pytest.raises(UserError, match=r"benchmark\.test .* and FIND .* share groups"):
        test.open(context)
