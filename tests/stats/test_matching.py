"""Matching gaps against their formulae, one pair at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import wilcoxon

from cfaug.stats.ranking import GAPS, SCORES, gaps, shift, summary

NAMES = [name for names in SCORES.values() for name in names]


@given(arrays(np.float64, (6, 4), elements=st.floats(-50, 50)))
def test_the_papers_four_differences(values):
    scores = dict(zip(NAMES, values, strict=True))
    found = gaps(scores)
    assert list(found) == list(GAPS)
    for i in range(4):

        def g(text, image, i=i):
            return scores[f"G({text},{image})"][i]

        assert found["IR_r"][i] == g("C_r", "I_r") - g("C_r", "I_o")
        assert found["TR_r"][i] == g("C_r", "I_r") - g("C_o", "I_r")
        assert found["IR_c"][i] == g("C_c", "I_c") - g("C_c", "I_o")
        assert found["TR_c"][i] == g("C_c", "I_c") - g("C_o", "I_c")
    for gap in found.values():
        one = summary(gap)
        assert one.below_zero == sum(v < 0 for v in gap) / 4
        assert one.above_zero == sum(v > 0 for v in gap) / 4
        assert one.mean == pytest.approx(np.mean(gap))


def test_without_photographs_there_are_two_gaps_and_a_diverged_model_is_refused():
    half = {name: np.ones(3) for name in SCORES["c"]}
    assert list(gaps(half)) == ["IR_c", "TR_c"]
    half["G(C_c,I_c)"] = np.array([1.0, np.nan, 1.0])
    with pytest.raises(ValueError, match="diverged"):
        gaps(half)


def test_the_shift_is_paired_by_anchor():
    rng = np.random.default_rng(1)
    counterfactual = rng.normal(size=40)
    random = counterfactual + rng.normal(0.3, 1, size=40)
    random[[3, 7]] = np.nan
    found = shift(random, counterfactual)
    both = np.isfinite(random)
    difference = random[both] - counterfactual[both]
    assert found.n == 38
    assert found.mean == pytest.approx(difference.mean())
    assert found.smaller == pytest.approx(np.mean(counterfactual[both] < random[both]))
    assert found.p == pytest.approx(wilcoxon(difference, alternative="greater").pvalue)
    with pytest.raises(ValueError, match="value"):
        shift(np.full(3, np.nan), np.ones(3))
