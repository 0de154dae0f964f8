"""The records of examples, detections and evaluations refuse what no later stage could use."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import Edited, Evaluation, Example, Outcome, Proposal, SourceImage
from cfaug.data.detections import (
    Attribute,
    Detection,
    clip_box,
    detections_from_json,
    detections_of,
    detections_to_json,
    most_certain_first,
)
from tests.properties import examples
from tests.records import Photo, example, proposal

ONE = Outcome("b", "m", 0.5, 2)


def test_an_outcome_says_its_direction_and_its_part():
    assert (ONE.better, ONE.unit, dict(ONE.by)) == ("higher", "fraction", {})
    skew = Outcome("b", "skew", 1.5, 2, better="lower", unit="nats", by={"edit": "colour"})
    assert skew != Outcome("b", "skew", 1.5, 2, better="lower", unit="nats", by={"edit": "size"})
    with pytest.raises(UserError, match="better='less' is invalid: choose higher or lower"):
        Outcome("b", "m", 0.5, 2, better="less")
    with pytest.raises(UserError, match="by="):
        Outcome("b", "m", 0.5, 2, by={"edit": 3})


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ({"item": ["a"], "m": [1.0]}, "lack the column 'cluster'"),
        ({"cluster": ["a"], "m": [1.0]}, "lack the column 'item'"),
        ({"item": ["a", "b"], "cluster": ["a", "b"], "m": [1.0]}, "differ in length"),
    ],
)
def test_items_that_do_not_fit_are_refused(items, said):
    with pytest.raises(UserError, match=said):
        Evaluation([ONE], items)


def test_rankings_have_rows_of_their_own_and_names_as_items_have():
    items = {"item": ["a"], "cluster": ["a"]}
    evaluation = Evaluation([ONE], items, {"item": ["x", "y"], "cluster": ["a", "a"]})
    assert len(evaluation.rankings["item"]) == 2
    assert not Evaluation([ONE], items).rankings
    with pytest.raises(UserError, match="the rankings lack the column 'cluster'"):
        Evaluation([ONE], items, {"item": ["x"]})


def test_an_evaluation_has_an_outcome():
    with pytest.raises(UserError, match="without outcomes"):
        Evaluation([], {"item": [], "cluster": []})


def test_an_example_may_be_an_image_alone_but_not_nothing():
    photo = Photo(b"x")
    assert isinstance(photo, SourceImage)
    untexted = Example("k", "g", (), photo)
    with pytest.raises(UserError, match=r"'k' has no text.*annotator"):
        _ = untexted.text
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
    photo = example("a cat", "photo7", "photos")
    alone = Edited((Proposal(photo, ("a cat",), (None,)),))
    assert [p.key for p in alone.proposals] == ["photo7"]
    several = Edited(
        (
            Proposal(photo, ("a cat",), (None,)),
            Proposal(photo, ("a dog",), (None,), key="mine"),
            Proposal(photo, ("a cow",), (None,)),
        )
    )
    assert [p.key for p in several.proposals] == ["photo7-0", "mine", "photo7-2"]
    assert {p.group for p in several.proposals} == {"photos"}
    with pytest.raises(UserError, match="duplicated keys: a, a"):
        Edited(tuple(Proposal(photo, (text,), (None,), key="a") for text in ("a cat", "a dog")))


def test_the_stage_that_left_nothing_is_named():
    assert Edited((), {"words": 3, "similarity": 0, "choice": 0}).rejected_by == "similarity"
    assert Edited((), {"words": 3}).rejected_by == "nothing chosen"
    assert Edited((proposal(["a cat"]),), {"words": 0}).rejected_by is None


NAMES = st.text(min_size=1, max_size=12).filter(str.strip)
SCORES = st.none() | st.floats(allow_nan=False, allow_infinity=False)
SIDES = st.floats(-1e6, 1e6)
BOXES = st.tuples(SIDES, SIDES, SIDES, SIDES).filter(lambda b: b[0] < b[2] and b[1] < b[3])
DETECTIONS = st.lists(
    st.builds(
        Detection,
        NAMES,
        SCORES,
        st.none() | BOXES,
        st.lists(st.builds(Attribute, NAMES, SCORES), max_size=3).map(tuple),
    ),
    max_size=4,
)


@settings(max_examples=examples(60), deadline=None)
@given(DETECTIONS)
def test_detections_survive_json(detections):
    text = json.dumps(detections_to_json(detections), allow_nan=False)
    assert detections_from_json(json.loads(text), "it") == tuple(detections)


@settings(max_examples=examples(60), deadline=None)
@given(DETECTIONS)
def test_the_most_certain_come_first_and_the_rest_keep_their_order(detections):
    ordered = most_certain_first(detections)
    scored = [detection for detection in ordered if detection.score is not None]
    assert all(a.score >= b.score for a, b in pairwise(scored))
    assert list(ordered[len(scored) :]) == [
        detection for detection in detections if detection.score is None
    ]
    for score in {detection.score for detection in scored}:
        assert [o for o in ordered if o.score == score] == [
            o for o in detections if o.score == score
        ]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.tuples(*[st.integers(-30, 30)] * 4).filter(lambda b: b[0] < b[2] and b[1] < b[3]),
    st.integers(1, 25),
    st.integers(1, 25),
)
def test_a_clipped_box_has_the_pixels_that_lie_in_both(box, width, height):
    left, top, right, bottom = box
    inside = [
        (x, y)
        for x in range(width)
        for y in range(height)
        if left <= x < right and top <= y < bottom
    ]
    clipped = clip_box(tuple(map(float, box)), width, height)
    if not inside:
        assert clipped is None
        return
    assert clipped == (
        min(x for x, _ in inside), min(y for _, y in inside),
        max(x for x, _ in inside) + 1, max(y for _, y in inside) + 1,
    )  # fmt: skip


def test_what_may_be_missing_is_none_and_names_are_texts_too():
    given = [
        {"label": " fire  hydrant", "box": [0, 1, 2, 3], "attributes": ["red", {"name": "old"}]}
    ]
    [detection] = detections_from_json(given, "it")
    assert detection == Detection(
        "fire hydrant", None, (0.0, 1.0, 2.0, 3.0), (Attribute("red"), Attribute("old"))
    )
    assert detections_from_json([{"label": "dog"}], "it") == (Detection("dog"),)
    assert detections_from_json([], "it") == ()


@pytest.mark.parametrize(
    ("detections", "said"),
    [
        ({"label": "dog"}, "should be a list of objects"),
        ("dog", "should be a list of objects"),
        (["dog"], "should be a JSON object with label, score, box, attributes"),
        ([{"label": "dog"}, {"label": " "}], "detections[1]: the label of an object"),
        ([{"label": 3}], "should be a text"),
        ([{"label": "d" * 201}], "at most 200"),
        ([{"label": "dog", "score": math.nan}], "finite number or null, not nan"),
        ([{"label": "dog", "score": "high"}], "finite number"),
        ([{"label": "dog", "score": True}], "finite number"),
        ([{"label": "dog", "score": 10**400}], "finite number"),
        ([{"label": "dog", "box": [0, 0, 5]}], "left, top, right and bottom"),
        ([{"label": "dog", "box": [0, 0, math.inf, 3]}], "left, top, right and bottom"),
        ([{"label": "dog", "box": [5, 0, 5, 3]}], "is empty"),
        ([{"label": "dog", "attributes": "brown"}], "attributes should be a list"),
        ([{"label": "dog", "attributes": [{"name": ""}]}], "the name of an attribute"),
        ([{"label": "dog", "attributes": [7]}], "attributes[0] should be a JSON object"),
        ([{"label": "dog", "bbox": [0, 0, 5, 3]}], "'bbox' is unknown: choose from label"),
    ],
)
def test_what_is_no_detection_is_refused_by_name(detections, said):
    with pytest.raises(UserError) as caught:
        detections_of(Example("photo-7", "g", ("a dog",), extra={"detections": detections}))
    assert "example 'photo-7'" in str(caught.value)
    assert said in str(caught.value)


def test_an_example_without_detections_says_where_they_come_from():
    with pytest.raises(UserError, match=r"'photo-7' has no detections.*detections@recipe=file"):
        detections_of(Example("photo-7", "g", ("a dog",)))
