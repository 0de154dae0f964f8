"""The records of generation refuse what no later stage could use, at the place where it is made."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import Edited, Example, Proposal, SourceImage
from tests.records import Photo, example, proposal


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
