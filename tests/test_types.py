"""The records that benchmarks return."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import Evaluation, Outcome

ONE = Outcome("b", "m", 0.5, 2)


def test_an_outcome_says_its_direction_and_its_part():
    assert (ONE.better, ONE.unit, dict(ONE.by)) == ("higher", "fraction", {})
    skew = Outcome("b", "skew", 1.5, 2, better="lower", unit="nats", by={"edit": "colour"})
    assert skew != Outcome("b", "skew", 1.5, 2, better="lower", unit="nats", by={"edit": "size"})
    with pytest.raises(UserError, match="better='less' is invalid: choose higher or lower"):
        Outcome("b", "m", 0.5, 2, better="less")
    with pytest.raises(UserError, match="by="):
        Outcome("b", "m", 0.5, 2, by={"edit": 3})


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ({"item": ["a"], "m": [1.0]}, "lack the column 'cluster'"),
        ({"cluster": ["a"], "m": [1.0]}, "lack the column 'item'"),
        ({"item": ["a", "b"], "cluster": ["a", "b"], "m": [1.0]}, "differ in length"),
    ],
)
def test_items_that_do_not_fit_are_refused(items, said):
    with pytest.raises(UserError, match=said):
        Evaluation([ONE], items)


def test_rankings_have_rows_of_their_own_and_names_as_items_have():
    items = {"item": ["a"], "cluster": ["a"]}
    found = Evaluation([ONE], items, {"item": ["x", "y"], "cluster": ["a", "a"]})
    assert len(found.rankings["item"]) == 2
    assert not Evaluation([ONE], items).rankings
    with pytest.raises(UserError, match="the rankings lack the column 'cluster'"):
        Evaluation([ONE], items, {"item": ["x"]})


def test_an_evaluation_has_an_outcome():
    with pytest.raises(UserError, match="without outcomes"):
        Evaluation([], {"item": [], "cluster": []})
