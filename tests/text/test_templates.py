"""Attribute grids: every combination once, articles right, mistakes named."""

from __future__ import annotations

import pytest

from cfaug.errors import UserError
from cfaug.protocols import Editor
from cfaug.text.templates import AttributeGrid, right_articles
from tests.records import example

RACE = ["White", "Indian", "Middle Eastern"]
GENDER = ["male", "female"]


def test_a_grid_has_every_combination_with_the_right_article():
    grid = AttributeGrid({"race": RACE, "gender": GENDER})
    assert isinstance(grid, Editor)
    found = grid.edit([example("Barber", "a", "jobs"), example("umpire", "b", "jobs")])
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
        ("race+gender", "White male", "Indian female"),
        ("race", "White", "Middle Eastern"),
        ("race+gender", "White male", "Middle Eastern female"),
    ]
    assert (first.key, first.group, second.key) == ("a", "jobs", "b")
    assert first.details[3] == {"race": "Indian", "gender": "female"}


def test_the_article_before_the_subject_too():
    grid = AttributeGrid({"mood": ["happy", "angry"]}, "A {mood} man, an {subject}")
    [found] = grid.edit([example("umpire")])[0].proposals
    assert found.texts == ("A happy man, an umpire", "An angry man, an umpire")
    assert right_articles("an x-ray of an unicorn in an hour") == "an x-ray of a unicorn in an hour"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"template": "a {race} person"}, "subject"),
        ({"template": "a {race} {gender} {subject} {age}"}, "it must have each of"),
        ({"template": "a {race {subject}"}, "template"),
        (
            {"attributes": {"race": ["White", "white"], "gender": GENDER}},
            "duplicated value, 'white'",
        ),
        ({"attributes": {"race": [], "gender": GENDER}}, "race is empty"),
    ],
)
def test_mistakes_are_named(options, words):
    given = {"attributes": {"race": RACE, "gender": GENDER}, **options}
    with pytest.raises(UserError, match=words):
        AttributeGrid(**given)


def test_a_single_text_is_no_counterfactual():
    with pytest.raises(UserError, match="grid of one"):
        AttributeGrid({"race": ["White"]}, "a {race} {subject}")
