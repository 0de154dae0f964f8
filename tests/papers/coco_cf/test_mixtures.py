"""The paper's named data sets: how much of either source, and which rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.mixture.pool import make_pool
from cfaug.data.mixture.records import COUNTERFACTUAL, REAL
from cfaug.papers.coco_cf.mixtures import PaperMixture
from tests.data.making import Columns
from tests.data.planned import PAIRS, REAL_ROWS, apart, floor, half_up, keyed, pairs, photos
from tests.papers.coco_cf.plans import PLANS, VALIDATED, Validated, mixed
from tests.properties import examples

PAPER = {
    "real": (13_928, 0), "base": (6_964, 6_964), "medium": (13_928, 20_892),
    "all": (13_928, 27_856), "human_validated": (13_928, 20_385),
}  # fmt: skip
"""Real and counterfactual rows of train (COCO-CFs, Tables 3 and 11, B.3.1)."""


@pytest.mark.parametrize("plan", PLANS)
def test_the_papers_counts_by_source(plan):
    labels = Validated(VALIDATED) if plan == "human_validated" else None
    mixture = mixed(plan, photos(REAL_ROWS), pairs(PAIRS), labels)
    assert (mixture.counts["real"], mixture.counts["counterfactual"]) == PAPER[plan]
    assert mixture.counts["train"] == {
        "real": 13_928, "base": 13_928, "medium": 34_820, "all": 41_784, "human_validated": 34_313
    }[plan]  # fmt: skip
    # Whole groups: validation may miss the rest of a group that the cut went through.
    share = Decimal(mixture.counts["train"]) / 4
    assert 0 <= share + 1 - mixture.counts["validation"] <= 16
    groups = [
        {int(mixture.sources[s].groups[row]) for s, row in rows.tolist()}
        for rows in (mixture.train, mixture.validation)
    ]
    assert not groups[0] & groups[1]


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


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
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
    mixture = mixed(plan, photos(real), apart(sets), labels, split=split, validation=validation)
    assert mixture.counts["train"] == mixture.counts["total"] == len(mixture.train) == train
    everything = [tuple(row) for row in (*mixture.train.tolist(), *mixture.validation.tolist())]
    assert len(set(everything)) == len(everything) <= n_real + n_cf
    if split == "random":
        assert len(everything) == n_real + n_cf
    else:
        share = half_up(Decimal(n_cf * train) / (n_real + n_cf))
        assert mixture.counts["counterfactual"] == share
        # Groups are apart, at most one of either source is cut, of at most 4 rows.
        assert len(everything) >= n_real + n_cf - 4 - 2


def slow_random(plan: str, real: Columns, cf: Columns) -> tuple[list[Any], list[Any]]:
    """Return (train, validation) of a random split, a row at a time."""
    sets = cf.sets.tolist()
    n_real, n_cf = slow_size(plan, len(real), [sets.count(s) for s in sorted(set(sets))])
    chosen = {
        s: sorted(range(len(columns)), key=lambda row, s=s: keyed(row, 5, "mixture", "rows", s))[:n]
        for s, columns, n in ((REAL, real, n_real), (COUNTERFACTUAL, cf, n_cf))
    }
    if plan == "base":
        order = sorted(set(sets), key=lambda number: keyed(number, 5, "mixture", "sets"))
        kept = set(order[: half_up(Decimal(len(order)) / 4)])
        chosen[COUNTERFACTUAL] = [row for row, number in enumerate(sets) if number in kept]
    rows = [(s, row) for s in (REAL, COUNTERFACTUAL) for row in chosen[s]]
    rows.sort(key=lambda entry: keyed(entry[1], 5, "mixture", "split", entry[0]))
    train = floor(Decimal("0.8") * len(rows))
    return rows[:train], rows[train:]


@settings(max_examples=examples(50), deadline=None)
@given(st.sampled_from(PLANS), st.integers(4, 40), st.integers(4, 40))
def test_a_random_split_equals_the_slow_obvious_one(plan, real, sets):
    sources = photos(real), pairs(sets)
    pool = make_pool(*sources, seed=5, split="random")
    mixture = PaperMixture(plan).draw(pool, 0.2)
    train, held = slow_random(plan, *sources)
    assert {tuple(row) for row in mixture.train.tolist()} == set(train)
    assert {tuple(row) for row in mixture.validation.tolist()} == set(held)
    assert (mixture.train[:, 0] == np.sort(mixture.train[:, 0])).all()


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
    seeds = 200
    for seed in range(seeds):
        mixture = mixed("medium", photos(10), pairs(10), split="random", seed=seed)
        np.add.at(trained, 10 * mixture.train[:, 0] + mixture.train[:, 1], 1)
    real, cf = trained[:10] / seeds, trained[10:] / seeds
    # Real rows train with probability 0.8, counterfactual ones with 0.75 x 0.8; five deviations.
    assert np.abs(real - 0.8).max() < 5 * np.sqrt(0.8 * 0.2 / seeds)
    assert np.abs(cf - 0.6).max() < 5 * np.sqrt(0.6 * 0.4 / seeds)


def test_a_plan_of_next_to_nothing_is_refused():
    with pytest.raises(UserError, match="nothing to train on"):
        mixed("real", photos(1), pairs(1))
    empty = make_pool(None, None, seed=0)
    with pytest.raises(UserError, match="nothing that it could draw"):
        PaperMixture("all").draw(empty, 0.2)
    with pytest.raises(UserError, match="no group is left"):
        mixed("real", photos(100, captions=100), pairs(1))
