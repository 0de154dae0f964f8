from __future__ import annotations

from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.data.loader import TrainingShares
from cfaug.data.mixture import COUNTERFACTUAL, REAL, Mixture, make_pool
from cfaug.data.order import epoch_order, split_sets
from cfaug.data.plans import mix, plan_named, plan_random
from cfaug.data.settings import DataSettings
from cfaug.errors import UserError
from cfaug.rng import derive
from tests.data.making import Columns

PLANS = ("real", "base", "medium", "all", "human_validated")


def half_up(number: Decimal) -> int:
    return int(number.quantize(Decimal(1), ROUND_HALF_UP))


def floor(number: Decimal) -> int:
    return int(number.quantize(Decimal(1), ROUND_FLOOR))


@cache
def photos(count: int, captions: int = 4) -> Columns:
    """Captions of photos, so many each; group i is photo i."""
    return Columns.of((i // captions, 1) for i in range(count))


@cache
def pairs(count: int, per_photo: int = 4) -> Columns:
    return Columns.of((i // per_photo, 2) for i in range(count))


@cache
def apart(count: int) -> Columns:
    """Pairs of photos that ``photos`` does not have."""
    return Columns.of((10**6 + i, 2) for i in range(count))


def settings_of(plan: str, **more: Any) -> DataSettings:
    given = {"seed": 108, "human_labels": "labels" if plan == "human_validated" else None}
    return DataSettings("real", "cf", plan=plan, **(given | more))


class Validated:
    """Labels that validate the first so many rows of a fixed shuffle."""

    def __init__(self, count: int) -> None:
        self.count = count

    def validated(self, index: Columns) -> np.ndarray:
        mask = np.zeros(len(index), bool)
        mask[np.random.default_rng(0).permutation(len(index))[: self.count]] = True
        return mask


def mixed(
    plan: str, real: Columns, cf: Columns, labels: Validated | None = None, **more: Any
) -> Mixture:
    asked = settings_of(plan, **more)
    return mix(asked, real, cf if asked.needed[1] else None, labels=labels)


PAPER = {
    "real": (13_928, 0), "base": (6_964, 6_964), "medium": (13_928, 20_892),
    "all": (13_928, 27_856), "human_validated": (13_928, 20_385),
}  # fmt: skip
"""Real and counterfactual rows of train (COCO-CFs, Tables 3 and 11, B.3.1)."""

REAL_ROWS, PAIRS, VALIDATED = 17_410, 17_410, 25_482


@pytest.mark.parametrize("plan", PLANS)
def test_the_papers_counts_by_source(plan):
    labels = Validated(VALIDATED) if plan == "human_validated" else None
    found = mixed(plan, photos(REAL_ROWS), pairs(PAIRS), labels)
    assert (found.counts["real"], found.counts["counterfactual"]) == PAPER[plan]
    assert found.counts["train"] == {
        "real": 13_928, "base": 13_928, "medium": 34_820, "all": 41_784, "human_validated": 34_313
    }[plan]  # fmt: skip
    # Whole groups: validation may miss the rest of a group that the cut went through.
    share = Decimal(found.counts["train"]) / 4
    assert 0 <= share + 1 - found.counts["validation"] <= 16
    groups = [
        {int(found.sources[s].groups[row]) for s, row in rows.tolist()}
        for rows in (found.train, found.validation)
    ]
    assert not groups[0] & groups[1]


@pytest.mark.parametrize("plan", PLANS)
def test_the_papers_counts_at_random(plan):
    labels = Validated(VALIDATED) if plan == "human_validated" else None
    found = mixed(plan, photos(REAL_ROWS), pairs(PAIRS), labels, split="random")
    total = {"real": 17_410, "base": 17_411, "medium": 43_525, "all": 52_230,
             "human_validated": 42_892}[plan]  # fmt: skip
    assert found.counts["train"] == sum(PAPER[plan]) == 4 * total // 5
    assert found.counts["train"] + found.counts["validation"] == total
    n, cf = total, round(total * PAPER[plan][1] / sum(PAPER[plan]))
    train = found.counts["train"]
    deviation = np.sqrt(train * cf / n * (1 - cf / n) * (n - train) / (n - 1))
    assert abs(found.counts["counterfactual"] - PAPER[plan][1]) <= 5 * deviation
    if plan != "real":
        # The share is not fixed: the paper's 6,939, 20,894, 27,853 lie as near as other seeds.
        others = {
            mixed(plan, photos(REAL_ROWS), pairs(PAIRS), labels, split="random", seed=seed).counts[
                "counterfactual"
            ]
            for seed in range(109, 113)
        }
        assert len(others) > 1


def slow_size(plan: str, real: int, cf: list[int]) -> tuple[int, int]:
    """Real and counterfactual rows of a plan; ``cf`` are the sizes of the sets it may draw."""
    half, quarter = Decimal(1) / 2, Decimal(1) / 4
    if plan == "real":
        return real, 0
    if plan == "base":
        return half_up(half * real), 2 * half_up(quarter * len(cf))
    if plan == "medium":
        return real, half_up(3 * quarter * sum(cf))
    return real, sum(cf)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(PLANS),
    st.sampled_from([(17_410, 17_410), (52, 52), (62, 90), (301, 11)]),
    st.tuples(st.integers(-1, 1), st.integers(-1, 1)),
    st.sampled_from(["group", "random"]),
    st.sampled_from([0.2, 0.1, 0.5]),
)
def test_counts_follow_when_any_size_changes_by_one(plan, sizes, change, split, validation):
    real, sets = sizes[0] + change[0], sizes[1] + change[1]
    labels = Validated(3 * sets // 2) if plan == "human_validated" else None
    n_real, n_cf = slow_size(plan, real, [2] * sets)
    if labels:
        n_cf = labels.count
    train = floor((1 - Decimal(repr(validation))) * (n_real + n_cf))
    found = mixed(plan, photos(real), apart(sets), labels, split=split, validation=validation)
    assert found.counts["train"] == found.counts["total"] == len(found.train) == train
    everything = [tuple(one) for one in (*found.train.tolist(), *found.validation.tolist())]
    assert len(set(everything)) == len(everything) <= n_real + n_cf
    if split == "random":
        assert len(everything) == n_real + n_cf
    else:
        share = half_up(Decimal(n_cf * train) / (n_real + n_cf))
        assert found.counts["counterfactual"] == share
        # Groups are apart, at most one of either source is cut, of at most 4 rows.
        assert len(everything) >= n_real + n_cf - 4 - 2


def keyed(code: int, *names: str | int) -> int:
    """SplitMix64's finaliser in Python's own integers."""
    key = code ^ derive(5, *names)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = ((key ^ (key >> shift)) * factor) % 2**64
    return key ^ (key >> 31)


def slow_random(plan: str, real: Columns, cf: Columns) -> tuple[list[Any], list[Any]]:
    """Return (train, validation) of a random split, a row at a time."""
    sets = cf.sets.tolist()
    n_real, n_cf = slow_size(plan, len(real), [sets.count(s) for s in sorted(set(sets))])
    chosen = {
        s: sorted(range(len(one)), key=lambda row, s=s: keyed(row, "mixture", "rows", s))[:n]
        for s, one, n in ((REAL, real, n_real), (COUNTERFACTUAL, cf, n_cf))
    }
    if plan == "base":
        order = sorted(set(sets), key=lambda number: keyed(number, "mixture", "sets"))
        kept = set(order[: half_up(Decimal(len(order)) / 4)])
        chosen[COUNTERFACTUAL] = [row for row, number in enumerate(sets) if number in kept]
    rows = [(s, row) for s in (REAL, COUNTERFACTUAL) for row in chosen[s]]
    rows.sort(key=lambda one: keyed(one[1], "mixture", "split", one[0]))
    train = floor(Decimal("0.8") * len(rows))
    return rows[:train], rows[train:]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(PLANS), st.integers(4, 40), st.integers(4, 40))
def test_a_random_split_equals_the_slow_obvious_one(plan, real, sets):
    sources = photos(real), pairs(sets)
    pool = make_pool(*sources, seed=5, split="random")
    found = plan_random(pool, plan, seed=5, validation=0.2)
    train, held = slow_random(plan, *sources)
    assert {tuple(one) for one in found.train.tolist()} == set(train)
    assert {tuple(one) for one in found.validation.tolist()} == set(held)
    assert (found.train[:, 0] == np.sort(found.train[:, 0])).all()


def test_partners_are_parted_at_random_and_never_by_source():
    def parted(split):
        found = mixed("all", photos(400), pairs(400), split=split)
        sets = [
            {row // 2 for source, row in rows.tolist() if source == COUNTERFACTUAL}
            for rows in (found.train, found.validation)
        ]
        return len(sets[0] & sets[1])

    assert parted("group") == 0
    # A pair has one row on either side with probability 2 x 0.8 x 0.2.
    assert 80 < parted("random") < 180


@pytest.mark.parametrize("split", ["group", "random"])
def test_base_takes_whole_pairs_of_a_quarter_and_arms_share_a_seed(split):
    base = mixed("base", photos(400), pairs(400), split=split, validation=0)
    drawn = base.train[base.train[:, 0] == COUNTERFACTUAL, 1]
    assert len(drawn) == 200
    assert len(set((drawn // 2).tolist())) == 100
    assert np.array_equal(
        base.train, mixed("base", photos(400), pairs(400), split=split, validation=0).train
    )
    other = mixed("base", photos(400), pairs(400), split=split, validation=0, seed=109)
    assert not np.array_equal(base.train, other.train)
    whole, real = (mixed(plan, photos(400), pairs(400)) for plan in ("all", "real"))
    assert np.array_equal(whole.train[whole.train[:, 0] == REAL], real.train)


def test_every_row_trains_as_often_as_any_other():
    trained = np.zeros(30, int)
    for seed in range(500):
        found = mixed("medium", photos(10), pairs(10), split="random", seed=seed)
        np.add.at(trained, 10 * found.train[:, 0] + found.train[:, 1], 1)
    real, cf = trained[:10] / 500, trained[10:] / 500
    # Real rows train with probability 0.8, counterfactual ones with 0.75 x 0.8; five deviations.
    assert np.abs(real - 0.8).max() < 5 * np.sqrt(0.8 * 0.2 / 500)
    assert np.abs(cf - 0.6).max() < 5 * np.sqrt(0.6 * 0.4 / 500)


# Controls of the same size.


@pytest.mark.parametrize("split", ["group", "random"])
@pytest.mark.parametrize(("plan", "train"), [("base", 13_928), ("real", 13_928)])
def test_a_control_has_as_many_training_rows_of_one_source(plan, train, split):
    for control, source in (("real", REAL), ("counterfactual", COUNTERFACTUAL)):
        if plan == "real" and control == "counterfactual":
            continue  # the plan reads no counterfactual source
        found = mixed(plan, photos(REAL_ROWS), pairs(PAIRS), control=control, split=split)
        assert found.counts["train"] == train
        assert (found.train[:, 0] == source).all()
        assert (found.validation[:, 0] == source).all()
        assert found.sources[1 - source] is None
        assert 0 < found.counts["validation"] <= 3_483


def test_a_control_draws_from_a_larger_source_where_its_own_is_too_small():
    with pytest.raises(UserError, match=r"34820 training.*17410: .*data\.control_source"):
        mixed("medium", photos(REAL_ROWS), pairs(PAIRS), control="real")
    with pytest.raises(UserError, match=r"34820 training.*validate on; there are 34820"):
        mixed("medium", photos(REAL_ROWS), pairs(PAIRS), control="counterfactual")
    more = photos(50_000)
    found = mix(
        settings_of("medium", control="real", control_source="more"), photos(REAL_ROWS),
        pairs(PAIRS), control=more,
    )  # fmt: skip
    assert found.counts == {
        "real": 34_820, "counterfactual": 0, "total": 34_820, "train": 34_820,
        "validation": 8_705, "dropped": 0,
    }  # fmt: skip
    assert found.sources == (more, None)


# What settings refuse.


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"plan": "medium", "cf_ratio": 0.6}, r"data\.plan=medium .* data\.cf_ratio=0\.6"),
        ({"plan": "medium", "cf_ratio": 0.5}, r"data\.cf_ratio=0\.5"),
        ({"plan": "real", "size": 100}, r"data\.size=100"),
        ({"plan": "all", "counterfactual_members": "unedited"}, "counterfactual_members"),
        ({"plan": "large"}, r"data\.plan=large: choose from real, base, medium, all"),
        ({"plan": "human_validated"}, r"human_labels=FILE: .*key.*member.*label"),
        ({"split": "rows"}, "choose from group, random"),
        ({"real_captions": "some"}, "choose from all, edited"),
        ({"withheld": 1}, r"data\.withheld=1 must be"),
        ({"withheld": True}, r"data\.withheld=True"),
        ({"control": "real"}, r"data\.control=real is the control of a plan"),
        ({"plan": "all", "control": "both"}, "choose from real, counterfactual"),
        ({"plan": "all", "control_source": "x"}, r"data\.control_source=x needs data\.control"),
    ],
)
def test_settings_that_contradict_a_plan_are_refused(given, named):
    with pytest.raises(UserError, match=named):
        DataSettings("real", "cf", **given)


def test_a_plan_of_next_to_nothing_is_refused():
    with pytest.raises(UserError, match="nothing to train on"):
        mixed("real", photos(1), pairs(1))
    empty = make_pool(None, None, seed=0)
    with pytest.raises(UserError, match="nothing that it could draw"):
        plan_named(empty, "all", validation=0.2)
    with pytest.raises(UserError, match="no group is left"):
        mixed("real", photos(100, captions=100), pairs(1))


# The withheld third of Table 5, and validated rows.


def test_the_papers_withheld_split():
    """COCO-CFs, A.1: of 34,820 rows 30 % test, 56 % train, 14 % validate."""
    asked = DataSettings(None, "cf", cf_ratio=1, withheld=0.3, seed=108)
    cf = Columns.of((i, 2) for i in range(PAIRS))
    found = mix(asked, None, cf)
    assert found.counts["train"] == 19_499 == int(0.56 * 34_820)
    assert found.counts["validation"] in (4_873, 4_874, 4_875)
    used = {row // 2 for _, row in (*found.train.tolist(), *found.validation.tolist())}
    assert PAIRS - len(used) == 5_223
    at_random = mix(
        DataSettings(None, "cf", cf_ratio=1, withheld=0.3, seed=9, split="random"), None, cf
    )
    again = {row // 2 for _, row in (*at_random.train.tolist(), *at_random.validation.tolist())}
    assert again == used


def test_real_rows_of_withheld_groups_are_kept_out_too():
    real, cf = photos(400), pairs(400)
    found = mix(settings_of("all", withheld=0.3), real, cf)
    used = np.concatenate([found.train, found.validation])
    groups = [
        set(one.groups[used[used[:, 0] == s, 1]].tolist()) for s, one in enumerate((real, cf))
    ]
    assert len(groups[0] | groups[1]) == 70


# Pairs in a batch.


@pytest.mark.parametrize("plan", ["base", "medium", "all", "human_validated"])
@pytest.mark.parametrize("split", ["group", "random"])
def test_plans_keep_pairs_in_a_batch(plan, split):
    labels = Validated(900) if plan == "human_validated" else None
    found = mixed(plan, photos(600), pairs(600), labels, split=split)
    arguments = {"data_seed": 108, "seed": 107, "epoch": 1, "batch_size": 32}
    order = epoch_order(found, pairs_in_batch=True, **arguments)
    assert sorted(order.tolist()) == list(range(len(found.train)))
    assert split_sets(found, order, 32) <= 1
    assert split_sets(found, epoch_order(found, **arguments), 32) > 50


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["base", "medium", "all"]),
    st.sampled_from(["group", "random"]),
    st.integers(1, 4),
    st.integers(2, 40),
    st.integers(0, 3),
    st.integers(0, 5),
)
def test_pairs_stay_together_on_any_ranks_beside_photos_with_five_captions(
    plan, split, world, batch_size, epoch, start
):
    """What the loader asks of its workers: the union of the ranks' shares is a batch with pairs."""
    real = Columns.of((i, 5) for i in range(30))
    found = mixed(plan, real, Columns.of((i // 2, 2) for i in range(60)), split=split)
    asked = settings_of(plan, batch_size=batch_size, pairs_in_batch=True)
    steps = asked.steps_per_epoch(len(found.train))
    first = epoch * steps + min(start, steps - 1)
    arguments = {"seed": 107, "data_seed": 108, "total_steps": (epoch + 1) * steps}
    shares = [
        list(TrainingShares(found, asked, start_step=first, rank=rank, world=world, **arguments))
        for rank in range(world)
    ]
    whole = list(TrainingShares(found, asked, start_step=epoch * steps, **arguments))
    order = np.concatenate([share.rows for share in whole])
    assert sorted(map(tuple, order.tolist())) == sorted(map(tuple, found.train.tolist()))
    batches: dict[int, set[int]] = {}
    for step, share in enumerate(whole):
        for source, row in share.rows.tolist():
            if source == COUNTERFACTUAL:
                batches.setdefault(row // 2, set()).add(step)
    # An odd batch that pairs alone must fill has no room for its last.
    singles = found.counts["real"] + sum(
        list(order[order[:, 0] == COUNTERFACTUAL, 1] // 2).count(s) == 1 for s in batches
    )
    parted = sum(len(steps_of) > 1 for steps_of in batches.values())
    assert parted <= max(1, steps - singles)
    for at, share in enumerate(whole[first - epoch * steps :]):
        together = np.concatenate([one[at].rows for one in shares])
        assert np.array_equal(together, share.rows)
        assert all(np.array_equal(one[at].whole, share.rows) for one in shares)
