"""A detector that reads the scene with planted errors, and what is true of a scene."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.protocols import Annotator, Scorer
from cfaug.core.types import ENTAILMENT, Edit, Example, Proposal
from cfaug.data.detections import detections_from_json
from cfaug.worlds.shapescapes.detector import (
    PLACE_COLOURS,
    PLACE_LABELS,
    CaptionTruth,
    SceneDetector,
    share_true,
    text_label,
    text_truth,
)
from cfaug.worlds.shapescapes.drawing import Scene, render
from cfaug.worlds.shapescapes.language import parse
from cfaug.worlds.shapescapes.settings import (
    COLOURS,
    PLACES,
    SUBJECTS,
    Factors,
    WorldSettings,
    caption,
)
from tests.worlds.shapescapes.drawn import PHOTOS, SHOWN, WORDINGS

WORLD = WorldSettings(seed=1, style="drawing")
RNG = np.random.default_rng(0)
SCENES = [
    Scene(Factors(*(str(RNG.choice(tuple(some))) for some in (SUBJECTS, COLOURS, PLACES))), i)
    for i in range(600)
]


def photo(number, **extra):
    return Example(f"e{number}", "g", ("a",), extra={**SCENES[number].record(), **extra})


def find(detector, examples):
    annotations = detector.annotate(examples)
    return [detections_from_json(annotation["detections"], "here") for annotation in annotations]


EVERY = [photo(i) for i in range(len(SCENES))]


def test_without_errors_all_that_is_said_is_true_and_each_object_is_in_its_box():
    detector = SceneDetector(world=WORLD)
    assert isinstance(detector, Annotator)
    for scene, objects in zip(SCENES[:60], find(detector, EVERY[:60]), strict=True):
        place = PLACE_LABELS.get(scene.factors.background)
        expected = [scene.factors.subject] + ([place] if place else [])
        assert [detection.label for detection in objects] == expected
        for detection in objects:
            for attribute in detection.attributes:
                assert text_truth(f"a {attribute.name} {detection.label}", scene.factors)
        left, top, right, bottom = map(int, objects[0].box)
        touched = render(scene, WORLD.image_size, WORLD.drawing_style()).touched
        assert touched[top:bottom, left:right].sum() == touched.sum()
        assert touched[top].any()
        assert touched[:, right - 1].any()


def wrong(rate, **options):
    """Return the numbers of photos of which something else is said than without errors."""
    right, erring = (
        find(SceneDetector(error_rate=share, **options), EVERY) for share in (0.0, rate)
    )
    return {i: erring[i] for i in range(len(EVERY)) if erring[i] != right[i]}, right


def test_as_many_objects_go_wrong_as_asked_and_more_errors_include_the_fewer():
    few, right = wrong(0.1)
    many, _ = wrong(0.4)
    assert all(many[i] == objects or len(right[i]) > 1 for i, objects in few.items())
    assert set(few) <= set(many)
    single = [i for i, objects in enumerate(right) if len(objects) == 1]
    share = sum(i in many for i in single) / len(single)
    assert abs(share - 0.4) < 3 * np.sqrt(0.24 / len(single))
    assert set(wrong(1.0)[0]) == set(range(len(EVERY)))


@pytest.mark.parametrize("way", ["attribute", "missed", "label"])
def test_each_way_to_go_wrong(way):
    erring, right = wrong(1.0, errors=[way])
    for i, objects in erring.items():
        if way == "missed":
            assert objects == ()
            continue
        for detection, true in zip(objects, right[i], strict=True):
            assert (detection.label == true.label) == (way == "attribute")
            assert (detection.attributes == true.attributes) == (way == "label")
            assert detection.box == true.box


def test_an_answer_depends_on_the_photo_not_on_its_neighbours_and_the_seed_counts():
    detector = SceneDetector(error_rate=0.5)
    assert find(detector, EVERY[7:8])[0] == find(detector, EVERY)[7]
    assert find(replace(detector, seed=1), EVERY) != find(detector, EVERY)
    others = [{"seed": 1}, {"error_rate": 0.4}, {"errors": ("missed",)}, {"world": WORLD}]
    identities = {replace(detector, **changes).identity() for changes in [{}, *others]}
    assert len(identities) == 5


def test_what_is_covered_is_not_seen():
    grass = next(i for i, scene in enumerate(SCENES) if scene.factors.background == "grass")
    (colour,) = find(SceneDetector(), [photo(grass, hidden="colour")])
    (place,) = find(SceneDetector(), [photo(grass, hidden="background")])
    assert [detection.label for detection in colour] == [SCENES[grass].factors.subject, "grass"]
    assert colour[0].attributes == ()
    assert [detection.label for detection in place] == [SCENES[grass].factors.subject]


def test_other_photos_and_settings_that_make_no_sense_are_refused():
    with pytest.raises(UserError, match="'e' is not a scene"):
        SceneDetector().annotate([Example("e", "g", ("a ball",))])
    with pytest.raises(UserError, match=r"error_rate=1\.5"):
        SceneDetector(error_rate=1.5)
    with pytest.raises(UserError, match="choose from attribute, missed, label"):
        SceneDetector(errors=("typo",))


BALL = Factors("ball", "red", "grass")


@given(SHOWN, SHOWN, WORDINGS)
def test_of_whole_sentences_it_is_what_the_grammar_says(shown, said, wording):
    text = caption(said, wording)
    assert text_truth(text, shown) == parse(text).agrees(shown)


def split_place(background):
    if background == "brick":
        return "in front of a", "brick wall"
    return PLACES[background].rsplit(" ", 1)


def true_phrases(factors):
    """Every phrase with any colours before the nouns that is true of a photo, by enumeration."""
    head, noun = split_place(factors.background)
    for colour, painted in product(
        ("", factors.colour), ("", *sorted(PLACE_COLOURS[factors.background]))
    ):
        subject = " ".join(filter(None, ("a", colour, factors.subject)))
        yield subject
        yield " ".join(filter(None, (subject, head, painted, noun)))


@pytest.mark.parametrize("background", PLACES)
def test_insertions_of_colours_are_true_where_brute_force_lists_them(background):
    scene = Factors("cat", "blue", background)
    true = set(true_phrases(scene))
    head, noun = split_place(background)
    colours = ("", *COLOURS, "white", "grey")
    for subject, colour, painted in product(("cat", "fish"), colours, colours):
        text = " ".join(filter(None, ("a", colour, subject, head, painted, noun)))
        assert text_truth(text, scene) == (text in true), text


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("a ball the grass", "entailment"),  # a word was deleted
        ("ball a on red grass the", "contradiction"),  # swapped: now the grass is red
        ("a red on the grass", "entailment"),  # something red is there
        ("a blue on the grass", "contradiction"),
        ("a wooden ball", None),
        ("a wooden blue ball", "contradiction"),  # whatever it is made of
        ("a red wooden ball", None),  # who knows what is red
        ("no blue ball", None),
        ("a dog on the grass", None),
        ("a cat on the grass", "contradiction"),
        ("on the", None),
        ("A RED ball, on the green grass!", "entailment"),
        ("there's a ball", "entailment"),
        ("a sketch of a ball", "contradiction"),
    ],
)
def test_texts_that_methods_leave_behind(text, label):
    assert text_label(text, BALL) == label
    assert text_truth(text, BALL) == (None if label is None else label == "entailment")


@given(PHOTOS, PHOTOS, WORDINGS, st.sampled_from(["colour", "background"]))
def test_what_is_covered_is_neutral_unless_what_is_seen_is_false(shown, said, wording, hidden):
    label = text_label(caption(said, wording), shown, hidden)
    named = {"subject": True, "colour": wording.colour, "background": wording.background}
    differing = [k for k in named if named[k] and getattr(said, k) != getattr(shown, k)]
    if [k for k in differing if k != hidden]:
        assert label == "contradiction"
    else:
        assert label == ("neutral" if named[hidden] else "entailment")


def test_inserted_words_are_judged_where_they_stand_and_unknown_ones_are_left_out():
    before = "a ball on the grass"
    assert share_true(before, "a red ball on the grass", BALL, None) == 1
    assert share_true(before, "a green ball on the green grass", BALL, None) == 0.5
    assert share_true(before, "a wooden ball on the red grass", BALL, None) == 0
    assert share_true(before, "a wooden ball on the grass", BALL, None) is None
    assert share_true(before, before, BALL, None) is None
    assert share_true(before, "a red ball on the grass", BALL, "colour") is None


def proposal(before, after, label="ball", **extra):
    example = Example("e", "e", (before,), label=label, extra={**Scene(BALL, 7).record(), **extra})
    return Proposal(example, (before, after), (None, Edit("insertion", "", "x")))


def test_the_scorer_says_what_is_known_and_leaves_out_the_rest():
    scorer = CaptionTruth()
    assert isinstance(scorer, Scorer)
    given = [
        proposal("a ball", "a blue ball"),
        proposal("a ball", "a wooden ball"),
        proposal("a ball", "a red ball", "entailment", hidden="colour"),
        proposal("a ball", "a blue ball", "entailment", hidden=None),
    ]
    neutral, contradiction = ENTAILMENT.index("neutral"), ENTAILMENT.index("contradiction")
    assert scorer.score(given, []) == [
        {"truth_0": 1, "truth_1": 0, "inserted_true": 0},
        {"truth_0": 1},
        {"truth_0": 1, "entailment_0": 0, "entailment_1": neutral},
        {
            "truth_0": 1,
            "entailment_0": 0,
            "truth_1": 0,
            "entailment_1": contradiction,
            "inserted_true": 0,
        },
    ]
    assert all(set(scores) <= set(scorer.names) for scores in scorer.score(given, []))


def test_photos_that_are_not_of_the_world_and_single_texts_are_refused():
    example = Example("e", "e", ("a ball",))
    with pytest.raises(UserError, match="'e' is not a scene"):
        CaptionTruth().score([Proposal(example, ("a ball", "a"), (None, None))], [])
    with pytest.raises(UserError, match="has 1 texts"):
        CaptionTruth().score([Proposal(example, ("a ball",), (None,))], [])
