from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.errors import UserError
from cfaug.score.select import REASONS, Scores, Selection

COSINES = st.floats(-1, 1, width=32)


def pair(sim_0=0.3, sim_1=0.3, image=0.8, direction=0.3):
    return Scores(sim_0, (sim_1,), (image,), (direction,))


@st.composite
def candidates(draw):
    members = draw(st.integers(1, 3))
    column = st.tuples(*[COSINES] * members)
    scores = st.builds(Scores, COSINES, column, column, column)
    return draw(st.lists(st.tuples(scores, st.integers(0, 3)), min_size=1, max_size=12))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"sim_0": 0.2, "sim_1": 0.2, "image": 0.7, "direction": 0.2}, ""),  # inclusive
        ({"sim_0": 0.1999}, "caption_0"), ({"sim_1": 0.1999}, "caption_1"),
        ({"image": 0.6999}, "image"), ({"direction": 0.1999}, "direction"),
        ({"sim_0": 0, "direction": 0}, "caption_0"), ({"sim_1": 0, "image": 0}, "caption_1"),
    ],
)  # fmt: skip
def test_a_pair_names_the_first_threshold_it_misses(changes, reason) -> None:
    assert Selection().reason(pair(**changes)) == reason
    assert reason in ("", *REASONS)


def test_without_a_directional_threshold_any_direction_will_do() -> None:
    assert Selection(direction=None).reason(pair(direction=-0.9)) == ""


def test_a_base_that_misses_its_caption_needs_no_other_score() -> None:
    assert Selection().reason(Scores(0.1)) == "caption_0"
    with pytest.raises(ValueError, match="all scored"):
        Selection().overall(Scores(0.5))


def test_a_set_passes_by_its_worst_edit_or_by_their_mean() -> None:
    scores = Scores(0.3, (0.1, 0.5), (0.9, 0.7), (0.3, 0.3))
    assert Selection(over="min").reason(scores) == "caption_1"
    assert Selection(over="mean").reason(scores) == ""
    assert Selection(over="mean").overall(scores)["sim_image"] == pytest.approx(0.8)


@settings(max_examples=100, deadline=None)
@given(candidates(), st.sampled_from(["min", "mean"]), st.integers(1, 3))
def test_the_best_are_those_of_a_plain_sort(found, over, keep) -> None:
    select = Selection(caption=-0.5, image=-0.5, direction=None, over=over, keep=keep)

    def mean_or_min(values):
        return min(values) if over == "min" else sum(values) / len(values)

    rows = []
    for number, (scores, seed) in enumerate(found):
        passes = scores.sim_0 >= -0.5 and all(
            mean_or_min(column) >= -0.5 for column in (scores.sim_1, scores.image)
        )
        if abs(mean_or_min(scores.sim_1) + 0.5) > 1e-9 < abs(mean_or_min(scores.image) + 0.5):
            assert (select.reason(scores) == "") == passes
        if select.reason(scores) == "":
            rows.append((number, seed, scores))
    best = select.best(rows)
    assert len(best) == min(keep, len(rows))
    order = {n: (select.overall(s)["sim_direction"], seed, -n) for n, seed, s in rows}
    assert [order[n] for n in best] == sorted(order.values(), reverse=True)[:keep]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"caption": 2}, "select.caption=2"), ({"over": "max"}, "min or mean"), ({"keep": 0}, "keep")],
)
def test_settings_that_cannot_be_are_named(wrong, named) -> None:
    with pytest.raises(UserError, match=named):
        Selection(**wrong)
