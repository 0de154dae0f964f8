"""Plans keep the members of a pair in a batch, on any ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.data.mixture.loader import TrainingShares
from cfaug.data.mixture.order import epoch_order, split_sets
from cfaug.data.mixture.records import COUNTERFACTUAL
from tests.data.making import Columns
from tests.data.planned import Validated, mixed, pairs, photos, settings_of
from tests.properties import examples


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
