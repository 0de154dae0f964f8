"""The world's words: in editors, read back, varied, and with fewer of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import Example
from cfaug.editing.edit_checks import measure_edits
from cfaug.editing.edit_prompts import read_prompts
from cfaug.editing.filters import KeyedChoice, PartOfSpeech
from cfaug.editing.instructed_edit import InstructedEdit
from cfaug.editing.label_guard import LabelGuard
from cfaug.editing.protocols import (
    Blank,
    EditGuard,
    MaskFiller,
    SentenceEmbedder,
    Tagger,
    VariationModel,
    VariationRequest,
)
from cfaug.editing.substitution import Substitution
from cfaug.worlds.shapescapes.language import (
    FACTOR_OF,
    VALUES,
    AttributeFiller,
    Statement,
    VocabularyEncoder,
    VocabularyFiller,
    VocabularyTagger,
    WorldCheck,
    WorldVariations,
    describe,
    parse,
)
from cfaug.worlds.shapescapes.parts import LeaveOut, read_leave_out, shorten_caption
from cfaug.worlds.shapescapes.settings import (
    COLOURS,
    DOMAINS,
    FACTORS,
    FRAMES,
    PLACES,
    SUBJECTS,
    WEATHER,
    CaptionWording,
    Factors,
    caption,
    words,
    words_of_domains,
)
from tests.editing.perturbing import edit_of, photo_of
from tests.worlds.shapescapes.drawn import PHOTOS, SHOWN, WORDINGS

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
    edited = editor(kind="subject", edits=len(SUBJECTS) - 1).edit([Example("k", "g", (text,))])[0]
    expected = {
        caption(Factors(s, "orange", place), CaptionWording(frame))
        for s in SUBJECTS
        if s != "house"
    }
    assert edited.proposals[0].texts[0] == text
    assert set(edited.proposals[0].texts[1:]) == expected
    assert {(e.kind, e.before) for e in edited.proposals[0].edits[1:]} == {("subject", "house")}


@pytest.mark.parametrize("colour", COLOURS)
def test_a_colour_edit_repairs_the_article(colour):
    text = caption(Factors("cat", colour, "snow"), CaptionWording())
    options = {"part_of_speech": "adjective", "kind": "colour", "repair_article": True}
    edited = editor(**options, edits=len(COLOURS) - 1).edit([Example("k", "g", (text,))])[0]
    assert set(edited.proposals[0].texts[1:]) == {
        caption(Factors("cat", other, "snow"), CaptionWording())
        for other in COLOURS
        if other != colour
    }


def test_the_choice_depends_on_the_caption_s_key_and_uses_every_subject():
    every = [Example(f"k{i}", "g", ("a red ball on the beach",)) for i in range(300)]
    edited = editor(kind="subject").edit(every)
    chosen = [result.proposals[0].edits[1].after for result in edited]
    assert set(chosen) == set(SUBJECTS) - {"ball"}
    assert max(chosen.count(subject) for subject in set(chosen)) < 75
    assert editor(kind="subject").edit(every[::-1])[::-1] == edited


def blank(text, noun):
    start = text.index(noun)
    return Blank(text, start, start)


def test_before_a_noun_stands_any_colour_as_usual_as_the_noun_has_it():
    filler = AttributeFiller(seed=3)
    assert isinstance(filler, MaskFiller)
    (ball,) = filler.fill([blank("a ball on the beach", "ball")], 8)
    assert sorted(fill.word for fill in ball) == sorted(COLOURS)
    assert sum(fill.probability for fill in ball) == pytest.approx(1)
    assert [fill.probability for fill in ball] == sorted(
        (b.probability for b in ball), reverse=True
    )
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
    vectors = VocabularyEncoder().encode(texts)
    expected = np.eye(4)[[0, 0, 1, 2]]
    cosines = vectors @ vectors.T
    assert (cosines[:4, :4] == expected @ expected.T).all()
    assert (cosines[4] == 0).all()
    assert isinstance(VocabularyEncoder(), SentenceEmbedder)


@given(SHOWN, WORDINGS)
def test_what_is_said_is_read_back(shown: Factors, wording: CaptionWording) -> None:
    said = parse(f" {caption(shown, wording).capitalize()}. ")
    assert said is not None
    assert said.agrees(shown)
    assert said.subject == shown.subject
    assert said.colour == (shown.colour if wording.colour else None)
    assert said.background == (shown.background if wording.background else None)
    named = shown.domain != "photo" or FRAMES[wording.frame] == "a photo of {}"
    assert said.domain == (shown.domain if named else None)


@given(SHOWN)
def test_a_description_names_everything(shown: Factors) -> None:
    assert parse(describe(shown)) == Statement(**vars(shown))
    assert set(describe(shown).split()) <= set(words_of_domains())


def test_other_sentences_are_not_of_the_world() -> None:
    for text in (
        "", "ball", "a ball on the moon", "a red blue ball", "a red ball on the beach at night",
        "a statue of a ball", "a photo of", "a ball a ball", "a sketch of a photo of a ball",
        "a photo of 3 balls", "a red ball\non the beach, smiling",
    ):  # fmt: skip
        assert parse(text) is None, text


def test_a_statement_that_is_false_of_a_scene_does_not_agree() -> None:
    scene = Factors("ball", "red", "beach", "sketch")
    assert not Statement("ball", "red", "beach").agrees(scene)  # a sketch is called one
    assert not Statement("ball", "blue", None, "sketch").agrees(scene)
    assert Statement("ball", None, None, "sketch").agrees(scene)
    assert Statement("ball", "red").differing(Statement("ball", "blue", "snow")) == (
        "colour",
        "background",
    )


def test_the_words_that_domains_add_come_last() -> None:
    assert words_of_domains()[: len(words())] == words()
    assert set(words_of_domains()) - set(words()) == set(DOMAINS) - {"photo"}
    assert set(FACTOR_OF.values()) == set(FACTORS)
    assert set(WEATHER) < set(PLACES)


PROMPTS = {prompt.name: prompt for prompt in read_prompts("plain")}


def vary(text, name, count=99, seed=0):
    [variations] = WorldVariations().vary([VariationRequest(text, PROMPTS[name], count, seed)])
    return variations


@settings(max_examples=40)
@given(SHOWN, WORDINGS, st.sampled_from(sorted(set(VALUES) & set(PROMPTS))))
def test_every_variation_is_a_caption_of_the_world_with_one_factor_changed(shown, wording, name):
    text = caption(shown, wording)
    variations = vary(text, name)
    kind = PROMPTS[name].kind
    expected = set(VALUES[name]) - {
        getattr(parse(text), FACTOR_OF[kind]) or ("photo" if kind == "domain" else "")
    }
    assert len(variations.texts) == len(set(variations.texts)) == len(expected)
    said = {getattr(parse(varied), FACTOR_OF[kind]) or "photo" for varied in variations.texts}
    assert said == expected
    verdicts = WorldCheck().judge([edit_of(shown.subject, text, t, kind) for t in variations.texts])
    for verdict in verdicts:
        assert verdict.notes == {"kind_correct": True, "label_kept": kind != "subject"}


def test_the_frame_stays_unless_the_domain_takes_its_place():
    assert vary("there is a red cat", "adjective").texts[0].startswith("there is a")
    assert set(vary("A  photo of an orange cat at night.", "background-weather").texts) == {
        f"a photo of an orange cat {place}" for place in ("in the snow",)
    }
    assert "a sketch of a cat" in vary("this is a cat", "domain").texts
    assert {parse(t).background for t in vary("a cat", "background-weather").texts} == set(WEATHER)


def test_what_cannot_be_varied_says_why_and_draws_depend_on_the_seed():
    assert vary("a dog on the moon", "subject").problem == "no caption of the world"
    assert vary("a red cat", "object").problem == "no rule"
    some = {vary("a red cat", "adjective", 3, seed).texts for seed in range(9)}
    assert len(some) > 5
    assert {len(texts) for texts in some} == {3}
    assert isinstance(WorldVariations(), VariationModel)
    assert isinstance(WorldCheck(), EditGuard)


@pytest.mark.parametrize(
    ("kind", "after", "correct", "kept"),
    [
        ("adjective", "a blue ball on the beach", True, True),
        ("adjective", "a ball on the beach", False, True),  # says less, and so changes nothing
        ("adjective", "a blue ball in the snow", False, True),
        ("background", "a red ball in the snow", True, True),
        ("domain", "a photo of a red ball on the beach", False, True),
        ("domain", "a sketch of a red ball on the beach", True, True),
        ("subject", "a red cube on the beach", True, False),
        ("object", "a red ball in the snow", False, True),
        ("adjective", "a huge red ball on the beach", False, True),
        ("adjective", "a huge red dog on the beach", False, False),
    ],
)
def test_verdicts_are_exact(kind, after, correct, kept):
    [verdict] = WorldCheck().judge([edit_of("ball", "a red ball on the beach", after, kind)])
    assert verdict.notes == {"kind_correct": correct, "label_kept": kept}


@pytest.mark.parametrize(
    ("before", "after", "kind", "notes"),
    [
        ("a red ball", "a red cube", "random", {"label_kept": False}),
        ("a ball on the moon", "a ball", "adjective", {}),
    ],
)
def test_of_other_kinds_and_captions_less_is_known(before, after, kind, notes):
    [verdict] = WorldCheck().judge([edit_of("ball", before, after, kind)])
    assert verdict.notes == notes


def test_the_guard_without_an_encoder_is_exact_in_this_world():
    editor = InstructedEdit(
        WorldVariations(), per_kind=2, ask_for=20,
        guards={"label": LabelGuard()}, checks={"world": WorldCheck()},
    )  # fmt: skip
    texts = ["a red ball", "a photo of an orange fish at night", "there is a tree in the snow"]
    edited = editor.edit(
        [photo_of(t.split()[i], t, f"k{i}") for t, i in zip(texts, (2, 5, 3), strict=True)]
    )
    assert all({p.edits[1].kind for p in result.proposals} == {"adjective", "background", "domain"}
               for result in edited)  # fmt: skip
    *kinds, overall = measure_edits(edited)
    assert (overall.success, overall.precision, overall.recall) == (1, 1, 1)
    assert {measures.kind: measures.label_kept for measures in kinds} == {
        "adjective": 1, "background": 1, "domain": 1, "subject": 0,
    }  # fmt: skip


def captioned_example(text, key="k", label=None):
    return Example(key, "g", (text,), label=label)


@given(PHOTOS, WORDINGS)
def test_what_is_left_is_what_the_world_says_with_fewer_words(factors, wording):
    full = caption(factors, CaptionWording(wording.frame))
    shares = LeaveOut(float(not wording.colour), float(not wording.background))
    assert shorten_caption(captioned_example(full), shares, 0).text == caption(factors, wording)


def test_shares_are_kept_by_key_and_greater_ones_include_smaller_ones():
    text = "an orange ball on the beach"

    def shortened(share):
        every = (
            shorten_caption(captioned_example(text, f"k{i}"), LeaveOut(share), 5)
            for i in range(400)
        )
        return {example.key for example in every if example.text == "a ball on the beach"}

    few, many = shortened(0.25), shortened(0.5)
    assert few < many
    assert 160 <= len(many) <= 240
    assert shortened(0) == set()


def test_captions_of_others_hypotheses_and_shares_that_are_none_are_refused():
    with pytest.raises(UserError, match=r"'k'.*no caption of the embedded world"):
        shorten_caption(captioned_example("a dog on a mat"), LeaveOut(1), 0)
    with pytest.raises(UserError, match="a hypothesis with a label"):
        shorten_caption(captioned_example("a ball", label="neutral"), LeaveOut(1), 0)
    with pytest.raises(UserError, match="choose from colour, background"):
        read_leave_out({"size": 1})
    with pytest.raises(UserError, match=r"colour=2 should be a number from 0 to 1"):
        read_leave_out({"colour": 2})
