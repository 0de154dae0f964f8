"""Sets of attribute grids are read as columns; one that is not whole is named."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.papers.social.grid_sets import find_mistake, read_grid_sets
from tests.grid_sets import RACE_GENDER, SUBJECTS, every_grid_set, grid_set, lay_grid_sets
from tests.properties import examples

COLOUR = {"colour": ("red", "green"), "background": ("on the beach", "in the snow")}


@pytest.fixture
def opened(tmp_path):
    """Return the index of some sets."""

    def opened(*sets):
        return open_index(lay_grid_sets(tmp_path / "sets", sets), tmp_path / "index")

    return opened


def with_member(counterfactual, place, **extra):
    """Return a set of which one member says something else of itself."""
    members = list(counterfactual.members)
    changed = {**members[place].extra, **extra}
    members[place] = dataclasses.replace(members[place], extra=changed)
    return dataclasses.replace(counterfactual, members=tuple(members))


def test_every_image_says_what_it_is(opened):
    sets = every_grid_set()
    grid_sets = read_grid_sets(opened(*sets))
    assert grid_sets.subjects == SUBJECTS
    assert set(grid_sets.subject_types) == {"occupation"}
    assert grid_sets.set_names == tuple(counterfactual.key for counterfactual in sets)
    assert not grid_sets.left_out
    [grid] = grid_sets.grids.values()
    assert dict(grid.attributes) == RACE_GENDER
    rows = iter(range(len(grid.rows)))
    for number, counterfactual in enumerate(sets):
        for member in counterfactual.members:
            at = next(rows)
            row = int(grid.rows[at])
            assert grid.sets[at] == number
            assert grid_sets.subjects[grid.subjects[at]] == counterfactual.group
            values = dict(zip(grid.attributes, grid.values[at].tolist(), strict=True))
            attributes = {name: grid.attributes[name][value] for name, value in values.items()}
            assert attributes == member.extra["attributes"]
            assert grid_sets.index.read_image(row) == counterfactual.images[member.image_name]
            assert grid_sets.set_prompts[number] == member.extra["neutral"]
    assert grid_sets.prompts(grid, 2) == ["an engineer", "A photo of an engineer"]


def test_labels_are_marginal_or_intersectional(opened):
    [grid] = read_grid_sets(opened(grid_set("doctor"), grid_set("nurse"))).grids.values()
    codes, labels = grid.label(["gender"])
    assert labels == ["male", "female"]
    assert codes.tolist() == [0, 1] * 6
    codes, labels = grid.label(["race", "gender"])
    assert labels[:3] == ["White male", "White female", "Black male"]
    assert codes.tolist() == [*range(6), *range(6)]
    codes, labels = grid.label(["gender", "race"])
    assert [labels[code] for code in codes[:2]] == ["male White", "female White"]
    with pytest.raises(
        UserError, match="'age' is not one of them; choose from its attributes race, gender"
    ):
        grid.label(["age"])
    with pytest.raises(UserError, match="none given"):
        grid.label([])


def test_several_grids_and_spellings_of_one_subject(opened):
    ball = {"attributes": COLOUR, "grid": "colour_background", "subject_type": "shape"}
    sets = [
        grid_set("Actor"), grid_set("ball", prefix="", **ball), grid_set("actor", 1),
        grid_set("cube", prefix="", **ball),
    ]  # fmt: skip
    grid_sets = read_grid_sets(opened(*sets))
    assert grid_sets.subjects == ("actor", "ball", "cube")
    assert grid_sets.subject_types == ("occupation", "shape", "shape")
    people, shapes = (grid_sets.grids[name] for name in ("race_gender", "colour_background"))
    assert people.sets.tolist() == [0] * 6 + [2] * 6
    assert people.subjects.tolist() == [0] * 12
    assert shapes.rows.tolist() == [*range(6, 10), *range(16, 20)]
    assert dict(shapes.attributes) == COLOUR


def test_of_chosen_rows_only_these(opened):
    index = opened(*every_grid_set(SUBJECTS[:2], sets=1))
    chosen = np.concatenate([np.arange(12, 18), np.arange(6)])
    grid_sets = read_grid_sets(index, chosen)
    assert grid_sets.grids["race_gender"].rows.tolist() == sorted(chosen.tolist())
    assert len(grid_sets.set_names) == 2


def test_a_grid_of_more_combinations_than_can_be_counted(opened):
    """Forty attributes of two values in a set of two members are told at once."""
    wide = {f"a{i}": ("x", "y") for i in range(40)}
    first, last = ({name: values[at] for name, values in wide.items()} for at in (0, 1))
    changed = with_member(grid_set("doctor", leave_out=range(2, 6)), 0, attributes=first)
    index = opened(with_member(changed, 1, attributes=last))
    with pytest.raises(UserError, match=r"incomplete: 1,099,511,627,774 of 1,099,511,627,776"):
        read_grid_sets(index)


def test_nothing_is_left(opened):
    sets = [grid_set(name, leave_out=(at,)) for at, name in enumerate(SUBJECTS[:3])]
    with pytest.raises(UserError, match="3 of 3 sets are invalid"):
        read_grid_sets(opened(*sets), invalid="leave_out")


def test_an_order_of_its_own_is_no_mistake(opened):
    turned = grid_set("doctor")
    turned = dataclasses.replace(turned, members=turned.members[::-1])
    [grid] = read_grid_sets(opened(grid_set("nurse"), grid_set("pilot"), turned)).grids.values()
    assert dict(grid.attributes) == RACE_GENDER
    assert grid.label(["race", "gender"])[0][-6:].tolist() == [*range(6)][::-1]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"attributes": None}, "has no attributes: it is of no grid"),
        ({"attributes": {"race": 3}}, "attribute 'race' should be a text, not 3"),
        ({"attributes": {}}, "should map names to values"),
        ({"subject": 3}, "doctor-0_1.*: subject should be a text, not 3"),
        ({"subject_type": None}, "has no subject_type"),
    ],
)
def test_a_row_that_says_nothing_valid(opened, extra, words):
    index = opened(with_member(grid_set("doctor"), 1, **extra), grid_set("nurse"))
    with pytest.raises(UserError, match=words):
        read_grid_sets(index)


def test_what_is_no_grid(opened):
    plain = grid_set("doctor")
    members = tuple(
        dataclasses.replace(member, extra={"race": "White"}) for member in plain.members
    )
    index = opened(dataclasses.replace(plain, members=members))
    with pytest.raises(UserError, match=r"the column 'subject' is missing.*recipe=social"):
        read_grid_sets(index)
    with pytest.raises(UserError, match=": choose from refuse, leave_out"):
        read_grid_sets(index, invalid="ignore")


def test_labels_that_a_space_would_make_equal_stay_apart(opened):
    """Pages and tables refuse items that have a label twice."""
    values = {"x": ("a", "a b"), "y": ("b c", "c")}
    [grid] = read_grid_sets(opened(grid_set("nurse", attributes=values))).grids.values()
    assert grid.label(["x", "y"])[1] == ["a + b c", "a + c", "a b + b c", "a b + c"]
    assert grid.label(["x"])[1] == ["a", "a b"]


# A set is right when it has every combination once: against plain enumeration.

VALUES = {"race": ("White", "Black", "Latino"), "gender": ("male", "female")}
EVERY = [dict(zip(VALUES, values, strict=True)) for values in product(*VALUES.values())]
MEMBER = st.one_of(
    st.sampled_from(EVERY),
    st.fixed_dictionaries(
        {"race": st.sampled_from(["White", "Blue"]), "gender": st.sampled_from(["male", "other"])}
    ),
    st.just({"race": "White"}),
)


@settings(max_examples=examples(50), deadline=None)
@given(st.one_of(st.permutations(EVERY), st.lists(MEMBER, min_size=1, max_size=8)))
def test_only_one_image_for_each_combination_is_no_mistake(members):
    def cells(some):
        return sorted(tuple(sorted(combination.items())) for combination in some)

    right = cells(members) == cells(EVERY)
    assert (find_mistake(members, VALUES) is None) == right


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.sampled_from(EVERY), min_size=1, max_size=5, unique_by=str))
def test_what_is_missing_is_counted_and_named(members):
    said = find_mistake(members, VALUES)
    assert said.startswith(f"incomplete: {6 - len(members)} of 6 missing, such as '")
    named = said.rpartition("such as ")[2].strip("'")
    assert named in {
        " ".join(combination.values()) for combination in EVERY if combination not in members
    }


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (grid_set("engineer", leave_out=(2, 5)),
         "incomplete: 2 of 6 missing, such as 'Black male'"),
        (grid_set("engineer", repeat=(1,)), "'White female' is duplicated: it has 2 images"),
        (with_member(grid_set("doctor"), 1, attributes={"race": "Whtie", "gender": "male"}),
         "'Whtie male' is outside its grid"),
        (with_member(grid_set("doctor"), 1, attributes={"race": "White", "age": "old"}),
         "a member has the attributes race, age; its grid has race, gender"),
        (with_member(grid_set("doctor"), 1, subject="priest"), "its members differ in subject"),
        (with_member(grid_set("doctor"), 1, grid="x_y"), "its members differ in grid"),
        (with_member(grid_set("doctor"), 1, neutral="A doctor"), "its members differ in neutral"),
    ],
)  # fmt: skip
def test_a_set_that_is_not_whole_is_refused_or_left_out(opened, broken, reason):
    index = opened(grid_set("pilot"), broken, grid_set("nurse"))
    with pytest.raises(UserError, match=f"1 of 3 sets are invalid: {broken.key}: {reason}"):
        read_grid_sets(index)
    grid_sets = read_grid_sets(index, invalid="leave_out")
    assert dict(grid_sets.left_out) == {broken.key: reason}
    assert grid_sets.subjects == ("pilot", "nurse")
    [grid] = grid_sets.grids.values()
    assert grid.sets.tolist() == [0] * 6 + [1] * 6
    assert not set(range(6, 6 + len(broken.members))) & set(grid.rows.tolist())
