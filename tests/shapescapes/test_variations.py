"""Variations that the world can draw, and exact verdicts on anyone's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.editing.edit_checks import measure_edits
from cfaug.editing.edit_prompts import read_prompts
from cfaug.editing.instructed_edit import InstructedEdit
from cfaug.editing.label_guard import LabelGuard
from cfaug.editing.protocols import EditGuard, VariationModel, VariationRequest
from cfaug.shapescapes.language import FACTOR_OF, VALUES, WorldCheck, WorldVariations, parse
from cfaug.shapescapes.settings import WEATHER, caption
from tests.editing.perturbing import edit_of, photo_of
from tests.shapescapes.drawn import SHOWN, WORDINGS

PROMPTS = {one.name: one for one in read_prompts("plain")}


def vary(text, name, count=99, seed=0):
    [found] = WorldVariations().vary([VariationRequest(text, PROMPTS[name], count, seed)])
    return found


@settings(max_examples=40)
@given(SHOWN, WORDINGS, st.sampled_from(sorted(set(VALUES) & set(PROMPTS))))
def test_every_variation_is_a_caption_of_the_world_with_one_factor_changed(shown, wording, name):
    text = caption(shown, wording)
    found = vary(text, name)
    kind = PROMPTS[name].kind
    expected = set(VALUES[name]) - {
        getattr(parse(text), FACTOR_OF[kind]) or ("photo" if kind == "domain" else "")
    }
    assert len(found.texts) == len(set(found.texts)) == len(expected)
    said = {getattr(parse(one), FACTOR_OF[kind]) or "photo" for one in found.texts}
    assert said == expected
    verdicts = WorldCheck().judge([edit_of(shown.subject, text, t, kind) for t in found.texts])
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
    assert {len(one) for one in some} == {3}
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
    assert all({p.edits[1].kind for p in one.proposals} == {"adjective", "background", "domain"}
               for one in edited)  # fmt: skip
    *kinds, overall = measure_edits(edited)
    assert (overall.success, overall.precision, overall.recall) == (1, 1, 1)
    assert {one.kind: one.label_kept for one in kinds} == {
        "adjective": 1, "background": 1, "domain": 1, "subject": 0,
    }  # fmt: skip
