from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.rng import derive
from cfaug.data.mixture.leakage import withhold
from cfaug.data.mixture.loader import TrainingShares
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.order import epoch_order, split_sets
from cfaug.data.mixture.records import COUNTERFACTUAL, REAL
from cfaug.data.mixture.settings import DataSettings, Sources
from tests.data.making import Columns
from tests.data.planned import PAIRS, REAL_ROWS, Validated, mixed, pairs, photos, settings_of
from tests.properties import examples


def place(group: int) -> int:
    """SplitMix64's finaliser in Python's own integers."""
    key = group ^ derive(0, "withheld")
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = ((key ^ (key >> shift)) * factor) % 2**64
    return key ^ (key >> 31)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), min_size=1, max_size=40),
    st.sampled_from((0.1, 0.3, 0.5, 0.29, 0.9)),
)
def test_equals_the_slow_obvious_choice(sets, share):
    source = Columns.of(sets)
    wanted = int((Decimal(repr(share)) * len(sets)).quantize(Decimal(1), ROUND_HALF_UP))
    if not 0 < wanted < len(sets):
        with pytest.raises(UserError, match=r"data\.counterfactual_holdout"):
            withhold(source, share)
        return
    order = sorted(range(len(sets)), key=lambda number: (place(sets[number][0]), number))
    chosen = set(order[:wanted])
    found = withhold(source, share)
    assert found.rows.tolist() == [r for r, s in enumerate(source.sets.tolist()) if s in chosen]
    groups = {sets[number][0] for number in chosen}
    assert found.groups.tolist() == sorted(groups)
    assert found.find_allowed(source.groups).tolist() == [
        g not in groups for g in source.groups.tolist()
    ]


def test_the_papers_third():
    """COCO-CFs, A.1: 30 % of 17,410 pairs; five pairs a photo at most, as in COCO."""
    rng = np.random.default_rng(0)
    photos = np.sort(rng.integers(0, 4_900, 17_410))
    source = Columns.of((int(photo), 2) for photo in photos)
    found = withhold(source, 0.3)
    assert len(found.rows) == 10_446
    rest = int(found.find_allowed(source.groups).sum())
    assert 34_820 - 10_446 - 2 * 20 < rest <= 34_820 - 10_446
    assert not set(source.groups[found.find_allowed(source.groups)]) & set(found.groups)


@given(st.sets(st.integers(0, 10**6), min_size=20, max_size=200))
def test_it_depends_on_groups_alone(groups):
    assume(len(groups) > 10)
    forward, backward = (
        Columns.of((g, 2) for g in order) for order in (sorted(groups), sorted(groups)[::-1])
    )
    assert np.array_equal(withhold(forward, 0.3).groups, withhold(backward, 0.3).groups)


# What a plan is held against: controls of its size, and a test set it never sees.


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
        settings_of("medium", control="real", control_source="more"),
        Sources(photos(REAL_ROWS), pairs(PAIRS), more),
    )  # fmt: skip
    assert found.counts == {
        "real": 34_820, "counterfactual": 0, "total": 34_820, "train": 34_820,
        "validation": 8_705, "dropped": 0,
    }  # fmt: skip
    assert found.sources == (more, None)


# The withheld third of Table 5, and validated rows.


def test_the_papers_withheld_split():
    """COCO-CFs, A.1: of 34,820 rows 30 % test, 56 % train, 14 % validate."""
    asked = DataSettings(None, "cf", cf_ratio=1, counterfactual_holdout=0.3, seed=108)
    cf = Columns.of((i, 2) for i in range(PAIRS))
    found = mix(asked, Sources(None, cf))
    assert found.counts["train"] == 19_499 == int(0.56 * 34_820)
    assert found.counts["validation"] in (4_873, 4_874, 4_875)
    used = {row // 2 for _, row in (*found.train.tolist(), *found.validation.tolist())}
    assert PAIRS - len(used) == 5_223
    at_random = mix(
        DataSettings(None, "cf", cf_ratio=1, counterfactual_holdout=0.3, seed=9, split="random"),
        Sources(None, cf),
    )
    again = {row // 2 for _, row in (*at_random.train.tolist(), *at_random.validation.tolist())}
    assert again == used


def test_real_rows_of_withheld_groups_are_kept_out_too():
    real, cf = photos(400), pairs(400)
    found = mix(settings_of("all", counterfactual_holdout=0.3), Sources(real, cf))
    used = np.concatenate([found.train, found.validation])
    groups = [
        set(one.groups[used[used[:, 0] == s, 1]].tolist()) for s, one in enumerate((real, cf))
    ]
    assert len(groups[0] | groups[1]) == 70


# Plans keep the members of a pair in a batch, on any ranks.


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


@settings(max_examples=examples(60), deadline=None)
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
