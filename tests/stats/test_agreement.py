"""Agreement: published worked examples, and slow twins that count pairs of answers one by one."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.stats.agreement import fleiss_kappa, krippendorff_alpha

DIAGNOSES = [  # Fleiss (1971), table 1: 30 patients, 6 psychiatrists, 5 diagnoses
    [0, 0, 0, 6, 0], [0, 3, 0, 0, 3], [0, 1, 4, 0, 1], [0, 0, 0, 0, 6], [0, 3, 0, 3, 0],
    [2, 0, 4, 0, 0], [0, 0, 4, 0, 2], [2, 0, 3, 1, 0], [2, 0, 0, 4, 0], [0, 0, 0, 0, 6],
    [1, 0, 0, 5, 0], [1, 1, 0, 4, 0], [0, 3, 3, 0, 0], [1, 0, 0, 5, 0], [0, 2, 0, 3, 1],
    [0, 0, 5, 0, 1], [3, 0, 0, 1, 2], [5, 1, 0, 0, 0], [0, 2, 0, 4, 0], [1, 0, 2, 0, 3],
    [0, 0, 0, 0, 6], [0, 1, 0, 5, 0], [0, 2, 0, 1, 3], [2, 0, 0, 4, 0], [1, 0, 0, 4, 1],
    [0, 5, 0, 1, 0], [4, 0, 0, 0, 2], [0, 2, 0, 4, 0], [1, 0, 5, 0, 0], [0, 0, 0, 0, 6],
]  # fmt: skip
_ = None
OBSERVERS = [  # Krippendorff (2011), section C: 4 observers of 12 units, answers missing
    [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
    [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
]
UNITS = list(zip(*OBSERVERS, strict=True))


def test_fleiss_own_example():
    assert fleiss_kappa(DIAGNOSES) == pytest.approx(0.430, abs=5e-4)


@pytest.mark.parametrize(
    ("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_krippendorffs_own_example(level, alpha):
    assert krippendorff_alpha(UNITS, level) == pytest.approx(alpha, abs=5e-4)


def slow_fleiss(answers):
    """Count agreeing pairs of raters, and the chance that two answers drawn from all agree."""
    pairs = [[a == b for a, b in permutations(item, 2)] for item in answers]
    observed = sum(sum(p) / len(p) for p in pairs) / len(pairs)
    pool = [answer for item in answers for answer in item]
    chance = sum((pool.count(value) / len(pool)) ** 2 for value in set(pool))
    return (observed - chance) / (1 - chance)


def slow_alpha(units, level):
    """Compare every two answers to a unit, and every two answers there are."""
    kept = [[v for v in unit if v is not None] for unit in units]
    kept = [unit for unit in kept if len(unit) > 1]
    pool = sorted(v for unit in kept for v in unit)

    def apart(a, b):
        if level == "ordinal":
            low, high = sorted((a, b))
            between = sum(low <= v <= high for v in pool)
            return 0.0 if a == b else (between - (pool.count(a) + pool.count(b)) / 2) ** 2
        return float(a != b) if level == "nominal" else (a - b) ** 2

    observed = sum(
        sum(apart(a, b) for a, b in permutations(unit, 2)) / (len(unit) - 1) for unit in kept
    ) / len(pool)
    expected = sum(apart(a, b) for a, b in permutations(pool, 2)) / len(pool) / (len(pool) - 1)
    return 1 - observed / expected


rated = st.integers(2, 5).flatmap(
    lambda raters: st.lists(
        st.lists(st.integers(0, 3), min_size=raters, max_size=raters), max_size=12
    )
)


@settings(deadline=None)
@given(rated)
def test_fleiss_counts_pairs_of_raters(answers):
    table = [[item.count(value) for value in range(4)] for item in answers]
    kappa = fleiss_kappa(table)
    if len({answer for item in answers for answer in item}) < 2:
        assert math.isnan(kappa)
    else:
        assert kappa == pytest.approx(slow_fleiss(answers), abs=1e-9)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.none() | st.integers(-2, 3), min_size=3, max_size=3), max_size=10),
    st.sampled_from(["nominal", "ordinal", "interval"]),
)
def test_alpha_compares_every_two_answers(units, level):
    alpha = krippendorff_alpha(units, level)
    kept = [[v for v in unit if v is not None] for unit in units]
    if len({v for unit in kept if len(unit) > 1 for v in unit}) < 2:
        assert math.isnan(alpha)
    else:
        assert alpha == pytest.approx(slow_alpha(units, level), abs=1e-9)


@pytest.mark.parametrize("table", [[[3, 0], [1, 1]], [[1, 0]], [[4, -1]], [3, 0]])
def test_a_table_that_is_none_is_refused(table):
    with pytest.raises(ValueError, match=r"raters|counts"):
        fleiss_kappa(table)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="nominal, ordinal, interval"):
        krippendorff_alpha([[1, 2]], "ratio")
