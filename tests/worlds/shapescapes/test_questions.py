"""Questions and hypotheses about scenes: true by a slow reader, and given away by no text."""

from __future__ import annotations

import io
import itertools
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.rng import derive
from cfaug.core.types import ENTAILMENT
from cfaug.data.questions import BASIC, COUNTERFACTUAL, PRESUPPOSITION
from cfaug.evaluation.questions.question_checks import validate
from cfaug.worlds.shapescapes.detector import text_label
from cfaug.worlds.shapescapes.drawing import render, scene_of
from cfaug.worlds.shapescapes.parts import COVER, PLAN, cover, make_part, part_size, photos
from cfaug.worlds.shapescapes.question_parts import (
    CATEGORIES,
    CHANGES,
    SCENE,
    draw_pair,
    make_questions,
)
from cfaug.worlds.shapescapes.settings import COLOURS, PLACES, STYLES, WorldSettings
from cfaug.worlds.shapescapes.world import (
    SHAPES,
    SIDE,
    SIZES,
    Gathering,
    Thing,
    World,
    gathering_of,
    render_gathering,
)
from tests.worlds.shapescapes.read_gatherings import answer

SIZE = 60
"""Pixels of a side, 20 a cell."""


def full(seed, size="large"):
    cells = itertools.product(range(SIDE), repeat=2)
    kinds = itertools.cycle(SHAPES)
    things = [Thing(next(kinds), "red", size, *cell) for cell in cells]
    return Gathering(tuple(things), "night", derive(seed, "full"))


@pytest.mark.parametrize(("style", "seed"), [("drawing", 0), ("photo", 1), ("fog", 2)])
def test_a_thing_changes_pixels_of_its_own_cell_only(style, seed):
    every = full(seed)
    look = STYLES[style]
    whole = render_gathering(every, SIZE, look)
    for number, thing in enumerate(every.things):
        others = every.things[:number] + every.things[number + 1 :]
        without = render_gathering(Gathering(others, "night", every.seed), SIZE, look)
        rows, columns = np.nonzero((whole != without).any(axis=2))
        step = SIZE // 16 if look.detail else 0  # a shadow falls to the right of it and below
        for touched, at in ((columns, thing.column), (rows, thing.row)):
            assert at * 20 <= touched.min()
            assert touched.max() < (at + 1) * 20 + step


@pytest.mark.parametrize("shape", SHAPES)
def test_large_things_cover_more_and_all_show_their_colour(shape):
    covered = {}
    for size in SIZES:
        shown = [
            render_gathering(Gathering(things, "snow", 5), SIZE, STYLES["drawing"]).astype(int)
            for things in ((Thing(shape, "blue", size, 1, 1),), ())
        ]
        near = np.abs(shown[0] - np.array(COLOURS["blue"])).max(axis=2) < 45
        covered[size] = int((near & (shown[0] != shown[1]).any(axis=2)).sum())
    assert covered["large"] > 2 * covered["small"] > 0


def test_nothing_is_strewn_about_that_could_be_taken_for_a_thing():
    pictures = [
        render_gathering(Gathering((), "water", 5), SIZE, STYLES[style]).astype(int)
        for style in ("drawing", "clear")
    ]
    water = pictures[1].reshape(-1, 3).mean(axis=0)
    assert np.abs(pictures[1] - water).max() < 140
    assert (pictures[0][..., 2] > pictures[0][..., 0]).all()
    assert (pictures[1][..., 2] > pictures[1][..., 0]).all()


def test_a_record_gives_the_scene_and_the_file_its_pixels():
    settings = WorldSettings(seed=1, image_size=24, style="clear", vqa_test_pairs=6)
    images = list(make_questions(settings, "test"))
    assert len({image.image.digest for image in images}) == len(images)
    for image in images:
        scene = gathering_of(json.loads(json.dumps(image.extra[SCENE])))
        assert scene.record() == image.extra[SCENE]
        pixels = render_gathering(scene, 24, settings.drawing_style())
        assert (np.asarray(Image.open(io.BytesIO(image.image.read()))) == pixels).all()


def test_twins_differ_in_few_pixels():
    settings = WorldSettings(seed=1, image_size=48, style="drawing", vqa_test_pairs=12)
    images = list(make_questions(settings, "test"))
    for first, second in zip(images[::2], images[1::2], strict=True):
        assert first.group == second.group
        pixels = [np.asarray(Image.open(io.BytesIO(twin.image.read()))) for twin in (first, second)]
        apart = (pixels[0] != pixels[1]).any(axis=2).mean()
        assert 0 < apart < 2.2 / SIDE**2


