"""Groups whose keys agree, in part or wholly: none of them is both trained and validated on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.data.mixture import leakage, pool, records
from cfaug.data.mixture.mixture import plan_mixture
from cfaug.data.mixture.records import is_among, random_keys
from tests.data.making import Columns
from tests.properties import examples

FEW_BITS = np.uint64(0xC000_0000_0000_0000)
"""The bits of a key that a collision leaves: four values."""


def collide_in_part(codes, seed, *names):
    """Keys that differ in the lowest bits alone, which the sort of rows leaves out."""
    found = random_keys(codes, seed, *names)
    return (found & FEW_BITS) | (found & np.uint64(0b111))


def collide_wholly(codes, seed, *names):
    return random_keys(codes, seed, *names) & FEW_BITS


def unmix(key, stream):
    """Undo SplitMix64's finaliser."""
    for shift, factor in ((31, 0x319642B2D24D8EC3), (27, 0x96DE1B173F119089), (30, 1)):
        key ^= (key >> shift) ^ (key >> 2 * shift)
        key = key * factor % 2**64
    return key ^ stream


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32))
def test_no_two_codes_have_one_key(code, seed):
    (key,) = random_keys(np.array([code], np.uint64), seed, "mixture").tolist()
    assert unmix(key, records.derive(seed, "mixture")) == code


@given(st.lists(st.integers(0, 30), max_size=20), st.lists(st.integers(0, 30), max_size=20))
def test_what_is_searched_need_not_be_sorted(some, others):
    found = is_among(np.array(some, np.uint64), np.array(others, np.uint64))
    assert found.tolist() == [one in others for one in some]


sizes = st.lists(st.integers(1, 4), min_size=8, max_size=25)


@pytest.mark.parametrize("collide", [collide_in_part, collide_wholly])
@settings(max_examples=examples(150), deadline=None)
@given(real=sizes, cf=sizes, ratio=st.sampled_from([0, 0.3, 0.5, 1]), seed=st.integers(0, 99))
def test_no_group_is_parted(collide, real, cf, ratio, seed):
    sources = Columns.of(enumerate(real)), Columns.of(enumerate(cf))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "random_keys", collide)
        try:
            found = plan_mixture(*sources, cf_ratio=ratio, size=None, seed=seed, validation=0.4)
        except pool.UserError:
            return  # nothing is left to validate on
    sides = [
        {int(sources[source].groups[row]) for source, row in rows.tolist()}
        for rows in (found.train, found.validation)
    ]
    assert not sides[0] & sides[1]
    drawn = [tuple(one) for one in (*found.train.tolist(), *found.validation.tolist())]
    assert len(set(drawn)) == len(drawn)
    assert found.counts["train"] == int(0.6 * found.size + 1e-9)


def test_groups_that_only_collide_in_part_are_told_apart():
    """Where the cut falls between two groups, the second may still be validated on."""
    source = Columns.of((group, 2) for group in range(40))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "random_keys", collide_in_part)
        found = plan_mixture(source, None, cf_ratio=0, size=None, seed=3, validation=0.5)
    assert len(found.train) == 40
    assert len(found.validation) > 20


@pytest.mark.parametrize("collide", [collide_in_part, collide_wholly])
def test_held_out_groups_are_whole(collide):
    source = Columns.of((group % 37, 2) for group in range(200))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leakage, "random_keys", collide)
        for kept_out in (leakage.hold_out(source, 0.3), leakage.withhold(source, 0.3)):
            allowed = kept_out.find_allowed(source.groups)
            inside = set(source.groups[~allowed].tolist())
            assert inside == set(source.groups[kept_out.rows].tolist())
            assert not inside & set(source.groups[allowed].tolist())
