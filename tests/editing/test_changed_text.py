"""The proposal of a caption and what became of it."""

from __future__ import annotations

import pytest

from cfaug.core.types import Edit, Example
from cfaug.editing.protocols import EMPTY, propose_change

CHANGE = {"operation": "replace", "before": "red", "after": "blue"}


def proposed(text: str, changed: str, **settings):
    example = Example("k", "g", (text,))
    return propose_change(example, changed, "kind", changes=[CHANGE], reason="why", **settings)


def test_a_changed_text_has_an_edit_and_its_changes() -> None:
    edited = proposed("  a red\n ball ", "a blue  ball")
    (one,) = edited.proposals
    assert one.texts == ("a red ball", "a blue ball")
    assert one.edits == (None, Edit("kind", "red", "blue"))
    assert one.details == ({}, {"changes": [CHANGE]})
    assert one.extra == {"raw": "  a red\n ball "}
    assert edited.survivors == {"changed": 1}


def test_an_unchanged_text_says_why_and_has_no_changes() -> None:
    edited = proposed("a red ball", " a red ball")
    (one,) = edited.proposals
    assert one.texts == ("a red ball", "a red ball")
    assert one.edits == (None, None)
    assert one.details[1] == {"changes": [], "reason": "why"}
    assert edited.survivors == {"changed": 0}
    left_out = proposed("a red ball", "a red ball", keep_unchanged=False)
    assert left_out.proposals == ()
    assert left_out.rejected_by == "why"


@pytest.mark.parametrize(("text", "changed"), [(" \n", "a"), ("a", " ")])
def test_an_empty_text_has_no_proposal(text: str, changed: str) -> None:
    assert proposed(text, changed).rejected_by == EMPTY


def test_texts_that_the_word_difference_finds_equal_still_have_an_edit() -> None:
    """Case alone, as where a swap of "A" and "a" changes the text."""
    (one,) = proposed("A cat on a mat", "a cat on A mat").proposals
    assert one.edits[1] == Edit("kind", "A cat on a mat", "a cat on A mat")
