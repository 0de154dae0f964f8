"""Captions are read back: every sentence of the world, and no other."""

from __future__ import annotations

from hypothesis import given

from cfaug.shapescapes.language import FACTOR_OF, Statement, describe, parse
from cfaug.shapescapes.settings import (
    DOMAINS,
    FACTORS,
    FRAMES,
    PLACES,
    WEATHER,
    CaptionWording,
    Factors,
    caption,
    words,
    words_of_domains,
)
from tests.shapescapes.drawn import SHOWN, WORDINGS


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
