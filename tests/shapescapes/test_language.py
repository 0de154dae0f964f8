"""The world's words as parts of the editor of real captions."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.core.types import Example
from cfaug.editing.filters import KeyedChoice, PartOfSpeech
from cfaug.editing.protocols import Blank, MaskFiller, SentenceEmbedder, Tagger
from cfaug.editing.substitution import Substitution
from cfaug.shapescapes.language import (
    AttributeFiller,
    VocabularyEncoder,
    VocabularyFiller,
    VocabularyTagger,
)
from cfaug.shapescapes.settings import (
    COLOURS,
    FRAMES,
    PLACES,
    SUBJECTS,
    CaptionWording,
    Factors,
    caption,
    words,
)

TAGGER = VocabularyTagger()


def editor(**options):
    return Substitution(
        TAGGER, VocabularyFiller(), KeyedChoice(), [PartOfSpeech(TAGGER)], **options
    )


def test_the_protocols_are_kept_and_every_word_has_its_tag():
    assert isinstance(TAGGER, Tagger)
    assert isinstance(VocabularyFiller(), MaskFiller)
    tags = dict(zip(words(), TAGGER.tag([words()])[0], strict=True))
    assert {tags[subject] for subject in SUBJECTS} == {"NN"}
    assert {tags[colour] for colour in COLOURS} == {"JJ"}
    assert {tags[word] for word in ("a", "an", "the", "is", "in", "on")} == {"DT", "VBZ", "IN"}


@pytest.mark.parametrize(
    ("frame", "place"), [(n % len(FRAMES), place) for n, place in enumerate(PLACES)]
)
def test_a_noun_edit_swaps_the_subject_and_nothing_else(frame, place):
    factors = Factors("house", "orange", place)
    text = caption(factors, CaptionWording(frame))
    found = editor(kind="subject", edits=len(SUBJECTS) - 1).edit([Example("k", "g", (text,))])[0]
    expected = {
        caption(Factors(s, "orange", place), CaptionWording(frame))
        for s in SUBJECTS
        if s != "house"
    }
    assert found.proposals[0].texts[0] == text
    assert set(found.proposals[0].texts[1:]) == expected
    assert {(e.kind, e.before) for e in found.proposals[0].edits[1:]} == {("subject", "house")}


@pytest.mark.parametrize("colour", COLOURS)
def test_a_colour_edit_repairs_the_article(colour):
    text = caption(Factors("cat", colour, "snow"), CaptionWording())
    options = {"part_of_speech": "adjective", "kind": "colour", "repair_article": True}
    found = editor(**options, edits=len(COLOURS) - 1).edit([Example("k", "g", (text,))])[0]
    assert set(found.proposals[0].texts[1:]) == {
        caption(Factors("cat", other, "snow"), CaptionWording())
        for other in COLOURS
        if other != colour
    }


def test_the_choice_depends_on_the_caption_s_key_and_uses_every_subject():
    every = [Example(f"k{i}", "g", ("a red ball on the beach",)) for i in range(300)]
    found = editor(kind="subject").edit(every)
    chosen = [one.proposals[0].edits[1].after for one in found]
    assert set(chosen) == set(SUBJECTS) - {"ball"}
    assert max(chosen.count(subject) for subject in set(chosen)) < 75
    assert editor(kind="subject").edit(every[::-1])[::-1] == found


def blank(text, noun):
    start = text.index(noun)
    return Blank(text, start, start)


def test_before_a_noun_stands_any_colour_as_usual_as_the_noun_has_it():
    filler = AttributeFiller(seed=3)
    assert isinstance(filler, MaskFiller)
    (ball,) = filler.fill([blank("a ball on the beach", "ball")], 8)
    assert sorted(one.word for one in ball) == sorted(COLOURS)
    assert sum(one.probability for one in ball) == pytest.approx(1)
    assert [one.probability for one in ball] == sorted((b.probability for b in ball), reverse=True)
    again, tree, few = (
        filler.fill([blank(text, noun)], k)[0]
        for text, noun, k in [("the ball", "ball", 8), ("a tree", "tree", 8), ("a ball", "ball", 3)]
    )
    assert again == ball
    assert tree != ball
    assert few == ball[:3]


def test_no_attribute_stands_before_other_words_and_a_word_is_replaced_by_its_kind():
    text = "a red ball on the beach"
    filler = AttributeFiller()
    assert filler.fill([blank(text, "on"), Blank(text, len(text), len(text))], 5) == [[], []]
    words = Blank(text, 2, 5)
    assert filler.fill([words], 3) == VocabularyFiller().fill([words], 3)


def test_words_are_alike_or_not():
    texts = ["Red", "red", "ball", "brick wall", "sofa"]
    found = VocabularyEncoder().encode(texts)
    expected = np.eye(4)[[0, 0, 1, 2]]
    cosines = found @ found.T
    assert (cosines[:4, :4] == expected @ expected.T).all()
    assert (cosines[4] == 0).all()
    assert isinstance(VocabularyEncoder(), SentenceEmbedder)
