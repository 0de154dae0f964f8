"""The world's words as parts of the editor of real captions."""

from __future__ import annotations

import pytest

from cfaug.shapescapes.language import VocabularyFiller, VocabularyTagger
from cfaug.shapescapes.vocabulary import (
    COLOURS,
    FRAMES,
    PLACES,
    SUBJECTS,
    Factors,
    Wording,
    caption,
    words,
)
from cfaug.text.filters import KeyedChoice, PartOfSpeech
from cfaug.text.protocols import MaskFiller, Tagger
from cfaug.text.substitution import Substitution
from cfaug.types import Example

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


@pytest.mark.parametrize("frame", range(len(FRAMES)))
@pytest.mark.parametrize("place", PLACES)
def test_a_noun_edit_swaps_the_subject_and_nothing_else(frame, place):
    factors = Factors("house", "orange", place)
    text = caption(factors, Wording(frame))
    found = editor(kind="subject", edits=len(SUBJECTS) - 1).edit([Example("k", "g", (text,))])[0]
    expected = {
        caption(Factors(s, "orange", place), Wording(frame)) for s in SUBJECTS if s != "house"
    }
    assert found.proposals[0].texts[0] == text
    assert set(found.proposals[0].texts[1:]) == expected
    assert {(e.kind, e.before) for e in found.proposals[0].edits[1:]} == {("subject", "house")}


@pytest.mark.parametrize("colour", COLOURS)
def test_a_colour_edit_repairs_the_article(colour):
    text = caption(Factors("cat", colour, "snow"), Wording())
    options = {"part_of_speech": "adjective", "kind": "colour", "repair_article": True}
    found = editor(**options, edits=len(COLOURS) - 1).edit([Example("k", "g", (text,))])[0]
    assert set(found.proposals[0].texts[1:]) == {
        caption(Factors("cat", other, "snow"), Wording()) for other in COLOURS if other != colour
    }


def test_the_choice_depends_on_the_caption_s_key_and_uses_every_subject():
    every = [Example(f"k{i}", "g", ("a red ball on the beach",)) for i in range(300)]
    found = editor(kind="subject").edit(every)
    chosen = [one.proposals[0].edits[1].after for one in found]
    assert set(chosen) == set(SUBJECTS) - {"ball"}
    assert max(chosen.count(subject) for subject in set(chosen)) < 75
    assert editor(kind="subject").edit(every[::-1])[::-1] == found
