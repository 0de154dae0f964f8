"""One held-out set for every arm: by group, whatever else is drawn, and never drawn itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.coco_cf.mixtures import PaperMixture
from cfaug.core.errors import UserError
from cfaug.data.mixture.leakage import hold_out, withhold
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.settings import DataSettings, Sources
from tests.data.making import Columns
from tests.data.test_withheld import place
from tests.properties import examples

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


REAL = Pictures.of((group, 1) for group in range(60))
PAIRS = Pictures.of((group, 2) for group in range(60))


def mixed(real=REAL, counterfactual=PAIRS, more_real=None, **more: Any):
    given_ = {"seed": 1, "holdout": 0.1, **more}
    asked = DataSettings(real and "real", "cf", **given_)
    needs = asked.needed
    return mix(
        asked, Sources(real if needs[0] else None, counterfactual if needs[1] else None, more_real)
    )


def groups_used(mixture) -> set[int]:
    rows = np.concatenate([mixture.train, mixture.validation])
    return {int(mixture.sources[source].groups[row]) for source, row in rows}


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.sampled_from(SHARES))
def test_equals_the_slow_obvious_choice(groups, share):
    source = Columns.of((group, 1) for group in groups)
    known = sorted(set(groups), key=place)
    wanted = {group for group in known if place(group) <= share * 2**64} | set(known[:2])
    if wanted == set(known):
        with pytest.raises(UserError, match=r"data\.holdout=.* leaves nothing to train on"):
            hold_out(source, share)
        return
    found = hold_out(source, share)
    assert found.groups.tolist() == sorted(wanted)
    assert found.rows.tolist() == [row for row, group in enumerate(groups) if group in wanted]


@settings(max_examples=examples(100), deadline=None)
@given(st.sets(st.integers(0, 10**6), min_size=40, max_size=80), st.data())
def test_a_photo_stays_on_its_side_when_others_come_and_go(groups, data):
    some = data.draw(st.sets(st.sampled_from(sorted(groups)), min_size=30))
    every, part = (hold_out(Columns.of((g, 1) for g in one), 0.3) for one in (groups, some))
    if min(len(every.groups), len(part.groups)) > 2:
        assert set(part.groups.tolist()) == set(every.groups.tolist()) & some


def test_the_share_is_about_what_was_asked_for():
    found = hold_out(Columns.of((group, 1) for group in range(20_000)), 0.1)
    assert 1_800 < len(found.groups) < 2_200


@pytest.mark.parametrize("split", ["group", "random"])
@pytest.mark.parametrize("ratio", [0, 0.3, 0.9, 1])
@pytest.mark.parametrize("more", [{}, {"size": 20}, {"seed": 9}, {"counterfactual_holdout": 0.3}])
def test_every_arm_holds_out_the_same_and_draws_none_of_it(ratio, split, more):
    found = mixed(cf_ratio=ratio, split=split, **more)
    held = found.held_out
    assert held.source is REAL
    assert held.rows.tolist() == hold_out(REAL, 0.1).rows.tolist()
    assert groups_used(found)
    assert not groups_used(found) & set(held.source.groups[held.rows].tolist())
    assert found.counts["held_out"] == found.counts["held_out_images"] == len(held.rows)
    if ratio == 1:
        assert found.sources[0] is None


@pytest.mark.parametrize("plan", ["real", "base", "medium", "all"])
def test_a_plan_draws_none_of_it_either(plan):
    found = mixed(plan=PaperMixture(plan))
    assert not groups_used(found) & set(hold_out(REAL, 0.1).groups.tolist())


@pytest.mark.parametrize(
    "barred", [{"holdout": 0.3}, {"holdout": 0, "counterfactual_holdout": 0.3}]
)
def test_a_control_draws_none_of_it_from_a_source_of_its_own(barred):
    control = Pictures.of((group, 4) for group in range(60))
    more = {"plan": PaperMixture("base"), "control": "real", "control_source": "more", **barred}
    found = mixed(more_real=control, **more)
    assert found.sources[0] is control
    groups = hold_out(REAL, 0.3).groups if barred["holdout"] else withhold(PAIRS, 0.3).groups
    assert len(groups) > 10
    assert not groups_used(found) & set(groups.tolist())


def test_without_a_real_source_the_counterfactual_one_is_held_out_of():
    found = mixed(real=None, cf_ratio=1)
    assert found.held_out.source is PAIRS
    assert found.held_out.rows.tolist() == hold_out(PAIRS, 0.1).rows.tolist()
    assert found.counts["held_out"] == 2 * len(hold_out(REAL, 0.1).groups)


def test_the_same_image_under_another_name_is_not_drawn_nor_what_was_made_of_it():
    held = hold_out(REAL, 0.1)
    contents = list(range(60))
    copy = next(row for row in contents if row not in held.rows)
    contents[copy] = contents[held.rows[0]]
    real = Pictures.of(((group, 1) for group in range(60)), contents=contents)
    found = mixed(real=real, cf_ratio=0.5)
    assert found.held_out.rows.tolist() == held.rows.tolist()
    assert found.held_out.copies == 3  # the photo, and both members of the pair made of it
    assert found.held_out.not_drawn == (1, 2 * len(held.rows) + 2, 0)
    assert not groups_used(found) & {*held.groups.tolist(), copy}


def test_nothing_is_held_out_unless_asked_for():
    for nothing in (0, None):
        found = mixed(cf_ratio=0.5, holdout=nothing)
        assert found.held_out is None
        assert "held_out" not in found.counts
        assert DataSettings("a", "b", holdout=nothing).holdout == 0
    for wrong in (1, -0.1, "x", True):
        with pytest.raises(UserError, match=r"data\.holdout=.* should be a number in \[0, 1\)"):
            DataSettings("a", "b", holdout=wrong)
