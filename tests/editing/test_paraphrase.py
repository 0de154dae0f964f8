"""Paraphrases: what is said stays; the world's oracle reads it, and words of real captions."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from cfaug.editing.paraphrase import Paraphrase
from cfaug.editing.sentence import TextBlobTagger
from cfaug.editing.wordnet import Senses, Synonyms
from cfaug.worlds.shapescapes.language import parse
from cfaug.worlds.shapescapes.settings import PLACES
from tests.editing.tiny import real_captions
from tests.records import example


def said(text, kind, **given):
    """Every text that a rule makes of one, over many keys."""
    editor = Paraphrase(TextBlobTagger(), kinds=[kind], **given)
    results = editor.edit([example(text, f"k{i}") for i in range(60)])
    return {p.texts[1] for result in results for p in result.proposals}


@pytest.mark.parametrize(
    ("text", "some"),
    [
        ("a dog on the grass", {"a photo of a dog on the grass", "this is a dog on the grass"}),
        ("A photo of a cat.", {"This is a cat.", "A picture of a cat."}),
        ("this is an apple", {"a photo of an apple", "here is an apple"}),
    ],
)
def test_frames(text, some):
    texts = said(text, "frame")
    assert some <= texts
    assert text not in texts


def test_sentences_and_other_media_keep_their_frame():
    for text in ("A dog is running.", "two dogs", "A sketch of a dog", "People on a beach"):
        assert said(text, "frame") == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a dog on the grass", "on the grass, a dog"),
        ("A red bird in the snow.", "In the snow, a red bird."),
        ("a dog and a cat", "a cat and a dog"),
        ("An old man and a small child.", "A small child and an old man."),
    ],
)
def test_orders(text, expected):
    assert said(text, "order") == {expected}


@pytest.mark.parametrize(
    "text",
    [
        "a dog on the grass near a tree", "a man looking at a cat on a bench", "a truck on its tow",
        "a dog, a cat and a bird", "on the grass", "a black and a white dog in the snow",
    ],
)  # fmt: skip
def test_what_might_say_something_else_is_left_alone(text):
    assert said(text, "order") == set()


@pytest.mark.parametrize("subject", ["an orange ball", "a photo of a blue star"])
@pytest.mark.parametrize("place", PLACES.values())
def test_of_the_world_nothing_but_the_words_changes(subject, place):
    """A place first is put back; then the oracle reads the same statement."""
    text = f"{subject} {place}"
    whole = parse(text)
    frames = said(text, "frame")
    assert len(frames) >= 3
    for paraphrase in frames | said(text, "order"):
        back = re.sub(r"^(.*), (an? .*)$", r"\2 \1", paraphrase)
        back = re.sub(r"^(?:an image of|here is) ", "", back)
        read = parse(back)
        assert read is not None, paraphrase
        assert (read.subject, read.colour, read.background) == (
            whole.subject, whole.colour, whole.background,
        )  # fmt: skip


def test_on_real_captions_content_words_stay():
    texts = real_captions()
    editor = Paraphrase(TextBlobTagger(), per="kind")
    edited = editor.edit([example(text, f"k{i}") for i, text in enumerate(texts)])
    assert sum(bool(result.proposals) for result in edited) > 0.4 * len(texts)
    added = {"photo", "picture", "image", "this", "here", "there", "is", "of", "a", "an"}
    for result in edited:
        for proposal in result.proposals:
            before, after = (Counter(re.findall(r"[\w-]+", t.lower())) for t in proposal.texts)
            assert set((before - after) | (after - before)) <= added, proposal.texts
            assert proposal.edits[1].kind in ("frame", "order")


class FewSynonyms(Synonyms):
    """A word of one sense, and one of two."""

    def senses(self, word: str) -> Senses:
        few = {"sofa": (("sofa", "couch", "lounge_suite"),), "bank": (("bank",), ("bank", "depot"))}
        return few.get(word, ())


def test_synonyms_are_of_words_of_one_sense():
    texts = said("a dog on a sofa near a bank", "synonym", synonyms=FewSynonyms())
    assert texts == {"a dog on a couch near a bank"}
