from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.imaging.select import (
    REASONS,
    Selection,
    clip_selection,
    cosine,
    direction,
    mean_direction,
)
from tests.generate.tiny import Eye
from tests.properties import examples

COSINES = st.floats(-1, 1, width=32)


def pair(sim_0=0.3, sim_1=0.3, image=0.8, direction=0.3):
    return {"sim_0": sim_0, "sim_1": (sim_1,), "sim_image": (image,), "sim_direction": (direction,)}


@st.composite
def candidates(draw):
    members = draw(st.integers(1, 3))
    column = st.tuples(*[COSINES] * members)
    scores = st.fixed_dictionaries(
        {"sim_0": COSINES, "sim_1": column, "sim_image": column, "sim_direction": column}
    )
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
    assert clip_selection().reject(pair(**changes)) == reason
    free = clip_selection(min_clip_direction=None).reject(pair(**changes))
    assert free == ("" if reason == "direction" else reason)
    assert reason in ("", *REASONS.values())


def test_a_threshold_that_is_no_cosine_is_refused() -> None:
    with pytest.raises(UserError, match=r"selection\.min_clip_text=2 is a cosine: from -1 to 1"):
        clip_selection(min_clip_text=2)


def test_a_base_that_misses_its_caption_needs_no_other_score() -> None:
    assert clip_selection().reject({"sim_0": 0.1}) == "caption_0"
    assert clip_selection().find_miss({"sim_0": 0.5}) == ""
    with pytest.raises(UserError, match="no score 'sim_1'"):
        clip_selection().reject({"sim_0": 0.5})
    with pytest.raises(UserError, match="no score 'sim_1'"):
        clip_selection().reject({"sim_0": 0.5, "sim_1": ()})


def test_a_set_passes_by_its_worst_edit_or_by_their_mean() -> None:
    scores = {
        "sim_0": 0.3, "sim_1": (0.1, 0.5), "sim_image": (0.9, 0.7), "sim_direction": (0.3, 0.3),
    }  # fmt: skip
    worst, mean = clip_selection(aggregate="min"), clip_selection(aggregate="mean")
    assert worst.reject(scores) == "caption_1"
    assert mean.reject(scores) == ""
    assert mean.pool_all(scores) == pytest.approx(
        {"sim_0": 0.3, "sim_1": 0.3, "sim_image": 0.8, "sim_direction": 0.3}
    )


def test_edits_pass_by_the_worst_and_sets_are_ranked_by_the_mean() -> None:
    select = Selection({"sim": 0.2, "direction": None}, "direction", keep=2, rank_aggregate="mean")
    uneven = {"sim": (0.2, 0.9), "direction": (0.0, 0.8)}
    even = {"sim": (0.3, 0.3), "direction": (0.3, 0.3)}
    assert select.reject(uneven) == select.reject(even) == ""
    assert select.reject({**uneven, "sim": (0.1, 0.9)}) == "sim"
    assert select.best([(0, 1, even), (1, 1, uneven)]) == [1, 0]
    assert Selection({}, "direction").best([(0, 1, even), (1, 1, uneven)]) == [0]
    # What is written is what decided.
    assert select.pool_all(uneven) == {"sim": 0.2, "direction": 0.4}
    with pytest.raises(UserError, match=r"rank_aggregate=max: choose from min, mean, null"):
        Selection(rank_aggregate="max")


def test_margins_are_of_the_thresholds_that_are_known() -> None:
    select = Selection({"a": 0.5, "b": None, "c": 0.1}, "b", above={"d": 1.0})
    scores = {"a": 0.75, "b": 2.0, "c": (0.6, 0.35), "d": 0.5}
    assert select.compute_margins(scores) == pytest.approx({"a": 0.25, "c": 0.25, "d": -0.5})
    assert select.compute_margins({"a": 0.25, "c": ()}) == {"a": -0.25}


