"""Two arms compared item by item: in the metric's direction, paired by name, never by place."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.report.item_tests import BOOTSTRAP, MCNEMAR, compare_items
from cfaug.report.items import Items, read_items, write_items
from cfaug.report.page import Measure
from cfaug.stats.item_tests import cluster_bootstrap, mcnemar, standard_error

LOWER = Measure(better="lower")


def items(values, clusters=None, data="d", names=None, **columns) -> Items:
    names = [f"i{n:03d}" for n in range(len(values))] if names is None else names
    clusters = names if clusters is None else clusters
    content = {"item": names, "cluster": clusters, "acc1": np.asarray(values, float)} | columns
    return Items("test", "w", data, content)


RIGHT, WRONG = [1, 1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 1, 0, 0, 0, 0]


def test_binary_items_sampled_one_by_one_are_tested_exactly(tmp_path):
    for folder, values in (("a", RIGHT), ("b", WRONG)):
        write_items(tmp_path / folder, items(values))
    found = compare_items(
        [read_items(tmp_path / "a", "test")], [read_items(tmp_path / "b", "test")], "acc1"
    )
    assert (found.arm, found.baseline, found.gain) == (7 / 8, 1 / 8, 6 / 8)
    assert (found.p, found.p_two_sided) == (mcnemar(6, 0, "greater"), mcnemar(6, 0))
    assert (found.test, found.items, found.clusters) == (MCNEMAR, 8, 8)
    assert found.low > 0
    assert (found.better, found.worse, found.p_exact) == (6, 0, found.p_two_sided)
    # sqrt((6 - 36 / 8) / 56): six of eight items differ, all one way.
    assert found.error == pytest.approx((1.5 / 56) ** 0.5)
    assert found.describe(Measure()).startswith("8 items: standard error 16.4 points; a difference")


def test_lower_is_better_in_its_own_direction():
    up = compare_items([items(RIGHT)], [items(WRONG)], "acc1")
    down = compare_items([items(RIGHT)], [items(WRONG)], "acc1", LOWER)
    assert (down.gain, down.p_two_sided) == (-up.gain, up.p_two_sided)
    assert (down.low, down.high) == (pytest.approx(-up.high), pytest.approx(-up.low))
    assert up.p < 0.05 < down.p
    swapped = compare_items([items(WRONG)], [items(RIGHT)], "acc1", LOWER)
    assert swapped.p == up.p


def test_items_of_one_cluster_are_drawn_together():
    rng = np.random.default_rng(1)
    base = rng.random(60).round()
    arm = np.clip(base + (rng.random(60) < 0.2), 0, 1)
    clusters = [f"c{n // 5}" for n in range(60)]
    found = compare_items([items(arm, clusters)], [items(base, clusters)], "acc1")
    expected = cluster_bootstrap(
        arm - base, np.arange(60) // 5, generator(0, "items", "test", "acc1")
    )
    assert (found.test, found.clusters) == (BOOTSTRAP, 12)
    assert found.p == pytest.approx(expected.p_greater, abs=0.01)
    assert found.low == pytest.approx(expected.low, abs=0.01)
    # Beside it McNemar's, which takes items for independent.
    better, worse = int((arm > base).sum()), int((arm < base).sum())
    assert (found.better, found.worse, found.p_exact) == (better, worse, mcnemar(better, worse))
    assert found.error == standard_error(arm - base, clusters)


def test_seeds_are_averaged_item_by_item():
    arm = [items(RIGHT), items(WRONG)]
    found = compare_items(arm, [items(WRONG)], "acc1")
    assert found.gain == pytest.approx(3 / 8)
    assert (found.items, found.test) == (8, BOOTSTRAP)
    assert found.arm == 0.5


def test_seeds_with_tests_of_their_own_are_compared_within_them():
    """Items and clusters of equal names in two tests are other items and clusters."""
    clusters = list("aabbccdd")
    arm = [items(RIGHT, clusters, "d1"), items(RIGHT, clusters, "d2")]
    base = [items(WRONG, clusters, "d2"), items(WRONG, clusters, "d1")]
    found = compare_items(arm, base, "acc1")
    assert (found.items, found.clusters, found.gain) == (16, 8, 6 / 8)


def test_a_part_of_the_test_is_tested_alone():
    kinds = np.array(["colour", "place"] * 4, dtype=object)
    arm, base = items(RIGHT, edit=kinds), items(WRONG, edit=kinds)
    found = compare_items([arm], [base], "acc1", by={"edit": "place"})
    assert found.items == 4
    assert found.gain == np.mean(RIGHT[1::2]) - np.mean(WRONG[1::2])
    with pytest.raises(UserError, match="lack the column 'kind'"):
        compare_items([arm], [base], "acc1", by={"kind": "place"})
    with pytest.raises(UserError, match="no item counts"):
        compare_items([arm], [base], "acc1", by={"edit": "size"})


@pytest.mark.parametrize(
    ("arm", "base", "metric", "said"),
    [
        ([items(RIGHT)], [items(WRONG, data="e")], "acc1", "test data"),
        ([items(RIGHT)], [items(WRONG[:-1])], "acc1", "different items"),
        ([items(RIGHT)], [items([math.nan, *WRONG[1:]])], "acc1", "items that count"),
        ([items(RIGHT), items(RIGHT[1:])], [items(WRONG)], "acc1", "different items"),
        ([items(RIGHT), items([math.nan, *WRONG[1:]])], [items(WRONG)], "acc1", "items that count"),
        ([], [items(WRONG)], "acc1", "items are missing"),
        ([items(RIGHT)], [items(WRONG)], "recall", "no values of 'recall'; they have acc1"),
    ],
)
def test_other_items_are_refused(arm, base, metric, said):
    with pytest.raises(UserError, match=said):
        compare_items(arm, base, metric)


def test_items_are_paired_by_name_and_some_do_not_count():
    names = [f"i{n}" for n in range(8)]
    mixed = [3, 1, 0, 2, 7, 5, 4, 6]
    other = items([WRONG[n] for n in mixed], names=[names[n] for n in mixed])
    found = compare_items([items(RIGHT, names=names)], [other], "acc1")
    assert found.p == compare_items([items(RIGHT)], [items(WRONG)], "acc1").p
    nan = [math.nan, *RIGHT[1:]], [math.nan, *WRONG[1:]]
    found = compare_items([items(nan[0])], [items(nan[1])], "acc1")
    assert (found.items, found.gain) == (7, pytest.approx(5 / 7))