FOUR = ("red", "green", "blue", "black")
ASKED_WORLD = WorldSettings(
    seed=3, image_size=32, style="drawing", vqa_pairs=600, vqa_test_pairs=60
)
SOME = list(make_questions(ASKED_WORLD, "train"))


def asked(kind=None):
    return [
        (image, question)
        for image in SOME
        for question in image.questions
        if kind in (None, question.kind)
    ]


def test_a_slow_reader_of_the_scene_confirms_every_answer():
    for image, question in asked():
        assert answer(question.text, image.extra[SCENE]) == question.right, (image, question)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 10**6), st.booleans())
def test_it_confirms_them_in_any_world(seed, index, few):
    world = World(WorldSettings(seed=seed, colours=FOUR) if few else WorldSettings(seed=seed))
    for image in draw_pair(world, "any", index):
        for question in image.questions:
            assert answer(question.text, image.extra[SCENE]) == question.right, (image, question)
            assert len(set(question.options)) == 2


def test_an_image_has_a_basic_question_and_two_conditions_of_each_kind():
    assert len(SOME) == 2 * ASKED_WORLD.vqa_pairs
    for image in SOME:
        assert [question.kind for question in image.questions] == [BASIC, *[COUNTERFACTUAL] * 4]
        changed = [question.extra[CHANGES] for question in image.of_kind(COUNTERFACTUAL)]
        assert sorted(changed) == [False, False, True, True]
    counts = Counter(image.category for image in SOME)
    assert counts == dict.fromkeys(CATEGORIES, len(SOME) // len(CATEGORIES))


def test_a_condition_changes_the_answer_or_does_not_as_is_said():
    for image, question in asked(COUNTERFACTUAL):
        (basic,) = image.of_kind(BASIC)
        assert (question.right != basic.right) == question.extra[CHANGES], (image, question)


def test_a_condition_has_to_be_understood():
    ignoring, otherwise, number = Counter(), Counter(), Counter()
    for image, question in asked(COUNTERFACTUAL):
        (basic,) = image.of_kind(BASIC)
        there = basic.right in question.options
        ignoring[image.category] += (question.right == basic.right) if there else 0.5
        otherwise[image.category] += (question.right != basic.right) if there else 0.5
        number[image.category] += 1
    assert set(number) == set(CATEGORIES)
    for category, n in number.items():
        assert otherwise[category] <= 0.5 * n
        # Where the number without the condition is no option, whoever ignores it has to guess.
        assert ignoring[category] <= (0.65 if category == "count" else 0.5) * n


def test_texts_with_options_in_their_order_have_each_option_as_their_answer_as_often():
    answers = {}
    for image, question in asked():
        whole = tuple((q.text, q.options) for q in image.questions)
        answers.setdefault((whole, question.id), []).append(question.answer)
    assert all(2 * sum(some) == len(some) for some in answers.values())


def test_a_classifier_of_texts_and_options_is_at_chance():
    texts = [
        f"{question.text} {' '.join(question.options)} first {question.options[0]}"
        for _, question in asked()
    ]
    labels = np.array([question.answer for _, question in asked()])
    half = len(texts) // 2
    words = CountVectorizer(ngram_range=(1, 2), token_pattern=r"\w+").fit_transform(texts)
    model = LogisticRegression(C=1, max_iter=50).fit(words[:half], labels[:half])
    # Both twins are there, so not about one half: one half.
    assert model.score(words[half:], labels[half:]) == 0.5


def test_nothing_is_wrong_with_the_set_and_every_condition_comes_up():
    assert validate(SOME) == []
    forms = {
        (image.category, *sorted(set(question.extra[PRESUPPOSITION].split()) & {
            "removed", "places", "swapped", "given", "then", "mirror", "rotated", "side", "added",
            "twice", "every", "turned", "round", "small",
        }))
        for image, question in asked(COUNTERFACTUAL)
    }  # fmt: skip
    assert len(forms) >= 30


def test_parts_and_worlds_have_questions_of_their_own():
    test = list(make_questions(ASKED_WORLD, "test"))
    assert len(test) == 120
    assert [image.extra for image in test[:6]] != [image.extra for image in SOME[:6]]
    other = make_questions(WorldSettings(seed=4), "test")
    assert next(other).extra != test[0].extra
    assert list(make_questions(ASKED_WORLD, "test"))[7] == test[7]


@pytest.mark.parametrize(
    ("part", "given", "match"),
    [
        ("ve", {}, "choose from train, test"),
        ("test", {"seed": None}, "seed"),
        ("test", {"colours": ("red", "blue", "green")}, "at least 4"),
    ],
)
def test_what_cannot_be_asked_is_said(part, given, match):
    with pytest.raises(UserError, match=match):
        next(make_questions(WorldSettings(**{"seed": 0, **given}), part))


VE_WORLD = WorldSettings(seed=3, style="drawing", shortcut="none", ve_photos=24, ve_test_photos=6)
VE_PHOTOS = list(photos(World(VE_WORLD), "ve", 2400))


def form(text):
    words = text.split()
    return any(name in words for name in COLOURS), any(place in text for place in PLACES.values())


def test_the_oracle_confirms_every_label():
    for photo in VE_PHOTOS:
        for hypothesis in photo.hypotheses:
            assert text_label(hypothesis.text, photo.factors, photo.hidden) == hypothesis.label, (
                photo,
                hypothesis,
            )


def test_every_form_has_every_label_as_often():
    asked = [hypothesis for photo in VE_PHOTOS for hypothesis in photo.hypotheses]
    counts = Counter((form(hypothesis.text), hypothesis.label) for hypothesis in asked)
    assert len(counts) == 9
    assert set(counts.values()) == {len(VE_PHOTOS) // 3}
    assert len(VE_PHOTOS) % len(PLAN) == 0


def test_a_classifier_of_texts_alone_is_at_chance_on_other_photos():
    texts = [hypothesis.text for photo in VE_PHOTOS for hypothesis in photo.hypotheses]
    labels = [hypothesis.label for photo in VE_PHOTOS for hypothesis in photo.hypotheses]
    # Photos are not cut: with pairs of words a model can learn any agreement of two words.
    words = CountVectorizer(ngram_range=(1, 2), token_pattern=r"\w+").fit_transform(texts)
    half = len(texts) // 2
    model = LogisticRegression(C=0.1, max_iter=200).fit(words[:half], labels[:half])
    right = model.score(words[half:], labels[half:])
    # Three standard errors of a guess among three.
    assert abs(right - 1 / 3) < 3 * np.sqrt(2 / 9 / half)


def test_what_is_covered_is_grey_and_the_rest_is_as_it_was():
    scene = World(VE_WORLD).scene(VE_PHOTOS[0].factors, "ve", 0)
    drawn = render(scene, 32, VE_WORLD.drawing_style())
    assert cover(drawn, None) is drawn.pixels
    colour, place = cover(drawn, "colour"), cover(drawn, "background")
    assert (colour[drawn.touched] == COVER).all()
    assert (colour[~drawn.touched] == drawn.pixels[~drawn.touched]).all()
    assert (place[~drawn.solid] == COVER).all()
    assert (place[drawn.solid] == drawn.pixels[drawn.solid]).all()


@pytest.mark.parametrize("hidden", ["colour", "background"])
def test_pictures_say_nothing_of_what_is_covered(hidden):
    values = tuple(COLOURS if hidden == "colour" else PLACES)
    first, second = (replace(VE_PHOTOS[0].factors, **{hidden: value}) for value in values[:2])
    world = World(replace(VE_WORLD, style="clear"))
    pictures = [
        cover(render(world.scene(f, "ve", 0), 32, world.settings.drawing_style()), hidden)
        for f in (first, second)
    ]
    assert (pictures[0] == pictures[1]).all()


def test_the_parts_are_photos_with_three_hypotheses_that_share_an_image():
    sets = list(make_part(VE_WORLD, "ve_test"))
    assert len(sets) == part_size(VE_WORLD, "ve_test") == 6
    for photo in sets:
        assert {member.image_name for member in photo.members} == {"0"}
        assert len(photo.members) == 3
        for member in photo.members:
            assert member.label in ENTAILMENT
            assert member.edit is None
            factors, hidden = scene_of(member.extra).factors, member.extra["hidden"]
            assert text_label(member.text, factors, hidden) == member.label
        drawn = render(scene_of(photo.members[0].extra), 32, VE_WORLD.drawing_style())
        shown = np.asarray(decode_image(photo.images["0"], "the photo"))
        assert (shown == cover(drawn, photo.members[0].extra["hidden"])).all()
    train = [member.text for photo in make_part(VE_WORLD, "ve") for member in photo.members]
    assert train[:18] != [member.text for photo in sets for member in photo.members]
