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
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.settings import PlanData, RatioData, Sources
from tests.data.making import Columns
from tests.data.planned import PAIRS, half_up, keyed
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
    kind = PlanData if "plan" in more else RatioData
    asked = kind(real and "real", "cf", **given_)
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
        assert RatioData("a", "b", holdout=nothing).holdout == 0
    for wrong in (1, -0.1, "x", True):
        with pytest.raises(UserError, match=r"data\.holdout=.* should be a number in \[0, 1\)"):
            RatioData("a", "b", holdout=wrong)


# Sets that are withheld.


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


# The withheld third of Table 5.


def test_the_papers_withheld_split():
    """COCO-CFs, A.1: of 34,820 rows 30 % test, 56 % train, 14 % validate."""
    asked = RatioData(None, "cf", cf_ratio=1, counterfactual_holdout=0.3, seed=108)
    cf = Columns.of((i, 2) for i in range(PAIRS))
    mixture = mix(asked, Sources(None, cf))
    assert mixture.counts["train"] == 19_499 == int(0.56 * 34_820)
    assert mixture.counts["validation"] in (4_873, 4_874, 4_875)
    used = {row // 2 for _, row in (*mixture.train.tolist(), *mixture.validation.tolist())}
    assert PAIRS - len(used) == 5_223
