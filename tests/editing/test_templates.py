"""Attribute grids: every combination once, articles right, mistakes named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.core.words import right_articles
from cfaug.editing.caption_grids import AttributeGrid, fill, placeholders
from tests.records import example

RACE = ["White", "Indian", "Middle Eastern"]
GENDER = ["male", "female"]


def grid_example(text="a photo of a {race} {gender} Barber", **attributes):
    attributes = attributes or {"race": RACE, "gender": GENDER}
    said = {
        name: values if isinstance(values, dict) else dict(zip(values, values, strict=True))
        for name, values in attributes.items()
    }
    return example(text, "a", "barber", extra={"subject": "Barber", "attributes": said})


def test_a_grid_has_every_combination_with_the_right_article():
    grid = AttributeGrid()
    assert isinstance(grid, Editor)
    found = grid.edit([grid_example(), grid_example("a {mood} umpire", mood=["happy", "angry"])])
    [[first], [second]] = [one.proposals for one in found]
    assert first.texts == (
        "a photo of a White male Barber",
        "a photo of a White female Barber",
        "a photo of an Indian male Barber",
        "a photo of an Indian female Barber",
        "a photo of a Middle Eastern male Barber",
        "a photo of a Middle Eastern female Barber",
    )
    assert [None if e is None else (e.kind, e.before, e.after) for e in first.edits] == [
        None,
        ("gender", "male", "female"),
        ("race", "White", "Indian"),
        ("race_gender", "White male", "Indian female"),
        ("race", "White", "Middle Eastern"),
        ("race_gender", "White male", "Middle Eastern female"),
    ]
    assert (first.key, first.group) == ("a", "barber")
    assert first.details[3] == {"attributes": {"race": "Indian", "gender": "female"}}
    assert second.texts == ("a happy umpire", "an angry umpire")


def test_captions_may_say_a_value_in_other_words():
    places = {"beach": "on the beach", "night": "at night"}
    [found] = AttributeGrid().edit([grid_example("a ball {place}", place=places)])
    [proposal] = found.proposals
    assert proposal.texts == ("a ball on the beach", "a ball at night")
    assert proposal.edits[1].after == "night"
    assert proposal.details[1] == {"attributes": {"place": "night"}}


def test_the_article_before_the_subject_too():
    moods = {"mood": ["happy", "angry"]}
    [found] = AttributeGrid().edit([grid_example("A {mood} man, an umpire", **moods)])
    assert found.proposals[0].texts == ("A happy man, an umpire", "An angry man, an umpire")
    assert right_articles("an x-ray of an unicorn in an hour") == "an x-ray of a unicorn in an hour"


@pytest.mark.parametrize(
    "wrong",
    [
        example("a photo of a doctor", "a"),
        example("a {race} doctor", "a"),
        example("a {race} doctor", "a", extra={"attributes": {"race": ["White", "Black"]}}),
        example("a doctor", "a", extra={"attributes": {"race": {"White": "White"}}}),
    ],
)
def test_what_is_no_grid_is_refused(wrong):
    with pytest.raises(UserError, match=r"example 'a'.*data.grid=NAME or data.grid=FILE.yaml"):
        AttributeGrid().edit([wrong])


@pytest.mark.parametrize(
    "wrong", ["{race", "{}", "{race!r}", "{race:>9}", "{a.b}", "{{race}}", "}"]
)
def test_braces_hold_names_alone(wrong):
    with pytest.raises(UserError, match=r"here: .*braces hold a name"):
        placeholders(wrong, "here")


WORDS = st.text(st.sampled_from("aeoux {}$\\"), min_size=1, max_size=6)


@given(WORDS, WORDS)
def test_words_are_never_read_as_templates(one, other):
    """A word may hold what looks like a placeholder or an escape: it comes out as it went in."""
    found = fill("x{first}x{second}x", {"first": one, "second": other})
    assert found == right_articles(" ".join(f"x{one}x{other}x".split()))
