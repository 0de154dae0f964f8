"""Which words of two captions are marked as changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.types import Edit, Member
from cfaug.report.gallery import mark_changes


def marks(first: str, second: str, edit: tuple[str, str] | None, same: bool = False) -> list:
    a = Member(first, "0", "s")
    b = Member(second, "0" if same else "1", "s", Edit("noun", *edit) if edit else None)
    return [mark_changes((a, b), 0)[1::2], mark_changes((a, b), 1)[1::2]]


@pytest.mark.parametrize(
    ("first", "second", "edit", "expected"),
    [
        ("a red cat", "a red dog", ("cat", "dog"), [["cat"], ["dog"]]),
        ("A Cat sat", "A Fire  Truck sat", ("cat", "fire truck"), [["Cat"], ["Fire  Truck"]]),
        ("an owl", "a cat", ("owl", "cat"), [["owl"], ["cat"]]),  # not the article
        ("a cat, a cat", "a cat, a dog", ("cat", "dog"), [["cat"], ["dog"]]),
        ("a concatenated cat", "a concatenated dog", ("cat", "dog"), [["cat"], ["dog"]]),
        ("a cat", "a dog", ("horse", "cow"), [["cat"], ["dog"]]),  # the edit says something else
        ("a cat", "a dog", None, [["cat"], ["dog"]]),
        ("a cat", "a fat cat", ("", "fat"), [[], ["fat"]]),
        ("a cat (2*)", "a cat (3+)", ("(2*)", "(3+)"), [["(2*)"], ["(3+)"]]),
        ("a cat", "a cat", ("x", "y"), [[], []]),
    ],
)
def test_changed_words_are_marked(first, second, edit, expected) -> None:
    assert marks(first, second, edit) == expected


def test_captions_of_one_image_are_not_edits() -> None:
    assert marks("a cat", "the tabby sleeps", None, same=True) == [[], []]


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=8), st.text(max_size=8))
def test_pieces_are_the_caption(first: str, second: str, before: str, after: str) -> None:
    pair = (Member(first, "0", "s"), Member(second, "1", "s", Edit("noun", before, after)))
    for i, text in enumerate((first, second)):
        pieces = mark_changes(pair, i)
        assert "".join(pieces) == text
        assert len(pieces) % 2 == 1
        assert all(pieces[1::2])
