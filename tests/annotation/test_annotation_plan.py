"""Who answers what: the paper's counts, fair shares, and nothing that depends on order."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.annotation.assignment import Assignment
from cfaug.annotation.question import ImageItem
from cfaug.core.errors import UserError


def items_of(pairs: int) -> list[ImageItem]:
    return [
        ImageItem(f"pair-{n:05d}", member, ("a cat", "a dog"), 2 * n + member)
        for n in range(pairs)
        for member in (0, 1)
    ]


@pytest.mark.slow
def test_the_papers_questions():
    """COCO-CFs, section 4.1: 34,820 images, a tenth labelled by three."""
    items = items_of(17_410)
    shared = Assignment(annotators=12).distribute(items)
    assert sum(map(len, shared)) == 34_820 + 2 * 3_482 == 41_784
    times = Counter(Counter(i for own in shared for i in own).values())
    assert times == {1: 34_820 - 3_482, 3: 3_482}
    assert {len(own) for own in shared} == {41_784 // 12}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 25), st.integers(1, 7), st.integers(2, 7), st.floats(0, 1), st.integers(0, 9))
def test_every_image_once_and_the_overlap_by_different_people(pairs, people, raters, overlap, seed):
    items = items_of(pairs)
    if raters > people:
        overlap = 0.0
    plan = Assignment(people, raters, overlap, None, seed)
    shared = plan.distribute(items)
    several = plan.choose_overlap(items)
    assert all(len(set(own)) == len(own) for own in shared)
    times = Counter(i for own in shared for i in own)
    assert times == {i: raters if i in several else 1 for i in range(len(items))}
    loads = [len(own) for own in shared]
    assert max(loads) - min(loads) <= 1


def test_what_is_drawn_hangs_on_keys_and_the_seed():
    plan, items = Assignment(4, seed=3), items_of(30)
    names = [[items[i].name for i in own] for own in plan.distribute(items)]
    back = items[::-1]
    assert {back[i].name for i in plan.choose_overlap(back)} == {
        items[i].name for i in plan.choose_overlap(items)
    }
    assert names == [[items[i].name for i in own] for own in plan.distribute(items)]
    assert names != [
        [items[i].name for i in own] for own in Assignment(4, seed=4).distribute(items)
    ]


def test_images_of_a_screening_go_to_everyone():
    items, everyone = items_of(20), {3, 17}
    plan = Assignment(4, 2, 0.1)
    shared = plan.distribute(items, everyone)
    assert all(everyone <= set(own) for own in shared)
    times = Counter(i for own in shared for i in own)
    others = {i: 2 if i in plan.choose_overlap(items) else 1 for i in range(40)}
    assert times == others | dict.fromkeys(everyone, 4)
    assert max(map(len, shared)) - min(map(len, shared)) <= 1


def test_everyone_has_an_order_and_sides_of_their_own():
    plan, items = Assignment(3, 3, 1.0), items_of(40)
    first, second, third = plan.distribute(items)
    assert sorted(first) == sorted(second) == sorted(third)
    assert first != second != third
    sides = [[plan.is_reversed(who, item) for item in items] for who in (1, 2)]
    assert sides[0] != sides[1]
    assert 20 < sum(sides[0]) < 60


def test_a_sample_is_drawn_by_key():
    items = items_of(50)
    drawn = Assignment(sample=10).choose_items(items)
    assert len(drawn) == 10
    assert drawn == sorted(drawn, key=items.index)
    assert set(drawn) == set(Assignment(sample=10).choose_items(items[::-1]))
    assert set(drawn) < set(Assignment(sample=20).choose_items(items))
    assert Assignment(sample=1000).choose_items(items) == items


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"annotators": 0}, "annotators=0"), ({"annotators": 10**6}, "annotators="),
        ({"overlap_fraction": 1.5}, "overlap_fraction=1.5"),
        ({"annotators_per_item": 1}, "annotators_per_item=1"),
        ({"annotators": 2}, "annotators_per_item=3"), ({"sample": 0}, "sample=0"),
    ],
)  # fmt: skip
def test_invalid_assignments_are_refused(change, named):
    with pytest.raises(UserError, match=named):
        Assignment(**change)
