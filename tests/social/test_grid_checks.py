"""A set is right when it has every combination once: against plain enumeration."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from cfaug.social.grid_sets import find_mistake

VALUES = {"race": ("White", "Black", "Latino"), "gender": ("male", "female")}
EVERY = [dict(zip(VALUES, one, strict=True)) for one in product(*VALUES.values())]
MEMBER = st.one_of(
    st.sampled_from(EVERY),
    st.fixed_dictionaries(
        {"race": st.sampled_from(["White", "Blue"]), "gender": st.sampled_from(["male", "other"])}
    ),
    st.just({"race": "White"}),
)


@given(st.one_of(st.permutations(EVERY), st.lists(MEMBER, min_size=1, max_size=8)))
def test_only_one_image_for_each_combination_is_no_mistake(members):
    def cells(some):
        return sorted(tuple(sorted(one.items())) for one in some)

    right = cells(members) == cells(EVERY)
    assert (find_mistake(members, VALUES) is None) == right


@given(st.lists(st.sampled_from(EVERY), min_size=1, max_size=5, unique_by=str))
def test_what_is_missing_is_counted_and_named(members):
    said = find_mistake(members, VALUES)
    assert said.startswith(f"incomplete: {6 - len(members)} of 6 missing, such as '")
    named = said.rpartition("such as ")[2].strip("'")
    assert named in {" ".join(one.values()) for one in EVERY if one not in members}
