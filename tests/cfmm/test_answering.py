"""Accuracies of basic and counterfactual questions against sums written out one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.cfmm.question_checks import (
    group_accuracies,
    phi_interval,
    whole_groups,
)
from cfaug.stats.choices import accuracies, phi_from_margins

IMAGES = st.lists(
    st.tuples(st.booleans(), st.lists(st.booleans(), min_size=0, max_size=5)),
    min_size=1, max_size=12,
)  # fmt: skip


@given(images=IMAGES)
def test_accuracies_are_those_of_a_slow_count(images):
    found = accuracies(np.array([b for b, _ in images]), [np.array(c) for _, c in images])
    pairs = [(b, c) for b, own in images for c in own]
    assert found.acc_b == pytest.approx(sum(b for b, _ in images) / len(images))
    strict = sum(1 for b, own in images if b and all(own))
    assert found.strict == pytest.approx(strict / len(images))
    if not pairs:
        assert math.isnan(found.acc_c)
        assert math.isnan(found.acc_plus)
        return
    assert found.acc_c == pytest.approx(sum(c for _, c in pairs) / len(pairs))
    assert found.acc_plus == pytest.approx(sum(b and c for b, c in pairs) / len(pairs))
    assert found.drop == pytest.approx(found.acc_b - found.acc_c)
    of_right = [c for b, c in pairs if b]
    if of_right:
        assert found.consistency == pytest.approx(sum(of_right) / len(of_right))
    else:
        assert math.isnan(found.consistency)
    first, second = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    if first.std() and second.std():
        assert found.phi == pytest.approx(np.corrcoef(first, second)[0, 1])
    else:
        assert math.isnan(found.phi)


def test_the_printed_correlations_follow_from_the_printed_fractions():
    """Qwen-VL 0-shot, the totals of Table 3 over six categories, as worked out by hand."""
    assert phi_from_margins(4.8365 / 6, 3.4110 / 6, 2.6286 / 6) == pytest.approx(-0.1029, abs=1e-4)


@given(bits=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=8))
def test_groups_are_counted_as_naturalbench_does(bits):
    right = np.array(bits).reshape(-1, 2, 2)
    found = group_accuracies(right)
    groups = len(right)
    questions = images = whole = 0
    for group in right.tolist():
        (q0i0, q0i1), (q1i0, q1i1) = group
        questions += (q0i0 and q0i1) + (q1i0 and q1i1)
        images += (q0i0 and q1i0) + (q0i1 and q1i1)
        whole += q0i0 and q0i1 and q1i0 and q1i1
    assert found["q_acc"] == pytest.approx(questions / (2 * groups))
    assert found["i_acc"] == pytest.approx(images / (2 * groups))
    assert found["g_acc"] == pytest.approx(whole / groups)


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match="2 questions x 2 images"):
        group_accuracies(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="1 images have 0"):
        accuracies(np.array([1]), [])


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, math.nan]), st.sampled_from(["a", "b", None])))
)
@settings(max_examples=50, deadline=None)
def test_groups_are_whole_as_plain_loops_say(answers):
    right, groups = [value for value, _ in answers], [name for _, name in answers]
    expected = [math.nan] * len(answers)
    for name in ("a", "b"):
        own = [value for value, group in answers if group == name]
        if own and not any(math.isnan(value) for value in own):
            expected[groups.index(name)] = float(all(value == 1 for value in own))
    np.testing.assert_equal(whole_groups(np.array(right, dtype=float), groups), expected)


def test_the_interval_of_phi_is_that_of_resampled_clusters():
    rng = np.random.default_rng(5)
    basic = rng.random(60) < 0.7
    own = [rng.random(rng.integers(1, 5)) < (0.3 if b else 0.7) for b in basic]
    clusters = rng.integers(0, 25, size=60)
    low, high = phi_interval(basic, own, clusters, np.random.default_rng(0), resamples=4000)
    names, slow = np.unique(clusters), []
    for _ in range(1500):
        rows = np.concatenate(
            [np.flatnonzero(clusters == c) for c in rng.choice(names, len(names))]
        )
        slow.append(accuracies(basic[rows], [own[row] for row in rows]).phi)
    expected = np.nanquantile(slow, [0.025, 0.975])
    assert [low, high] == pytest.approx(expected, abs=0.04)
    assert low < accuracies(basic, own).phi < high < 0


def test_phi_has_no_interval_with_one_cluster_or_equal_answers():
    basic, own = np.array([1, 1, 0]), [np.array([1, 0])] * 3
    for some, clusters in ((basic, ["a"] * 3), (np.ones(3), ["a", "b", "c"])):
        assert np.isnan(phi_interval(some, own, clusters, np.random.default_rng(0))).all()
