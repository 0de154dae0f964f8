"""A budget divided in proportion, within bounds, to the last image."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.repair.choice import allocate

PARTS = st.lists(
    st.tuples(st.integers(-1, 50).map(lambda x: x / 10), st.integers(0, 40)), max_size=8
)


@given(PARTS, st.integers(0, 120), st.integers(0, 9))
def test_bounds_hold_and_nothing_is_left_that_could_be_placed(parts, total, least):
    weights, limits = [weight for weight, _ in parts], [limit for _, limit in parts]
    counts = allocate(weights, total, least=least, limits=limits)
    assert len(counts) == len(parts)
    assert sum(counts) <= total
    for weight, limit, count in zip(weights, limits, counts, strict=True):
        assert count == 0 or (least <= count <= limit and weight > 0)
    able = [i for i in range(len(parts)) if weights[i] > 0 and limits[i] >= max(least, 1)]
    if total - sum(counts) >= max(least, 1):
        assert all(counts[i] == limits[i] for i in able)
    for i in able:
        for j in able:
            if weights[i] > weights[j] and limits[i] >= limits[j]:
                assert counts[i] >= counts[j]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 100))
def test_without_bounds_it_is_the_largest_remainder(weights, total):
    counts = allocate(weights, total, least=0, limits=[total] * len(weights))
    whole = sum(weights)
    slow = [total * weight // whole for weight in weights]
    while sum(slow) < total:
        gaps = [Fraction(total * w, whole) - n for w, n in zip(weights, slow, strict=True)]
        slow[gaps.index(max(gaps))] += 1
    assert counts == slow
    for weight, count in zip(weights, counts, strict=True):
        assert abs(count - total * weight / whole) < 1


@pytest.mark.parametrize(
    ("weights", "total", "limits", "counts"),
    [
        ([9, 1], 100, [50, 50], [50, 50]),  # what one cannot take goes to the other
        ([9, 1], 100, [25, 25], [25, 25]),  # and what none can take is returned
        ([1, 1, 1], 20, [20, 20, 20], [10, 10, 0]),  # too little for three: the first two
        ([1, 0, -1], 20, [20, 20, 20], [20, 0, 0]),
        ([1, 1], 20, [7, 20], [0, 20]),
    ],
)
def test_examples(weights, total, limits, counts):
    assert allocate(weights, total, least=8, limits=limits) == counts
