"""NegCLIP's swaps: the same words elsewhere, as an enumeration of the published rules says."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import combinations

import pytest

from cfaug.editing.baselines import NegclipSwaps
from cfaug.editing.baselines.editor import exchange
from cfaug.editing.sentence import Slot, TextBlobTagger, split
from tests.editing.tiny import real_captions
from tests.records import example

HORSE = "The horse is eating the grass and the zebra is drinking the water"
TAGS = {
    "the": "DT", "horse": "NN", "zebra": "NN", "grass": "NN", "water": "NN", "eating": "VBG",
    "drinking": "VBG", "is": "VBZ", "and": "CC",
}  # fmt: skip


@dataclass(frozen=True)
class Told:
    """Tags of the words of a few sentences."""

    tags: dict[str, str]

    def tag(self, sentences):
        return [[self.tags[word.lower()] for word in words] for words in sentences]

    def describe(self):
        return {"tagger": "told"}


def texts(editor, text, keys=300):
    """What becomes of a text, over many keys."""
    results = editor.edit([example(text, f"k{i}") for i in range(keys)])
    return Counter(p.texts[1] for result in results for p in result.proposals)


def slow_pairs(text, words):
    """Every text in which two of these single words exchanged places, capitals aside."""
    tokens = re.findall(r"[\w-]+", text)
    at = [i for i, token in enumerate(tokens) if token.lower() in words]
    swapped = set()
    for i, j in combinations(at, 2):
        other = list(tokens)
        other[i], other[j] = tokens[j], tokens[i]
        if [t.lower() for t in other] != [t.lower() for t in tokens]:
            swapped.add(" ".join(other))
    return swapped


def test_the_papers_own_example():
    """Section 4.1: "The zebra is eating the grass and the horse is drinking the water"."""
    nouns = texts(NegclipSwaps(Told(TAGS), kinds=["noun"]), HORSE)
    expected = slow_pairs(HORSE, {"horse", "zebra", "grass", "water"})
    assert set(nouns) == expected
    assert "The zebra is eating the grass and the horse is drinking the water" in expected
    assert min(nouns.values()) > 0.5 * max(nouns.values())  # each of the six as likely
    verbs = texts(NegclipSwaps(Told(TAGS), kinds=["verb_phrase"]), HORSE)
    assert set(verbs) == {"The horse is drinking the grass and the zebra is eating the water"}


def test_phrases_and_words_of_every_kind():
    tags = TAGS | {
        "a": "DT", "small": "JJ", "red": "JJ", "dog": "NN", "dogs": "NNS", "cats": "NNS",
        "slowly": "RB", "often": "RB", "near": "IN", "two": "CD", "cat": "NN", "run": "VBP",
        ".": ".",
    }  # fmt: skip

    def only(kind, text):
        return set(texts(NegclipSwaps(Told(tags), kinds=[kind]), text, 40))

    assert only("noun_phrase", "A small dog near the red cat.") == {"The red cat near a small dog."}
    assert only("noun_phrase", "A dog near the red cat.") == set()  # one has two words
    assert only("plural_noun", "two dogs near two cats") == {"two cats near two dogs"}
    assert only("noun", "two dogs near two cats") == set()
    assert only("adjective", "a small dog near a red cat") == {"a red dog near a small cat"}
    assert only("adverb", "dogs often run near cats slowly") == {"dogs slowly run near cats often"}
    assert only("noun", "a dog near a dog") == set()  # nothing would change


def test_every_kind_of_a_caption_is_as_likely_or_has_its_set():
    tags = TAGS | {"small": "JJ", "old": "JJ"}
    text = "the small horse is eating and the old zebra is drinking"
    kinds = ["noun_phrase", "verb_phrase", "noun", "adjective", "adverb"]
    examples = [example(text, f"k{i}") for i in range(400)]
    results = NegclipSwaps(Told(tags), kinds=kinds).edit(examples)
    drawn = Counter(result.proposals[0].edits[1].kind for result in results)
    assert set(drawn) == set(kinds[:4])
    assert all(70 < count < 130 for count in drawn.values())  # 100 each, three deviations are 26
    each = NegclipSwaps(Told(tags), kinds=kinds, per="kind").edit(examples[:1])[0]
    assert [p.edits[1].kind for p in each.proposals] == kinds[:4]
    assert each.survivors == dict(zip(kinds, (1, 1, 1, 1, 0), strict=True))


def test_articles_are_repaired_where_that_is_asked_for():
    tags = {"a": "DT", "an": "DT", "dog": "NN", "apple": "NN", "and": "CC"}
    for repair, expected in ((False, "an dog and a apple"), (True, "a dog and an apple")):
        editor = NegclipSwaps(Told(tags), kinds=["noun"], repair_article=repair)
        assert set(texts(editor, "an apple and a dog", 5)) == {expected}


def test_on_real_captions_only_the_two_elements_move():
    captions = real_captions()
    editor = NegclipSwaps(TextBlobTagger(), per="kind")
    edited = editor.edit([example(text, f"k{i}") for i, text in enumerate(captions)])
    kinds = Counter(p.edits[1].kind for result in edited for p in result.proposals)
    assert sum(bool(result.proposals) for result in edited) > 0.9 * len(captions)
    assert {"noun", "noun_phrase", "verb_phrase", "plural_noun", "adjective"} <= set(kinds)
    for result in edited:
        for proposal in result.proposals:
            before, after = proposal.texts
            assert sorted(re.findall(r"\w+", before.lower())) == sorted(
                re.findall(r"\w+", after.lower())
            )
            assert before.lower() != after.lower()
            [change] = proposal.details[1]["changes"]
            assert change["before"].lower() in before.lower()
            assert change["after"].lower() in after.lower()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A dog near the cat", "The cat near a dog"),
        ("TV sets near a cat", "A cat near TV sets"),
        ("a dog near the cat", "the cat near a dog"),
    ],
)
def test_capitals_stay_where_sentences_begin(text, expected):
    assert exchange(split(text), Slot(0, 1), Slot(3, 4)) == expected


def test_texts_without_words_and_endless_ones():
    editor = NegclipSwaps(TextBlobTagger())
    signs, empty, long = editor.edit(
        [example("?!"), example(" "), example("a dog and a cat " * 200)]
    )
    assert signs.proposals == empty.proposals == long.proposals == ()
    assert long.survivors == {"max_words": 0}
