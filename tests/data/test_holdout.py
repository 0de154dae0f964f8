"""Held out for every arm, or withheld of the sets: by group, and never drawn from."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.mixture.leakage import hold_out, withhold
from cfaug.data.mixture.loader import TrainingShares
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.records import COUNTERFACTUAL, REAL
from cfaug.data.mixture.settings import DataSettings, Sources
from cfaug.papers.coco_cf.mixtures import PaperMixture
from tests.data.making import Columns
from tests.data.planned import (
    PAIRS,
    REAL_ROWS,
    half_up,
    keyed,
    mixed,
    pairs,
    photos,
    settings_of,
)
from tests.properties import examples


def place(group: int) -> int:
    """Return where a group stands in the order in which groups are held out."""
    return keyed(group, 0, "withheld")


SHARES = (0.05, 0.1, 0.3, 0.5)


class Pictures(Columns):
    """Columns whose every row shows an image of its own, by its number."""

    @property
    def images(self) -> np.ndarray:
        return np.arange(len(self))

    def text(self, row: int) -> str:
        return f"caption {self.groups[row]}"

    def key(self, row: int) -> str:
        return f"{self.sets[row]}_0"


PICTURES = Pictures.of((group, 1) for group in range(60))
EDITS = Pictures.of((group, 2) for group in range(60))


def with_holdout(real=PICTURES, counterfactual=EDITS, more_real=None, **more: Any):
    given_ = {"seed": 1, "holdout": 0.1, **more}
    asked = DataSettings(real and "real", "cf", **given_)
    needs = asked.needed
    return mix(
        asked, Sources(real if needs[0] else None, counterfactual if needs[1] else None, more_real)
    )


def groups_used(mixture) -> set[int]:
    rows = np.concatenate([mixture.train, mixture.validation])
    return {int(mixture.sources[source].groups[row]) for source, row in rows}


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.sampled_from(SHARES))
def test_what_is_held_out_equals_the_slow_obvious_choice(groups, share):
    source = Columns.of((group, 1) for group in groups)
    known = sorted(set(groups), key=place)
    wanted = {group for group in known if place(group) <= share * 2**64} | set(known[:2])
    if wanted == set(known):
        with pytest.raises(UserError, match=r"data\.holdout=.* leaves nothing to train on"):
            hold_out(source, share)
        return
    withheld = hold_out(source, share)
    assert withheld.groups.tolist() == sorted(wanted)
    assert withheld.rows.tolist() == [row for row, group in enumerate(groups) if group in wanted]


@pytest.mark.parametrize("split", ["group", "random"])
@pytest.mark.parametrize("ratio", [0, 0.3, 0.9, 1])
@pytest.mark.parametrize("more", [{}, {"size": 20}, {"seed": 9}, {"counterfactual_holdout": 0.3}])
def test_every_arm_holds_out_the_same_and_draws_none_of_it(ratio, split, more):
    mixture = with_holdout(cf_ratio=ratio, split=split, **more)
    held = mixture.held_out
    assert held.source is PICTURES
    assert held.rows.tolist() == hold_out(PICTURES, 0.1).rows.tolist()
    assert groups_used(mixture)
    assert not groups_used(mixture) & set(held.source.groups[held.rows].tolist())
    assert mixture.counts["held_out"] == mixture.counts["held_out_images"] == len(held.rows)
    if ratio == 1:
        assert mixture.sources[0] is None


@pytest.mark.parametrize("plan", ["real", "base", "medium", "all"])
def test_a_plan_draws_none_of_it_either(plan):
    mixture = with_holdout(plan=PaperMixture(plan))
    assert not groups_used(mixture) & set(hold_out(PICTURES, 0.1).groups.tolist())


@pytest.mark.parametrize(
    "barred", [{"holdout": 0.3}, {"holdout": 0, "counterfactual_holdout": 0.3}]
)
def test_a_control_draws_none_of_it_from_a_source_of_its_own(barred):
    control = Pictures.of((group, 4) for group in range(60))
    more = {"plan": PaperMixture("base"), "control": "real", "control_source": "more", **barred}
    mixture = with_holdout(more_real=control, **more)
    assert mixture.sources[0] is control
    groups = hold_out(PICTURES, 0.3).groups if barred["holdout"] else withhold(EDITS, 0.3).groups
    assert len(groups) > 10
    assert not groups_used(mixture) & set(groups.tolist())


def test_without_a_real_source_the_counterfactual_one_is_held_out_of():
    mixture = with_holdout(real=None, cf_ratio=1)
    assert mixture.held_out.source is EDITS
    assert mixture.held_out.rows.tolist() == hold_out(EDITS, 0.1).rows.tolist()
    assert mixture.counts["held_out"] == 2 * len(hold_out(PICTURES, 0.1).groups)


def test_the_same_image_under_another_name_is_not_drawn_nor_what_was_made_of_it():
    held = hold_out(PICTURES, 0.1)
    contents = list(range(60))
    copy = next(row for row in contents if row not in held.rows)
    contents[copy] = contents[held.rows[0]]
    real = Pictures.of(((group, 1) for group in range(60)), contents=contents)
    mixture = with_holdout(real=real, cf_ratio=0.5)
    assert mixture.held_out.rows.tolist() == held.rows.tolist()
    assert mixture.held_out.copies == 3  # the photo, and both members of the pair made of it
    assert mixture.held_out.not_drawn == (1, 2 * len(held.rows) + 2, 0)
    assert not groups_used(mixture) & {*held.groups.tolist(), copy}


def test_nothing_is_held_out_unless_asked_for():
    for nothing in (0, None):
        mixture = with_holdout(cf_ratio=0.5, holdout=nothing)
        assert mixture.held_out is None
        assert "held_out" not in mixture.counts
        assert DataSettings("a", "b", holdout=nothing).holdout == 0
    for wrong in (1, -0.1, "x", True):
        with pytest.raises(UserError, match=r"data\.holdout=.* should be a number in \[0, 1\)"):
            DataSettings("a", "b", holdout=wrong)


# Sets that are withheld, what a plan is held against, and pairs that stay in a batch.


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), min_size=1, max_size=40),
    st.sampled_from((0.1, 0.3, 0.5, 0.29, 0.9)),
)
def test_what_is_withheld_equals_the_slow_obvious_choice(sets, share):
    source = Columns.of(sets)
    wanted = half_up(Decimal(repr(share)) * len(sets))
    if not 0 < wanted < len(sets):
        with pytest.raises(UserError, match=r"data\.counterfactual_holdout"):
            withhold(source, share)
        return
    order = sorted(range(len(sets)), key=lambda number: (place(sets[number][0]), number))
    chosen = set(order[:wanted])
    withheld = withhold(source, share)
    assert withheld.rows.tolist() == [r for r, s in enumerate(source.sets.tolist()) if s in chosen]
    groups = {sets[number][0] for number in chosen}
    assert withheld.groups.tolist() == sorted(groups)
    assert withheld.find_allowed(source.groups).tolist() == [
        g not in groups for g in source.groups.tolist()
    ]


# What a plan is held against: controls of its size, and a test set it never sees.


@pytest.mark.parametrize("split", ["group", "random"])
@pytest.mark.parametrize(("plan", "train"), [("base", 13_928), ("real", 13_928)])
def test_a_control_has_as_many_training_rows_of_one_source(plan, train, split):
    for control, source in (("real", REAL), ("counterfactual", COUNTERFACTUAL)):
        if plan == "real" and control == "counterfactual":
            continue  # the plan reads no counterfactual source
        mixture = mixed(plan, photos(REAL_ROWS), pairs(PAIRS), control=control, split=split)
        assert mixture.counts["train"] == train
        assert (mixture.train[:, 0] == source).all()
        assert (mixture.validation[:, 0] == source).all()
        assert mixture.sources[1 - source] is None
        assert 0 < mixture.counts["validation"] <= 3_483


def test_a_control_draws_from_a_larger_source_where_its_own_is_too_small():
    with pytest.raises(UserError, match=r"34820 training.*17410: .*data\.control_source"):
        mixed("medium", photos(REAL_ROWS), pairs(PAIRS), control="real")
    with pytest.raises(UserError, match=r"34820 training.*validate on; there are 34820"):
        mixed("medium", photos(REAL_ROWS), pairs(PAIRS), control="counterfactual")
    more = photos(50_000)
    mixture = mix(
        settings_of("medium", control="real", control_source="more"),
        Sources(photos(REAL_ROWS), pairs(PAIRS), more),
    )  # fmt: skip
    assert mixture.counts == {
        "real": 34_820, "counterfactual": 0, "total": 34_820, "train": 34_820,
        "validation": 8_705, "dropped": 0,
    }  # fmt: skip
    assert mixture.sources == (more, None)


# The withheld third of Table 5, and validated rows.


def test_the_papers_withheld_split():
    """COCO-CFs, A.1: of 34,820 rows 30 % test, 56 % train, 14 % validate."""
    asked = DataSettings(None, "cf", cf_ratio=1, counterfactual_holdout=0.3, seed=108)
    cf = Columns.of((i, 2) for i in range(PAIRS))
    mixture = mix(asked, Sources(None, cf))
    assert mixture.counts["train"] == 19_499 == int(0.56 * 34_820)
    assert mixture.counts["validation"] in (4_873, 4_874, 4_875)
    used = {row // 2 for _, row in (*mixture.train.tolist(), *mixture.validation.tolist())}
    assert PAIRS - len(used) == 5_223


def test_real_rows_of_withheld_groups_are_kept_out_too():
    real, cf = photos(400), pairs(400)
    mixture = mix(settings_of("all", counterfactual_holdout=0.3), Sources(real, cf))
    used = np.concatenate([mixture.train, mixture.validation])
    groups = [
        set(source.groups[used[used[:, 0] == s, 1]].tolist()) for s, source in enumerate((real, cf))
    ]
    assert len(groups[0] | groups[1]) == 70


# Plans keep the members of a pair in a batch, on any ranks.


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
    mixture = mixed(plan, real, Columns.of((i // 2, 2) for i in range(60)), split=split)
    asked = settings_of(plan, batch_size=batch_size, pairs_in_batch=True)
    steps = asked.steps_per_epoch(len(mixture.train))
    first = epoch * steps + min(start, steps - 1)
    arguments = {"seed": 107, "data_seed": 108, "total_steps": (epoch + 1) * steps}
    shares = [
        list(TrainingShares(mixture, asked, start_step=first, rank=rank, world=world, **arguments))
        for rank in range(world)
    ]
    whole = list(TrainingShares(mixture, asked, start_step=epoch * steps, **arguments))
    order = np.concatenate([share.rows for share in whole])
    assert sorted(map(tuple, order.tolist())) == sorted(map(tuple, mixture.train.tolist()))
    batches: dict[int, set[int]] = {}
    for step, share in enumerate(whole):
        for source, row in share.rows.tolist():
            if source == COUNTERFACTUAL:
                batches.setdefault(row // 2, set()).add(step)
    # An odd batch that pairs alone must fill has no room for its last.
    singles = mixture.counts["real"] + sum(
        list(order[order[:, 0] == COUNTERFACTUAL, 1] // 2).count(s) == 1 for s in batches
    )
    parted = sum(len(steps_of) > 1 for steps_of in batches.values())
    assert parted <= max(1, steps - singles)
    for at, share in enumerate(whole[first - epoch * steps :]):
        together = np.concatenate([rank_shares[at].rows for rank_shares in shares])
        assert np.array_equal(together, share.rows)
        assert all(np.array_equal(rank_shares[at].whole, share.rows) for rank_shares in shares)
