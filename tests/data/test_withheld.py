from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.rng import derive
from cfaug.data.mixture.leakage import withhold
from tests.data.making import Columns
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
