"""The records of generation and evaluation refuse what no later stage could use."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import Edited, Evaluation, Example, Outcome, Proposal, SourceImage
from tests.records import Photo, example, proposal

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


def test_an_example_may_be_an_image_alone_but_not_nothing():
    photo = Photo(b"x")
    assert isinstance(photo, SourceImage)
    found = Example("k", "g", (), photo)
    with pytest.raises(UserError, match=r"'k' has no text.*annotator"):
        _ = found.text
    with pytest.raises(UserError, match="neither a text nor an image"):
        Example("k", "g", ())


def test_a_string_is_not_taken_for_a_tuple_of_letters():
    with pytest.raises(UserError, match="tuple of strings"):
        Example("k", "g", "a cat")
    with pytest.raises(UserError, match="tuple of strings"):
        Proposal(example("a cat"), "a dog", (None,))


def test_every_text_of_a_proposal_has_its_entry_of_edits():
    assert proposal(["a cat"]).edits == (None,)
    with pytest.raises(UserError, match="2 texts and 1 edits"):
        proposal(["a cat", "a dog"], [None])
    with pytest.raises(UserError, match="1 texts and 2 details"):
        Proposal(example("a cat"), ("a cat",), (None,), details=({}, {}))
    with pytest.raises(UserError, match="at least one text"):
        Proposal(example("a cat"), (), ())


def test_several_proposals_of_an_example_are_numbered():
    one = example("a cat", "photo7", "photos")
    alone = Edited((Proposal(one, ("a cat",), (None,)),))
    assert [p.key for p in alone.proposals] == ["photo7"]
    several = Edited(
        (
            Proposal(one, ("a cat",), (None,)),
            Proposal(one, ("a dog",), (None,), key="mine"),
            Proposal(one, ("a cow",), (None,)),
        )
    )
    assert [p.key for p in several.proposals] == ["photo7-0", "mine", "photo7-2"]
    assert {p.group for p in several.proposals} == {"photos"}
    with pytest.raises(UserError, match="duplicated keys: a, a"):
        Edited(tuple(Proposal(one, (text,), (None,), key="a") for text in ("a cat", "a dog")))


def test_the_stage_that_left_nothing_is_named():
    assert Edited((), {"words": 3, "similarity": 0, "choice": 0}).rejected_by == "similarity"
    assert Edited((), {"words": 3}).rejected_by == "nothing chosen"
    assert Edited((proposal(["a cat"]),), {"words": 0}).rejected_by is None
