"""ShapeScapes-VE: labels that the oracle confirms, and that no text gives away."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from cfaug.core.pixels import decode_image
from cfaug.core.types import ENTAILMENT
from cfaug.shapescapes.detector import text_label
from cfaug.shapescapes.drawing import render, scene_of
from cfaug.shapescapes.parts import COVER, PLAN, cover, make_part, part_size, photos
from cfaug.shapescapes.settings import COLOURS, PLACES, WorldSettings
from cfaug.shapescapes.world import World

SETTINGS = WorldSettings(seed=3, style="drawing", shortcut="none", ve_photos=24, ve_test_photos=6)
SOME = list(photos(World(SETTINGS), "ve", 2400))


def form(text):
    words = text.split()
    return any(one in words for one in COLOURS), any(one in text for one in PLACES.values())


def test_the_oracle_confirms_every_label():
    for photo in SOME:
        for one in photo.hypotheses:
            assert text_label(one.text, photo.factors, photo.hidden) == one.label, (photo, one)


def test_every_form_has_every_label_as_often():
    asked = [one for photo in SOME for one in photo.hypotheses]
    counts = Counter((form(one.text), one.label) for one in asked)
    assert len(counts) == 9
    assert set(counts.values()) == {len(SOME) // 3}
    assert len(SOME) % len(PLAN) == 0


def test_a_classifier_of_texts_alone_is_at_chance_on_other_photos():
    texts = [one.text for photo in SOME for one in photo.hypotheses]
    labels = [one.label for photo in SOME for one in photo.hypotheses]
    # Photos are not cut: with pairs of words a model can learn any agreement of two words.
    words = CountVectorizer(ngram_range=(1, 2), token_pattern=r"\w+").fit_transform(texts)
    half = len(texts) // 2
    model = LogisticRegression(C=0.1, max_iter=200).fit(words[:half], labels[:half])
    right = model.score(words[half:], labels[half:])
    # Three standard errors of a guess among three.
    assert abs(right - 1 / 3) < 3 * np.sqrt(2 / 9 / half)


def test_what_is_covered_is_grey_and_the_rest_is_as_it_was():
    scene = World(SETTINGS).scene(SOME[0].factors, "ve", 0)
    drawn = render(scene, 32, SETTINGS.look())
    assert cover(drawn, None) is drawn.pixels
    colour, place = cover(drawn, "colour"), cover(drawn, "background")
    assert (colour[drawn.touched] == COVER).all()
    assert (colour[~drawn.touched] == drawn.pixels[~drawn.touched]).all()
    assert (place[~drawn.solid] == COVER).all()
    assert (place[drawn.solid] == drawn.pixels[drawn.solid]).all()


@pytest.mark.parametrize("hidden", ["colour", "background"])
def test_pictures_say_nothing_of_what_is_covered(hidden):
    values = tuple(COLOURS if hidden == "colour" else PLACES)
    one, other = (replace(SOME[0].factors, **{hidden: value}) for value in values[:2])
    world = World(replace(SETTINGS, style="clear"))
    pictures = [
        cover(render(world.scene(f, "ve", 0), 32, world.settings.look()), hidden)
        for f in (one, other)
    ]
    assert (pictures[0] == pictures[1]).all()


def test_the_parts_are_photos_with_three_hypotheses_that_share_an_image():
    sets = list(make_part(SETTINGS, "ve_test"))
    assert len(sets) == part_size(SETTINGS, "ve_test") == 6
    for one in sets:
        assert {member.image_name for member in one.members} == {"0"}
        assert len(one.members) == 3
        for member in one.members:
            assert member.label in ENTAILMENT
            assert member.edit is None
            factors, hidden = scene_of(member.extra).factors, member.extra["hidden"]
            assert text_label(member.text, factors, hidden) == member.label
        drawn = render(scene_of(one.members[0].extra), 32, SETTINGS.look())
        shown = np.asarray(decode_image(one.images["0"], "the photo"))
        assert (shown == cover(drawn, one.members[0].extra["hidden"])).all()
    train = [member.text for one in make_part(SETTINGS, "ve") for member in one.members]
    assert train[:18] != [member.text for one in sets for member in one.members]