def test_scores_of_any_name_are_asked_in_their_order() -> None:
    select = Selection({"fluency": -4.0, "clip": None, "truth": 0.5}, maximise="clip")
    assert select.names == ("fluency", "truth", "clip")
    assert select.reject({"truth": 0.1, "fluency": -5, "clip": 9}) == "fluency"
    assert select.reject({"truth": 0.1, "fluency": -4, "clip": 9}) == "truth"
    rows = [(0, 5, {"truth": 1, "fluency": 0, "clip": 0.1}), (1, 5, {"clip": 0.3})]
    assert select.rank(rows) == [1, 0]
    assert Selection(keep=2).best([(3, 9, {}), (1, 2, {}), (2, 7, {})]) == [1, 2]
    with pytest.raises(UserError, match="no scorer gives the score 'truth'; there are clip, flu"):
        select.check(["clip", "fluency"])
    with pytest.raises(UserError, match="the recipe has no scorer"):
        select.check([])


@settings(max_examples=examples(60), deadline=None)
@given(candidates(), st.sampled_from(["min", "mean"]), st.integers(1, 3))
def test_the_best_are_those_of_a_plain_sort(drawn, aggregate, keep) -> None:
    select = clip_selection(-0.5, -0.5, None, aggregate, keep)

    def mean_or_min(values):
        return min(values) if aggregate == "min" else sum(values) / len(values)

    rows = []
    for number, (scores, seed) in enumerate(drawn):
        columns = (scores["sim_1"], scores["sim_image"])
        passes = scores["sim_0"] >= -0.5 and all(mean_or_min(c) >= -0.5 for c in columns)
        if all(abs(mean_or_min(column) + 0.5) > 1e-9 for column in columns):
            assert (select.reject(scores) == "") == passes
        if select.reject(scores) == "":
            rows.append((number, seed, scores))
    best = select.best(rows)
    assert len(best) == min(keep, len(rows))
    order = {n: (select.pool(s["sim_direction"]), seed, -n) for n, seed, s in rows}
    assert [order[n] for n in best] == sorted(order.values(), reverse=True)[:keep]


def slow_cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    length = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    return dot / length if length else 0.0


def unit(rows, dim=7, seed=0):
    torch.manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(rows, dim), dim=-1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 5))
def test_cosines_are_those_of_school(seed, rows) -> None:
    a, b, c, d = unit(4 * rows, seed=seed).split(rows)
    cosines, undefined = cosine(a, b)
    assert cosines.dtype == torch.float32
    assert not undefined.any()
    expected = [slow_cosine(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert cosines.tolist() == pytest.approx(expected, abs=1e-6)
    cosines, undefined = direction(a, b, c, d)
    changes = zip((b - a).tolist(), (d - c).tolist(), strict=True)
    assert cosines.tolist() == pytest.approx([slow_cosine(x, y) for x, y in changes], abs=1e-5)
    assert not undefined.any()


def test_no_direction_is_nought_and_said() -> None:
    a, b = unit(2, seed=1), unit(2, seed=2)
    text = unit(2, seed=3)
    other = torch.stack([text[0], -text[1]])
    cosines, undefined = direction(a, b, text, other)
    assert undefined.tolist() == [True, False]
    assert cosines[0] == 0
    assert cosines[1] != 0
    assert direction(a, a, text, -text)[1].tolist() == [True, True]


def test_directions_of_half_precision_embeddings_are_taken_in_float32() -> None:
    a = unit(3, 64).half()
    b = (a.float() + 2e-3 * unit(3, 64, seed=5)).half()
    cosines, _ = direction(a, b, a, b)
    assert cosines.dtype == torch.float32
    assert cosines.tolist() == pytest.approx([1, 1, 1], abs=1e-5)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_the_mean_direction_is_over_all_pairs(count) -> None:
    images, texts = unit(count, seed=1), unit(count, seed=2)
    every = [
        slow_cosine((images[j] - images[i]).tolist(), (texts[j] - texts[i]).tolist())
        for i in range(count)
        for j in range(i + 1, count)
    ]
    wanted = sum(every) / len(every)
    assert mean_direction(images, texts) == pytest.approx(wanted, abs=1e-5)
    eye = Eye()
    eye.all_pairs = True
    assert "sim_direction_pairs" in eye.names
    scores = eye.compare(list(texts), list(images))
    assert scores["sim_direction_pairs"] == pytest.approx(wanted, abs=1e-5)
    assert "sim_direction_pairs" not in eye.compare(list(texts), list(images[:1]))
    assert "sim_direction_pairs" not in Eye().compare(list(texts), list(images))
