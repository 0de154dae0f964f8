"""The released sets, asked as ours are, whatever order their rows have."""

from __future__ import annotations

import random

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.papers.social.grid_sets import read_grid_sets
from tests.data.released import GENDERS, RACES
from tests.data.test_social_counterfactuals import social, social_rows, with_caption


def test_a_caption_that_does_not_show_its_attributes_is_refused(tmp_path):
    rows = with_caption(social_rows("barber", "1", 0), "male", "adult")
    index = open_index(social(tmp_path / "social", rows), tmp_path / "cache")
    with pytest.raises(UserError, match=r"race_gender-1_0.*'A photo of a White adult barber' does"):
        read_grid_sets(index)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"caption": "A photo of a White male barber"},
            "race_gender-1_3.* has no subject.*'Black'",
        ),
        ({"caption": "A nice photo"}, "'A nice photo' does not have its a1 and a2"),
        ({"a1": "Black "}, "'Black ' and 'female', one after the other"),
        ({"caption": "A photo of a Black female chef"}, "race_gender-1: its members differ in sub"),
        ({"caption": "A picture of a Black female barber"}, "its members differ in prefix"),
    ],
)
def test_every_caption_shows_the_labels_of_its_own_row(tmp_path, changed, words):
    """A row that contradicts itself would be counted with labels that its image need not have."""
    rows = [*social_rows("barber", "0", 30), *social_rows("barber", "1", 0)]
    rows[15] |= changed
    index = open_index(social(tmp_path / "social", rows), tmp_path / "cache")
    with pytest.raises(UserError, match=words):
        read_grid_sets(index)


def test_the_released_columns_are_asked_as_ours_are(tmp_path):
    """Whatever order the rows have: sets, labels, prompts and images are the same."""
    rows = [r for n, s in enumerate(["barber", "chef"]) for r in social_rows(s, str(n), 100 * n)]
    random.Random(1).shuffle(rows)
    grid_sets = read_grid_sets(open_index(social(tmp_path / "social", rows), tmp_path / "cache"))
    grid = grid_sets.grids["race_gender"]
    assert sorted(grid_sets.subjects) == ["barber", "chef"]
    assert {name: set(values) for name, values in grid.attributes.items()} == {
        "race": set(RACES), "gender": set(GENDERS),
    }  # fmt: skip
    labelled = {}
    codes, labels = grid.label(["race", "gender"])
    for at, row in enumerate(grid.rows.tolist()):
        subject = grid_sets.subjects[grid.subjects[at]]
        labelled[grid_sets.index.read_image(row)] = (subject, labels[codes[at]])
    assert labelled == {
        row["image"]["bytes"]: (str(row["caption"]).split()[-1], row["a1a2"]) for row in rows
    }
    assert grid_sets.prompts(grid, grid_sets.subjects.index("chef")) == ["A photo of a chef"]
